//! The states and what each one knows.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::death::{Asked, DeathClass, Evidence, Exit, Hang, LastWord, Traces, classify};
use super::event::{Generation, PlanId};
use super::reason::Failure;

/// Where the worker's life is. At most one worker exists: only the states with a [`Generation`] have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// None, and none wanted.
    Absent,
    /// None yet: the plan comes first.
    Checking(Checking),
    /// It exists, or is about to, and does not serve.
    Starting(Starting),
    /// It serves.
    Ready(Ready),
    /// It serves those who are in, and nobody else.
    Draining(Draining),
    /// It is on its way out.
    Stopping(Stopping),
    /// Its process is gone, its memory may not be.
    Releasing(Releasing),
    /// It died; the next one comes after a pause.
    Backoff {
        /// When the pause ends.
        until: Millis,
    },
    /// None, and none will come by itself before a spent budget is whole again, if that is the reason.
    Failed(Failure),
}

impl State {
    /// One word, as metrics and logs write it.
    pub fn name(&self) -> &'static str {
        match self {
            State::Absent => "absent",
            State::Checking(_) => "checking",
            State::Starting(_) => "starting",
            State::Ready(_) => "ready",
            State::Draining(_) => "draining",
            State::Stopping(_) => "stopping",
            State::Releasing(_) => "releasing",
            State::Backoff { .. } => "backoff",
            State::Failed(_) => "failed",
        }
    }

    /// The daemon stood still: what was not heard meanwhile proves nothing. Once, until the worker is heard again, so that a
    /// daemon that is always late still finds a hang.
    pub(super) fn begin_silence_anew(&mut self, now: Millis) {
        let (silent_until, is_forgiven, span) = match self {
            State::Starting(starting) => {
                let span = match starting.phase {
                    StartPhase::Spawning | StartPhase::AwaitingHello => limits::HELLO_DEADLINE,
                    StartPhase::Loading { .. } => limits::LOAD_SILENCE,
                };
                (&mut starting.silent_until, &mut starting.is_forgiven, span)
            }
            State::Ready(ready) => (&mut ready.silent_until, &mut ready.is_forgiven, limits::HEARTBEAT_SILENCE),
            State::Draining(draining) => {
                (&mut draining.silent_until, &mut draining.is_forgiven, limits::HEARTBEAT_SILENCE)
            }
            State::Absent
            | State::Checking(_)
            | State::Stopping(_)
            | State::Releasing(_)
            | State::Backoff { .. }
            | State::Failed(_) => return,
        };
        if !*is_forgiven {
            *silent_until = now.saturating_add(span);
            *is_forgiven = true;
        }
    }

    /// The worker that exists, if one does.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            State::Starting(starting) => Some(starting.generation),
            State::Ready(ready) => Some(ready.generation),
            State::Draining(draining) => Some(draining.generation),
            State::Stopping(stopping) => Some(stopping.generation),
            State::Absent | State::Checking(_) | State::Releasing(_) | State::Backoff { .. } | State::Failed(_) => None,
        }
    }
}

/// Looking whether a worker may be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checking {
    /// Looking, or waiting to look again.
    pub phase: CheckPhase,
    /// What the last look said, for a person; `None` before the first answer.
    pub refusal: Option<String>,
    /// How long requests of a dead worker go on waiting for room.
    pub patience: Patience,
}

/// What a check is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckPhase {
    /// The daemon reads the machine and makes the plan.
    Looking,
    /// It did not fit; it is looked at again.
    Pausing {
        /// When.
        until: Millis,
    },
}

/// How long requests of a dead worker go on waiting for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Nothing was refused yet.
    Full,
    /// Until this point in time.
    Until(Millis),
    /// They were failed.
    Spent,
}

/// A worker that does not serve yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Starting {
    /// Which one.
    pub generation: Generation,
    /// How far it is.
    pub phase: StartPhase,
    /// When silence counts as a hang; each step forward moves it.
    pub silent_until: Millis,
    /// When the load has taken too long, whatever it does.
    pub load_until: Millis,
    /// The daemon itself stood still, and the silence began anew for that; not again before a step forward.
    pub is_forgiven: bool,
}

