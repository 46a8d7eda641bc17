//! Which session computes what in the next step. Pure: no I/O, no clock, no tensors.
//!
//! The job loop owns one [`Scheduler`], tells it of each request that comes, goes or was computed, and asks it for the
//! shares of the next step.
//!
//! ```text
//!   submit ──► waiting (bounded, first in first out) ──► running (at most max_sessions) ──► finish
//! ```
//!
//! A step holds one token of every session that is down to one (all decodes, and the last token of a prompt), and in
//! front of that at most `prefill_tokens` tokens of prompts, given to sessions in the order in which they started. So a
//! long prompt never stops the answers of others for longer than one chunk, and no session starves: the oldest prompt
//! always moves.

use std::collections::VecDeque;

/// The bounds of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Sessions that run at once; at least 1.
    pub max_sessions: usize,
    /// Requests that wait for a session.
    pub max_waiting: usize,
    /// Prompt tokens in one step, over all sessions; at least 1.
    pub prefill_tokens: u32,
}

impl Bounds {
    /// The most rows a step can have: the engine's buffers are made for these.
    pub fn max_step_tokens(&self) -> usize {
        self.prefill_tokens as usize + self.max_sessions
    }
}

/// What became of a submitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It runs from the next step on, or waits for a session.
    Taken,
    /// A request of this id is here already; nothing changed.
    AlreadyPresent,
    /// The queue is full; nothing changed.
    Full,
}

/// One session's part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The request.
    pub request: u64,
    /// How many of its next tokens to compute; at least 1.
    pub n_tokens: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    request: u64,
    /// Tokens that have no K and V yet.
    n_left: u32,
}

/// The sessions that run and the requests that wait.
#[derive(Debug)]
pub struct Scheduler {
    bounds: Bounds,
    /// In the order of their start.
    running: Vec<Entry>,
    /// In the order of their submission.
    waiting: VecDeque<Entry>,
}

