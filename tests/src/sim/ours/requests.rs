//! Queue and journal of the requests.

use super::super::policy::{Order, Why};
use super::super::sight::{ClientKind, Offer, RequestId as SimRequest, Running, Sight};
use super::{Entry, Life, Ours};
use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::{
    self, Cancelled, ClientId, DenyReason, Facts as RequestFacts, RequestId, SessionId, Verdict,
};
use plimsoll_decide::governor::{Input, Start};
use plimsoll_decide::lifecycle::WorkerEvent;

/// `decide`'s number of a request.
fn number(request: SimRequest) -> RequestId {
    RequestId(u64::from(request.0))
}

/// The world's number of a request.
fn sim_number(request: RequestId) -> SimRequest {
    SimRequest(request.0 as u32) // it was made from one
}

impl Ours {
    pub(super) fn offered(&mut self, now: Millis, offer: &Offer, orders: &mut Vec<Order>) {
        let client = match offer.client {
            ClientKind::Chat => ClientId(1),
            ClientKind::Agent => ClientId(2),
            ClientKind::Title => ClientId(3),
        };
        let facts = RequestFacts {
            request: number(offer.request),
            client,
            session: None::<SessionId>,
            n_prompt: Tokens(offer.prompt_tokens),
            max_tokens: Tokens(offer.max_tokens),
            deadline: None,
        };
        self.journal.insert(offer.request, Entry { offer: *offer, position: 0 });
        match self.admission.offer(now, &self.lifecycle.gate(now), facts) {
            Verdict::Admit => self.holding.push(offer.request),
            Verdict::Wait { .. } | Verdict::AlreadyPresent => {}
            Verdict::Deny(reason) => self.refuse(facts.request, why(&reason), orders),
        }
    }

    /// The worker had no room for it: it is tried again at the next look.
    pub(super) fn hold_again(&mut self, request: SimRequest) {
        if self.journal.contains_key(&request) && !self.holding.contains(&request) {
            self.holding.push(request);
        }
    }

    pub(super) fn finished(&mut self, request: SimRequest) {
        self.journal.remove(&request);
        self.admission.finish(number(request));
    }

    pub(super) fn cancelled(&mut self, request: SimRequest, orders: &mut Vec<Order>) {
        self.journal.remove(&request);
        self.holding.retain(|held| *held != request);
        match self.admission.cancel(number(request)) {
            Cancelled::WasRunning => orders.push(Order::Cancel { request }),
            Cancelled::WasWaiting | Cancelled::Unknown => {}
        }
    }

    pub(super) fn came_to(&mut self, running: &Running) {
        let Some(entry) = self.journal.get_mut(&running.request) else { return };
        entry.position = entry.position.max(running.position);
        let done = if running.in_prefill { 0 } else { entry.offer.prompt_tokens + entry.position };
        self.admission.came_to(number(running.request), Tokens(done));
    }

    /// What came through the worker's socket since the last step: tokens, and so life.
    pub(super) fn progress(&mut self, now: Millis, sight: &Sight, orders: &mut Vec<Order>) {
        for running in &sight.running {
            self.came_to(running);
        }
        // Somebody who has nothing to do can't be heard doing it.
        let is_alive = sight.running.is_empty() || sight.running != self.seen;
        self.seen.clone_from(&sight.running);
        if is_alive && let Some(generation) = self.lifecycle.state().generation() {
            let event = plimsoll_decide::lifecycle::Event::Worker { generation, event: WorkerEvent::HeartbeatSeen };
            self.live(now, Some(sight), event, orders);
        }
    }

    /// Lets in who may run, and gives to the worker who may start.
    pub(super) fn serve(&mut self, now: Millis, orders: &mut Vec<Order>) {
        let expired = self.admission.expire(now);
        self.refuse_all(expired, orders);
        let gate = self.lifecycle.gate(now);
        while let Some(order) = self.admission.next(&gate) {
            match order {
                admission::Order::Submit(facts) => self.holding.push(sim_number(facts.request)),
                admission::Order::Resume(request) => self.holding.push(sim_number(request)),
                admission::Order::Recall(request) => {
                    let request = sim_number(request);
                    match self.holding.iter().position(|held| *held == request) {
                        Some(at) => drop(self.holding.remove(at)),
                        None => orders.push(Order::Cancel { request }),
                    }
                    self.admission.recalled(number(request));
                }
            }
        }
        let (Some(worker), Life::Serves { .. }) = (self.worker, self.life) else { return };
        if self.holding.is_empty() || self.govern(now, &Input::RequestStarts, orders) != Some(Start::Go) {
            return;
        }
        self.life = Life::Serves { has_run: true };
        for request in std::mem::take(&mut self.holding) {
            let Some(entry) = self.journal.get(&request) else { continue };
            orders.push(Order::Submit { worker, request, from_position: entry.position });
        }
    }

    pub(super) fn refuse_all(&mut self, denied: Vec<(RequestId, DenyReason)>, orders: &mut Vec<Order>) {
        for (request, reason) in denied {
            self.refuse(request, why(&reason), orders);
        }
    }

    pub(super) fn refuse(&mut self, request: RequestId, why: Why, orders: &mut Vec<Order>) {
        let request = sim_number(request);
        self.holding.retain(|held| *held != request);
        if self.journal.remove(&request).is_some() {
            orders.push(Order::Refuse { request, why });
        }
    }
}

/// The world's word for a refusal.
fn why(reason: &DenyReason) -> Why {
    match reason {
        DenyReason::QueueFull { .. } => Why::QueueFull,
        DenyReason::EmptyPrompt | DenyReason::TooLong { .. } => Why::TooLong,
        DenyReason::NotReady { .. } | DenyReason::Draining => Why::NoWorker,
        DenyReason::Poisoned { .. } => Why::Poison,
        DenyReason::DeadlinePassed => Why::WaitedTooLong,
    }
}
