//! What a policy is: the daemon's decisions, and nothing else.
//!
//! The simulator calls [`Policy::step`] at every [`Policy::next_look`] and whenever something happens (`Sight::happened`). The
//! policy owns the queue and the journal of its requests: it decides which request goes to the worker, and gives it again to the
//! next worker after a death. The rules that its orders must keep are in `checker.rs`.

use super::lever::{Card, Lever, LeverFacts, Positions};
use super::number;
use super::sight::{Generation, RequestId, Sight};
use plimsoll_config::units::{Bytes, Millis};
use serde::{Deserialize, Serialize};

/// What is known before the day begins: header of the model, configuration, size of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The world's name, for words only.
    pub world: String,
    /// The levers there are, cheapest first: the ladder.
    pub levers: Vec<LeverFacts>,
    /// Host bytes of a worker beside its levers: dense weights there, staging, activations.
    #[serde(with = "number")]
    pub host_fixed: Bytes,
    /// The machine's limit for all programs.
    #[serde(with = "number")]
    pub host_limit: Bytes,
    /// Each card.
    pub cards: Vec<CardFacts>,
    /// KV of one token, in the host.
    #[serde(with = "number")]
    pub kv_per_token: Bytes,
    /// All experts of the model; 0 for a dense one.
    #[serde(with = "number")]
    pub experts: Bytes,
    /// Expert bytes that one token uses.
    #[serde(with = "number")]
    pub token_cycle: Bytes,
    /// Most requests that run at a time.
    pub max_sessions: u32,
    /// The file's disk, measured once without contention, bytes per second.
    pub disk_bytes_per_s: u64,
    /// The hand-over of a healthy worker takes at most this.
    #[serde(with = "number")]
    pub hand_over: Millis,
}

/// One card before the day begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardFacts {
    /// Which.
    pub card: Card,
    /// What there is beside the driver's own.
    #[serde(with = "number")]
    pub total: Bytes,
    /// What the desktop usually takes.
    #[serde(with = "number")]
    pub baseline: Bytes,
    /// Bytes of a worker beside its levers: context, dense weights there.
    #[serde(with = "number")]
    pub fixed: Bytes,
    /// Bytes that the worker takes at its first request and keeps.
    #[serde(with = "number")]
    pub prompt_path: Bytes,
    /// Free bytes at a request's start under which decoding is a few tokens a second.
    #[serde(with = "number")]
    pub request_line: Bytes,
}

/// How a worker is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A frame through its socket: it ends at the next hand-over.
    Frame,
    /// A signal it can catch: the same.
    Term,
    /// A signal it can't: at once.
    Kill,
}

/// Why a request is refused. The client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The queue is full.
    QueueFull,
    /// It needs more KV than the largest plan has.
    TooLong,
    /// It has killed workers by itself.
    Poison,
    /// There is no worker and none soon.
    NoWorker,
    /// It has waited too long.
    WaitedTooLong,
}

/// What a policy wants done. Orders of one step are carried out in their order, at once; their effects take time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Spawn a worker. There must be none.
    Start {
        /// Where its levers stand.
        knobs: Positions,
        /// Most requests at a time.
        sessions: u32,
    },
    /// Move one lever of the living worker. One move at a time in an account; a downward order on a lever that is still being
    /// raised turns it round at once.
    Move {
        /// Which worker.
        worker: Generation,
        /// Which lever.
        lever: Lever,
        /// Where to.
        to: Bytes,
    },
    /// End the worker.
    Stop {
        /// Which worker.
        worker: Generation,
        /// How.
        how: Stop,
    },
    /// Give a request to the worker.
    Submit {
        /// Which worker.
        worker: Generation,
        /// Which request.
        request: RequestId,
        /// Answer tokens that the client already has: prompt and these are prefilled again.
        from_position: u32,
    },
    /// Take a request from the worker: its client is gone, or it is parked (the policy may submit it again).
    Cancel {
        /// Which request.
        request: RequestId,
    },
    /// End a request with a reason.
    Refuse {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Why,
    },
    /// Tell the worker to start no submitted request that has not begun (true), or to go on (false).
    PauseAdmission(bool),
}

/// What a policy promises. The checker holds it to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// It keeps a journal: an answer survives its worker. Without one every running request at a worker's end is lost at once.
    pub journal: bool,
    /// It keeps the rules of levers, starts and poison.
    pub discipline: bool,
}

/// The daemon's decisions.
pub trait Policy {
    /// One look. `now` never goes back.
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order>;
    /// When it wants to look again, on the daemon's clock; at the earliest [`MIN_STEP`] after its last step.
    fn next_look(&self) -> Millis;
    /// Whether nothing is in flight and nothing presses: while all foreign use is flat the simulator may then jump past
    /// `next_look` to the next thing that happens, at most [`MAX_SKIP`].
    fn idle(&self) -> bool;
    /// What it promises.
    fn promises(&self) -> Promises {
        Promises { journal: true, discipline: true }
    }
    /// Why it last acted, for the story: a rule and figures. Empty: nothing to say.
    fn reason(&self) -> String {
        String::new()
    }
}

/// Shortest time between two looks that the policy asks for.
pub const MIN_STEP: Millis = Millis(5);

/// Longest jump while a policy is idle.
pub const MAX_SKIP: Millis = Millis(30_000);
