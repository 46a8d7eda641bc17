//! What goes into admission and what comes out of it.

use plimsoll_config::units::{Millis, Tokens};

use super::DenyReason;

/// The daemon's number of a request, unique while the daemon lives. Smaller numbers are older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Who asks: whatever the daemon tells clients apart by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A timeline that requests continue one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What admission needs to know about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its number.
    pub request: RequestId,
    /// Who asks.
    pub client: ClientId,
    /// The timeline that it continues, if it is not one of its own.
    pub session: Option<SessionId>,
    /// Tokens of the prompt, counted.
    pub n_prompt: Tokens,
    /// Most tokens of the answer, as asked for.
    pub max_tokens: Tokens,
    /// When it does not want to wait any longer; a running request has none.
    pub deadline: Option<Millis>,
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

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It just got its slot: give it to the worker. The context in force now bounds its answer for good.
    Submit(Facts),
    /// Give it to the worker again, with the part of its answer that is there. It keeps what it was promised.
    Resume(RequestId),
    /// Take it back from the worker, without its client noticing; answer with [`recalled`](Admission::recalled) when it is.
    Recall(RequestId),
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
    /// Tokens of keys and values of all sessions together, from the ledger; `None`: as many as the slots need.
    pub kv: Option<Tokens>,
    /// Sessions in all: requests that run at once.
    pub max_running: u32,
    /// Requests that may wait.
    pub max_waiting: u32,
}
