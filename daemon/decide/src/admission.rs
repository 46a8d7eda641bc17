//! Who runs, who waits, who is refused: a bounded queue in order of arrival.
//!
//! The daemon's loop owns one [`Admission`] and asks it about each request once its tokens are counted. A refusal is a
//! [`DenyReason`] with one sentence, and [`DenyReason::http`] is the only place that knows statuses. A request that is
//! already known is a third answer: it is neither admitted twice nor refused.
//!
//! A running request keeps its slot while its worker is dead: it will be given to the next one. Nothing is evicted
//! for a newer request.
//!
//! ```text
//!            ┌─ Deny(reason)
//!  offer ────┼─ Wait ──► next ──► running ──► finish
//!            └─ Admit ───────────►   │
//!                 cancel ◄───────────┘ (from either)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};

/// The daemon's number of a request, unique while the daemon lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What admission needs to know about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its number.
    pub request: RequestId,
    /// Tokens of the prompt, counted.
    pub n_prompt: Tokens,
    /// Most tokens of the answer, as asked for.
    pub max_tokens: Tokens,
}

/// Whether requests may run, as the worker's life decides ([`crate::lifecycle::Lifecycle::gate`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// A worker is ready.
    Open,
    /// None is, but one will be by itself: requests wait, none is started.
    Hold,
    /// New requests are refused.
    Closed(ClosedReason),
}

/// Why the gate is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosedReason {
    /// No worker, and none will come by itself.
    NotReady {
        /// One sentence: the same that `/readyz` says.
        why: String,
        /// When to ask again; `None` when waiting does not help.
        retry_after: Option<Millis>,
    },
    /// The daemon is ending.
    Draining,
}

/// The answer to an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has a slot: submit it.
    Admit,
    /// It is running or waiting already.
    AlreadyPresent,
    /// It is in the queue.
    Wait {
        /// Requests ahead of it.
        position: u32,
    },
    /// It is refused.
    Deny(DenyReason),
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyReason {
    /// The prompt has no tokens.
    EmptyPrompt,
    /// The prompt leaves no room for a single token of answer.
    TooLong {
        /// Tokens of the prompt.
        n_prompt: Tokens,
        /// Tokens of context.
        n_ctx: Tokens,
    },
    /// The queue is full.
    QueueFull {
        /// Requests that wait.
        n_waiting: u32,
    },
    /// No worker, and none will come by itself, or not soon.
    NotReady {
        /// One sentence.
        why: String,
        /// When to ask again; `None` when waiting does not help.
        retry_after: Option<Millis>,
    },
    /// The daemon is ending.
    Draining,
    /// Each worker that was given this request died with it.
    DiedTooOften {
        /// How many did.
        n_deaths: u32,
    },
}

