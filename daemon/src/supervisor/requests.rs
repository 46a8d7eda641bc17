//! The journal of the requests that are in the house: what each one asked for and how far its answer is.
//!
//! Owned by the supervisor. Who runs and who waits is the admission's; here is only what must be said to a worker and to a
//! client. Every record ends exactly once.

use std::collections::BTreeMap;

use plimsoll_config::units::Tokens;
use plimsoll_decide::admission::RequestId;
use plimsoll_wire::{Finish, Submit, Timing};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::journal::{End, Order, Progress};

/// One request.
#[derive(Debug)]
struct Record {
    order: Order,
    progress: watch::Sender<Progress>,
}

/// All of them, bounded by the admission's slots and queue.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    records: BTreeMap<RequestId, Record>,
    last: u64,
}

impl Requests {
    /// The next number.
    pub(crate) fn next_id(&mut self) -> RequestId {
        self.last += 1;
        RequestId(self.last)
    }

    /// Begins a record; the receiver follows its answer.
    pub(crate) fn begin(&mut self, request: RequestId, order: Order) -> watch::Receiver<Progress> {
        let (progress, follow) = watch::channel(Progress::default());
        self.records.insert(request, Record { order, progress });
        follow
    }

    /// Sets how long the answer may be, once the admission has counted.
    pub(crate) fn bound(&mut self, request: RequestId, max_tokens: u32) {
        if let Some(record) = self.records.get_mut(&request) {
            record.order.max_tokens = max_tokens;
        }
    }

    /// What a worker has to be told to begin or continue; or how the request ends because nothing is left to do.
    pub(crate) fn to_run(&self, request: RequestId) -> Option<Result<Submit, End>> {
        let record = self.records.get(&request)?;
        let progress = record.progress.borrow();
        if progress.ids.len() >= record.order.max_tokens as usize {
            return Some(Err(End::Finished(Finish::Length, Timing::default())));
        }
        Some(Ok(record.order.submit(request.0, &progress.ids)))
    }

    /// Adds ids to the answer; false when they are more than was asked for.
    pub(crate) fn push(&mut self, request: RequestId, ids: &[u32]) -> bool {
        let Some(record) = self.records.get(&request) else { return true };
        let room = record.order.max_tokens as usize - record.progress.borrow().ids.len();
        if ids.len() > room {
            return false;
        }
        record.progress.send_modify(|progress| progress.ids.extend_from_slice(ids));
        true
    }

    /// How far a request is: tokens of its prompt and of its answer so far.
    pub(crate) fn position(&self, request: RequestId) -> Option<Tokens> {
        let record = self.records.get(&request)?;
        let n_tokens = record.order.prompt.len() + record.progress.borrow().ids.len();
        Some(Tokens(u32::try_from(n_tokens).unwrap_or(u32::MAX)))
    }

    /// All that is needed to run a request again elsewhere.
    pub(crate) fn kept(&self, request: RequestId) -> Option<Value> {
        let record = self.records.get(&request)?;
        let order = &record.order;
        Some(json!({
            "prompt": order.prompt,
            "generated": record.progress.borrow().ids,
            "max_tokens": order.max_tokens,
            "sampling": order.submit(request.0, &[]).sampling,
        }))
    }

    /// Ends a request and forgets it. True if it was still here.
    pub(crate) fn end(&mut self, request: RequestId, end: End) -> bool {
        let Some(record) = self.records.remove(&request) else { return false };
        let n_generated = record.progress.borrow().ids.len();
        let (n_prompt, seed) = (record.order.prompt.len(), record.order.seed);
        match &end {
            End::Finished(finish, timing) => {
                tracing::info!(
                    request = request.0,
                    n_prompt,
                    n_generated,
                    seed,
                    ?finish,
                    prefill_ms = timing.prefill_us / 1000,
                    decode_ms = timing.decode_us / 1000,
                    "request ended"
                );
            }
            End::Failed(failure) => {
                tracing::warn!(request = request.0, n_prompt, n_generated, seed, "request failed: {failure}");
            }
        }
        record.progress.send_modify(|progress| progress.end = Some(end));
        true
    }

    /// Forgets a request that nobody waits for.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if let Some(record) = self.records.remove(&request) {
            let n_generated = record.progress.borrow().ids.len();
            tracing::info!(
                request = request.0,
                n_prompt = record.order.prompt.len(),
                n_generated,
                "request cancelled by its client"
            );
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Failure, Sampling};
    use plimsoll_decide::admission::ClientId;

    fn order(max_tokens: u32) -> Order {
        Order {
            client: ClientId(0),
            wait: None,
            prompt: vec![1, 2],
            sampling: Sampling::default(),
            seed: 7,
            max_tokens,
        }
    }

    #[test]
    fn a_request_is_continued_with_the_ids_so_far_and_the_same_seed() {
        let mut requests = Requests::default();
        let id = requests.next_id();
        let follow = requests.begin(id, order(4));
        assert!(requests.push(id, &[10, 11]));
        let submit = requests.to_run(id).unwrap().unwrap();
        assert_eq!((submit.prompt, submit.generated, submit.sampling.seed), (vec![1, 2], vec![10, 11], 7));
        assert!(requests.push(id, &[12, 13]));
        assert_eq!(requests.to_run(id).unwrap(), Err(End::Finished(Finish::Length, Timing::default())));
        assert!(!requests.push(id, &[14]), "more than was asked for");
        assert_eq!(follow.borrow().ids, [10, 11, 12, 13]);
    }

    #[test]
    fn a_request_ends_once() {
        let mut requests = Requests::default();
        let id = requests.next_id();
        let follow = requests.begin(id, order(4));
        let first = End::Failed(Failure::Engine("first".into()));
        assert!(requests.end(id, first.clone()));
        assert!(!requests.end(id, End::Failed(Failure::Engine("second".into()))));
        assert_eq!(follow.borrow().end, Some(first));
        assert!(requests.is_empty() && requests.to_run(id).is_none() && requests.push(id, &[1]));
    }
}