impl Scheduler {
    /// Nothing runs, nothing waits.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, running: Vec::new(), waiting: VecDeque::new() }
    }

    /// Takes a request whose first `n_tokens` tokens (at least 1) must be computed.
    pub fn submit(&mut self, request: u64, n_tokens: u32) -> Submitted {
        if self.contains(request) {
            return Submitted::AlreadyPresent;
        }
        if self.waiting.len() >= self.bounds.max_waiting && self.running.len() >= self.bounds.max_sessions {
            return Submitted::Full;
        }
        self.waiting.push_back(Entry { request, n_left: n_tokens.max(1) });
        self.promote();
        Submitted::Taken
    }

    /// `n_tokens` of a running request were computed.
    pub fn computed(&mut self, request: u64, n_tokens: u32) {
        if let Some(entry) = self.running.iter_mut().find(|e| e.request == request) {
            entry.n_left = entry.n_left.saturating_sub(n_tokens);
        }
    }

    /// A running request has one more token to compute: the one just chosen.
    pub fn chosen(&mut self, request: u64) {
        if let Some(entry) = self.running.iter_mut().find(|e| e.request == request) {
            entry.n_left += 1;
        }
    }

    /// Forgets a request, wherever it is. The next one that waits takes its place.
    pub fn finish(&mut self, request: u64) {
        self.running.retain(|e| e.request != request);
        self.waiting.retain(|e| e.request != request);
        self.promote();
    }

    /// The shares of the next step, in the order of the sessions' start. Empty when nothing runs.
    pub fn shares(&self) -> Vec<Share> {
        let mut prefill_left = self.bounds.prefill_tokens;
        let mut shares = Vec::with_capacity(self.running.len());
        for entry in &self.running {
            let n_tokens = match entry.n_left {
                0 => 0,
                1 => 1,
                n_left => {
                    let n_tokens = n_left.min(prefill_left);
                    prefill_left -= n_tokens;
                    n_tokens
                }
            };
            if n_tokens > 0 {
                shares.push(Share { request: entry.request, n_tokens });
            }
        }
        shares
    }

    /// Whether a request runs or waits.
    pub fn contains(&self, request: u64) -> bool {
        self.running.iter().chain(&self.waiting).any(|e| e.request == request)
    }

    /// Requests that run.
    pub fn n_running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait.
    pub fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    fn promote(&mut self) {
        while self.running.len() < self.bounds.max_sessions {
            let Some(entry) = self.waiting.pop_front() else { return };
            self.running.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BOUNDS: Bounds = Bounds { max_sessions: 3, max_waiting: 4, prefill_tokens: 8 };

    fn share(request: u64, n_tokens: u32) -> Share {
        Share { request, n_tokens }
    }

    #[test]
    fn decodes_go_in_every_step_beside_the_oldest_prompt() {
        let mut s = Scheduler::new(BOUNDS);
        s.submit(1, 1);
        s.submit(2, 20);
        s.submit(3, 5);
        assert_eq!(s.shares(), [share(1, 1), share(2, 8)]);
        s.computed(1, 1);
        s.chosen(1);
        s.computed(2, 8);
        assert_eq!(s.shares(), [share(1, 1), share(2, 8)]);
        s.computed(2, 8);
        assert_eq!(s.shares(), [share(1, 1), share(2, 4), share(3, 4)]);
    }

    #[test]
    fn a_request_that_waits_starts_when_another_ends() {
        let mut s = Scheduler::new(BOUNDS);
        for request in 1..=7 {
            assert_eq!(s.submit(request, 1), Submitted::Taken);
        }
        assert_eq!(s.submit(8, 1), Submitted::Full);
        assert_eq!(s.submit(5, 1), Submitted::AlreadyPresent);
        s.finish(2);
        assert_eq!(s.shares(), [share(1, 1), share(3, 1), share(4, 1)]);
        assert_eq!((s.n_running(), s.n_waiting()), (3, 3));
    }

    #[derive(Debug, Clone)]
    enum Do {
        Submit { n_tokens: u32 },
        Step,
        Finish { nth: usize },
    }

    fn any_do() -> impl Strategy<Value = Do> {
        prop_oneof![
            (1_u32..40).prop_map(|n_tokens| Do::Submit { n_tokens }),
            Just(Do::Step),
            Just(Do::Step),
            (0_usize..8).prop_map(|nth| Do::Finish { nth }),
        ]
    }

    proptest! {
        /// Against an obvious model: a list in order of submission, of which the first `max_sessions` run.
        #[test]
        fn behaves_like_a_list(
            max_sessions in 1_usize..5,
            max_waiting in 0_usize..4,
            prefill_tokens in 1_u32..16,
            actions in prop::collection::vec(any_do(), 1..80),
        ) {
            let bounds = Bounds { max_sessions, max_waiting, prefill_tokens };
            let mut s = Scheduler::new(bounds);
            let mut list: Vec<u64> = Vec::new();
            let mut left: BTreeMap<u64, u32> = BTreeMap::new();
            for (request, action) in (0_u64..).zip(actions) {
                match action {
                    Do::Submit { n_tokens } => {
                        let fits = list.len() < max_sessions + max_waiting;
                        let expect = if fits { Submitted::Taken } else { Submitted::Full };
                        prop_assert_eq!(s.submit(request, n_tokens), expect);
                        if fits {
                            list.push(request);
                            left.insert(request, n_tokens);
                        }
                    }
                    Do::Finish { nth } => {
                        if nth < list.len() {
                            s.finish(list.remove(nth));
                        }
                    }
                    Do::Step => {
                        let shares = s.shares();
                        let running = &list[..list.len().min(max_sessions)];
                        let n_rows: usize = shares.iter().map(|share| share.n_tokens as usize).sum();
                        prop_assert!(n_rows <= bounds.max_step_tokens());
                        let n_prompt: u32 = shares.iter().filter(|x| left[&x.request] > 1).map(|x| x.n_tokens).sum();
                        prop_assert!(n_prompt <= prefill_tokens);
                        // The oldest prompt moves, and everything down to one token moves.
                        let oldest = running.iter().find(|r| left[r] > 1);
                        for r in running.iter().filter(|r| left[r] == 1 || Some(*r) == oldest) {
                            prop_assert!(shares.iter().any(|share| share.request == *r));
                        }
                        let order: Vec<u64> = shares.iter().map(|share| share.request).collect();
                        let expect: Vec<u64> = running.iter().copied().filter(|r| order.contains(r)).collect();
                        prop_assert_eq!(&order, &expect);
                        for Share { request, n_tokens } in shares {
                            s.computed(request, n_tokens);
                            let n_left = left.get_mut(&request).unwrap();
                            prop_assert!(n_tokens >= 1 && n_tokens <= *n_left);
                            *n_left -= n_tokens;
                            if *n_left == 0 {
                                s.chosen(request);
                                *n_left = 1;
                            }
                        }
                    }
                }
                prop_assert_eq!(s.n_running(), list.len().min(max_sessions));
                prop_assert_eq!(s.n_running() + s.n_waiting(), list.len());
            }
        }
    }
}