/// How a refusal looks to an HTTP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpShape {
    /// The status.
    pub status: u16,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.code`.
    pub code: &'static str,
    /// `Retry-After`, where trying again can help.
    pub retry_after: Option<Millis>,
}

impl DenyReason {
    /// The table reason → HTTP. Agents look for `exceed_context_size_error` to shorten a chat in place of repeating it;
    /// clients repeat a 429 and a 503 by themselves, and never a 400.
    pub fn http(&self) -> HttpShape {
        let shape = |status, kind, code, retry_after| HttpShape { status, kind, code, retry_after };
        match self {
            DenyReason::EmptyPrompt => shape(400, "invalid_request_error", "empty_prompt", None),
            DenyReason::TooLong { .. } => shape(400, "exceed_context_size_error", "context_length_exceeded", None),
            DenyReason::QueueFull { .. } => {
                shape(429, "rate_limit_error", "queue_full", Some(limits::QUEUE_RETRY_AFTER))
            }
            DenyReason::NotReady { retry_after, .. } => {
                shape(503, "service_unavailable_error", "not_ready", *retry_after)
            }
            DenyReason::Draining => {
                shape(503, "service_unavailable_error", "draining", Some(limits::NOT_READY_RETRY_AFTER))
            }
            DenyReason::DiedTooOften { .. } => shape(500, "server_error", "worker_died", None),
        }
    }
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DenyReason::EmptyPrompt => write!(f, "the prompt is empty: send at least one token of text"),
            // Plain digits: clients read the numbers out of this sentence.
            DenyReason::TooLong { n_prompt, n_ctx } => write!(
                f,
                "the request exceeds the available context size (context_length_exceeded): {} tokens of prompt, {} of \
                 context, and an answer needs at least one; shorten the chat, or start with a larger context.tokens",
                n_prompt.0, n_ctx.0
            ),
            DenyReason::QueueFull { n_waiting } => {
                write!(f, "{n_waiting} requests are waiting already and the queue is full: try again later")
            }
            DenyReason::NotReady { why, .. } => write!(f, "no model is ready: {why}"),
            DenyReason::Draining => {
                write!(f, "the server is ending and takes no new requests: try again after its restart")
            }
            DenyReason::DiedTooOften { n_deaths } => {
                write!(
                    f,
                    "{n_deaths} workers died with this request: it is not tried again; see the log for what they died of"
                )
            }
        }
    }
}

/// Where a request was when it was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It had a slot: tell the worker. The slot is free.
    WasRunning,
    /// It had none: there is nobody to tell.
    WasWaiting,
    /// It is not here: it has ended, or never was.
    Unknown,
}

/// The bounds that a plan sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Tokens of context of one session; `None` until there is a plan: lengths are judged when it comes.
    pub n_ctx: Option<Tokens>,
    /// Requests that run at once.
    pub max_running: u32,
    /// Requests that may wait.
    pub max_waiting: u32,
}

/// The queue and the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    capacity: Capacity,
    /// Requests that hold a slot, and how many workers died with each.
    running: BTreeMap<RequestId, u32>,
    waiting: VecDeque<Facts>,
}

impl Admission {
    /// Empty.
    pub fn new(capacity: Capacity) -> Admission {
        Admission { capacity, running: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// Judges a new request, and keeps it unless it is refused.
    pub fn offer(&mut self, gate: &Gate, facts: Facts) -> Verdict {
        if self.is_present(facts.request) {
            return Verdict::AlreadyPresent;
        }
        if let Err(reason) = self.judge(facts) {
            return Verdict::Deny(reason);
        }
        match gate {
            Gate::Closed(ClosedReason::NotReady { why, retry_after }) => {
                Verdict::Deny(DenyReason::NotReady { why: why.clone(), retry_after: *retry_after })
            }
            Gate::Closed(ClosedReason::Draining) => Verdict::Deny(DenyReason::Draining),
            // Only past an empty queue: otherwise it would overtake those who wait.
            Gate::Open if self.has_free_slot() && self.waiting.is_empty() => {
                self.running.insert(facts.request, 0);
                Verdict::Admit
            }
            Gate::Open | Gate::Hold => self.enqueue(facts),
        }
    }

    /// Gives a free slot to the longest waiting request. Call it until it says `None`, after each finish, each cancel
    /// and each change of the gate.
    pub fn next(&mut self, gate: &Gate) -> Option<Facts> {
        match gate {
            Gate::Open if self.has_free_slot() => {
                let facts = self.waiting.pop_front()?;
                self.running.insert(facts.request, 0);
                Some(facts)
            }
            Gate::Open | Gate::Hold | Gate::Closed(_) => None,
        }
    }

    /// Frees the slot of a request that ended; false if it had none.
    pub fn finish(&mut self, request: RequestId) -> bool {
        self.running.remove(&request).is_some()
    }

    /// Forgets a request, wherever it is.
    pub fn cancel(&mut self, request: RequestId) -> Cancelled {
        if self.running.remove(&request).is_some() {
            return Cancelled::WasRunning;
        }
        match self.waiting.iter().position(|facts| facts.request == request) {
            Some(at) => {
                self.waiting.remove(at);
                Cancelled::WasWaiting
            }
            None => Cancelled::Unknown,
        }
    }

    /// The worker died: every running request keeps its slot for the next one, except those that have seen too many deaths
    /// ([`limits::MAX_RESUBMISSIONS`]), which are refused and forgotten.
    pub fn worker_died(&mut self) -> Vec<(RequestId, DenyReason)> {
        let mut denied = Vec::new();
        self.running.retain(|request, n_deaths| {
            *n_deaths += 1;
            let keep = *n_deaths <= limits::MAX_RESUBMISSIONS;
            if !keep {
                denied.push((*request, DenyReason::DiedTooOften { n_deaths: *n_deaths }));
            }
            keep
        });
        denied
    }

    /// Takes the bounds of a new plan. Waiting requests that no longer fit the context are refused, the others keep their
    /// order; running ones stay, even where there are fewer slots now.
    pub fn resize(&mut self, capacity: Capacity) -> Vec<(RequestId, DenyReason)> {
        self.capacity = capacity;
        let mut denied = Vec::new();
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for facts in std::mem::take(&mut self.waiting) {
            match self.judge(facts) {
                Ok(()) => kept.push_back(facts),
                Err(reason) => denied.push((facts.request, reason)),
            }
        }
        self.waiting = kept;
        denied
    }

    /// Forgets everything and says what it was: running first, then waiting in order.
    pub fn clear(&mut self) -> Vec<RequestId> {
        let running = std::mem::take(&mut self.running);
        let waiting = std::mem::take(&mut self.waiting);
        running.into_keys().chain(waiting.into_iter().map(|facts| facts.request)).collect()
    }

    /// The bounds in force.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Most tokens of an answer: what was asked for, as far as the context has room behind the prompt.
    pub fn answer_tokens(&self, facts: Facts) -> Tokens {
        match self.capacity.n_ctx {
            Some(n_ctx) => facts.max_tokens.min(n_ctx.saturating_sub(facts.n_prompt)),
            None => facts.max_tokens,
        }
    }

    /// Requests ahead of a waiting one.
    pub fn position(&self, request: RequestId) -> Option<u32> {
        self.waiting.iter().position(|facts| facts.request == request).map(|at| at as u32)
    }

    /// Requests that hold a slot.
    pub fn running(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.running.keys().copied()
    }

    /// Requests that wait, in order.
    pub fn waiting(&self) -> impl Iterator<Item = Facts> + '_ {
        self.waiting.iter().copied()
    }

    /// How many run.
    pub fn n_running(&self) -> u32 {
        self.running.len() as u32
    }

    /// How many wait.
    pub fn n_waiting(&self) -> u32 {
        self.waiting.len() as u32
    }

    fn is_present(&self, request: RequestId) -> bool {
        self.running.contains_key(&request) || self.position(request).is_some()
    }

    fn has_free_slot(&self) -> bool {
        self.n_running() < self.capacity.max_running
    }

    /// What is wrong with the request itself, whatever the load. Permanent refusals come before passing ones: a client
    /// that is told to wait must not find out afterwards that waiting was in vain.
    fn judge(&self, facts: Facts) -> Result<(), DenyReason> {
        let n_prompt = facts.n_prompt;
        if n_prompt == Tokens(0) {
            return Err(DenyReason::EmptyPrompt);
        }
        match self.capacity.n_ctx {
            Some(n_ctx) if n_prompt >= n_ctx => Err(DenyReason::TooLong { n_prompt, n_ctx }),
            Some(_) | None => Ok(()),
        }
    }

    fn enqueue(&mut self, facts: Facts) -> Verdict {
        let position = self.n_waiting();
        if position >= self.capacity.max_waiting {
            return Verdict::Deny(DenyReason::QueueFull { n_waiting: position });
        }
        self.waiting.push_back(facts);
        Verdict::Wait { position }
    }
}
