//! What happens, and what to do about it.

use plimsoll_config::units::Millis;

use super::death::{DeathClass, Exit, OomAccount, Traces};
use super::reason::RequestsEnd;
use crate::plan::Caps;

/// The number of a worker; each spawn takes the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// The planner's number for a plan: the same knobs have the same number, other knobs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanId(pub u64);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants a worker: the daemon's start, or a person. Ends a pause, and calls off a drain.
    StartAsked,
    /// A worker is to be replaced by one on a new plan; its answers go on there.
    RestartAsked {
        /// The machine can't wait until it has ended by itself: it is killed.
        at_once: bool,
    },
    /// Let the running answers end, then stop; whoever is still running at `deadline` is failed.
    DrainAsked {
        /// A point in time.
        deadline: Millis,
    },
    /// No request is running or waiting any more. Only heard while draining.
    Drained,
    /// Stop now. Nothing is started after this until somebody asks for it.
    StopAsked,
    /// [`Action::Look`] found that a plan fits.
    CheckPassed {
        /// Which one.
        plan: PlanId,
        /// Its knobs that may be lowered, and where they stand ([`Plan::ours`](crate::plan::Plan::ours)).
        ours: Caps,
    },
    /// [`Action::Look`] found that the plan does not fit now; it may later.
    CheckRefused {
        /// The refusal, for a person.
        why: String,
    },
    /// [`Action::Look`] found something that no waiting changes: no such file, not a model.
    CheckFailed {
        /// One sentence.
        why: String,
    },
    /// A worker did something.
    Worker {
        /// Which one.
        generation: Generation,
        /// What.
        event: WorkerEvent,
    },
    /// [`Action::AwaitRelease`]: all that this worker held is back.
    Released {
        /// Which one.
        generation: Generation,
    },
    /// [`Action::AwaitRelease`]: not all of it came back in time.
    ReleaseTimedOut {
        /// Which one.
        generation: Generation,
        /// What is held, for a person.
        held: String,
    },
    /// Time has passed.
    Tick,
}

/// What a worker did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// Its process exists.
    Spawned,
    /// Its process could not be made.
    SpawnFailed {
        /// Whether trying again can help.
        class: ErrorClass,
        /// One sentence.
        why: String,
    },
    /// Its first frame came, of the right version. A wrong one is a permanent [`WorkerEvent::LoadFailed`].
    Hello,
    /// Weights are arriving.
    Loading {
        /// Bytes ready.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// It serves.
    Ready,
    /// It can't serve, and ends by itself after saying so.
    LoadFailed {
        /// Whether trying again can help.
        class: ErrorClass,
        /// One sentence.
        why: String,
    },
    /// It found no memory, during the load or later, and ends by itself after saying so.
    Exhausted {
        /// Where.
        account: OomAccount,
        /// One sentence.
        why: String,
    },
    /// Any frame: it lives.
    HeartbeatSeen,
    /// Its socket closed or carried nonsense. It ends on the end of its socket, or is made to.
    SocketClosed {
        /// One sentence.
        why: String,
    },
    /// Its process is gone and reaped.
    Exited {
        /// How.
        exit: Exit,
        /// What the machine shows of it.
        traces: Traces,
    },
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// It can't: the same thing would happen.
    Permanent,
    /// It can: a disk, a driver.
    MayPass,
}

/// What to do. Signals go to the worker of the current generation, and only after re-checking that it is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the machine, make the plan under these bounds, and answer with one of the `Check…` events.
    Look {
        /// What was learned ([`MachineReading::caps`](crate::plan::MachineReading::caps)).
        caps: Caps,
        /// Take this earlier plan if it still fits and keeps the bounds: the new one did not come up.
        fallback: Option<PlanId>,
    },
    /// Start a worker on the plan that passed; answer with `Spawned` or `SpawnFailed`.
    Spawn(Generation),
    /// Send the stop frame.
    SendStop,
    /// Send SIGTERM.
    SignalTerm,
    /// Send SIGKILL.
    SignalKill,
    /// Wait for the memory of a worker that is gone; answer with `Released` or `ReleaseTimedOut`.
    AwaitRelease(Generation),
    /// The worker is lost: running requests wait for the next one
    /// ([`park`](crate::admission::Admission::park)).
    ParkRequests,
    /// What it died of is known ([`worker_died`](crate::admission::Admission::worker_died)).
    Died {
        /// What.
        class: DeathClass,
        /// Whether it had served: only then were requests in its steps.
        had_served: bool,
    },
    /// [`Lifecycle::learned`](super::Lifecycle::learned) has changed: store it.
    StoreLearned,
    /// A worker serves: ask [`next`](crate::admission::Admission::next), parked requests come first.
    ResubmitRequests,
    /// Every request, running or waiting, ends with this.
    FailRequests(RequestsEnd),
}