impl Starting {
    /// One sentence for a person.
    pub(super) fn sentence(&self) -> String {
        match self.phase {
            StartPhase::Spawning | StartPhase::AwaitingHello => "starting the worker".to_owned(),
            StartPhase::Loading { done_bytes, total_bytes } => {
                format!("loading the model: {} of {}", Bytes(done_bytes), Bytes(total_bytes))
            }
        }
    }
}

/// How far a start is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPhase {
    /// The process is being made: there is nobody to signal yet.
    Spawning,
    /// It exists and has said nothing.
    AwaitingHello,
    /// It reads the weights.
    Loading {
        /// Bytes ready.
        done_bytes: u64,
        /// Bytes in all; 0 until it says so.
        total_bytes: u64,
    },
}

/// A worker that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Which one.
    pub generation: Generation,
    /// Since when.
    pub since: Millis,
    /// When silence counts as a hang; each frame moves it.
    pub silent_until: Millis,
    /// The daemon itself stood still, and the silence began anew for that; not again before a frame.
    pub is_forgiven: bool,
    /// When it has served long enough to give up the latest learned limit; `None` without one.
    pub calm_until: Option<Millis>,
}

/// A worker that serves for the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draining {
    /// Which one.
    pub generation: Generation,
    /// When those who still run are failed.
    pub deadline: Millis,
    /// When silence counts as a hang.
    pub silent_until: Millis,
    /// The silence began anew because the daemon stood still.
    pub is_forgiven: bool,
    /// When it became ready, for a drain that is called off.
    pub ready_since: Millis,
}

/// A worker on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopping {
    /// Which one.
    pub generation: Generation,
    /// What it was told so far.
    pub phase: StopPhase,
    /// What comes after it.
    pub then: Then,
}

/// What a worker on its way out was told so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopPhase {
    /// Nothing: its process is still being made.
    AwaitingSpawn,
    /// To stop, by a frame or by the end of its socket; or it said itself that it ends.
    StopSent {
        /// When SIGTERM follows.
        until: Millis,
    },
    /// SIGTERM.
    TermSent {
        /// When SIGKILL follows.
        until: Millis,
    },
    /// SIGKILL. Nothing stronger exists: what is left is to wait for the kernel.
    KillSent,
}

/// What comes after a worker that is on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Rest,
    /// The next one at once: it was asked for.
    Restart,
    /// The next one after a pause: the machine had no room for this one while it loaded, and won't have at once.
    Later,
    /// This one was lost: its end tells what comes next.
    Recover(Loss),
    /// Nothing until somebody asks: the next one would fail in the same way.
    Fail(Failure),
}

/// How a worker was lost, as far as it is known before its process is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// We found it hanging.
    pub hang: Option<Hang>,
    /// What was last heard.
    pub last_word: Option<LastWord>,
    /// Whether it had served: a plan that never did is not tried for ever.
    pub had_served: bool,
}

impl Loss {
    /// What it looks like before the exit is known.
    pub(super) fn first_sight(&self) -> DeathClass {
        self.class(Exit::Code(0), Traces::default(), Asked::No)
    }

    pub(super) fn class(&self, exit: Exit, traces: Traces, asked: Asked) -> DeathClass {
        classify(&Evidence { exit, traces, last_word: self.last_word.clone(), hang: self.hang, asked })
    }
}

/// A worker whose process is gone, and whose memory is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Releasing {
    /// Which one it was.
    pub generation: Generation,
    /// When it goes on without an answer. Later than any answer should be.
    pub until: Millis,
    /// What is decided already.
    pub next: Next,
}

/// What comes after a worker that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Rest,
    /// The next one at once: it was asked for.
    Restart,
    /// The plan that served before, once: the new one did not come up.
    Fallback(PlanId),
    /// The next one after a pause.
    Pause {
        /// When it ends.
        until: Millis,
    },
    /// Nothing more is tried.
    Fail(Failure),
}
