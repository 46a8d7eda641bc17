//! The life of the worker, as a pure step: what happened goes in, what to do comes out.
//!
//! The daemon's supervisor owns one [`Lifecycle`], turns each thing that happens into an [`Event`], carries out the
//! [`Action`]s in their order, and sleeps until [`Lifecycle::next_wake`] or the next event. Nothing here signals, spawns
//! or reads a clock; nothing out there decides.
//!
//! ```text
//!             StartAsked             CheckPassed: Spawn            Ready: ResubmitRequests
//!   Absent ───────────────► Checking ───────────────► Starting ─────────────────────────► Ready ◄──┐ StartAsked
//!     ▲                      │  ▲  ▲ refused: looks     │ │  death                          │  │   │
//!     │          CheckFailed │  │  │ again after a pause │ └──────────────┐     death        │  └─► Draining
//!     │                      ▼  │  └────────────────     │                ▼◄─────────────────┤       │
//!     │ StopAsked         Failed │ until         ┌───────┼──────────► Backoff                 │       │ Drained,
//!     │                      ▲  └───────────────┼───────┼─────────────┘ │                    │       │ deadline
//!     │                      │ permanent, budget spent  │               │ hung, StopAsked    │       │
//!     │                      └──────────────────┴───────┼─── Stopping ◄─┴────────────────────┴───────┘
//!     └──────────────────────── Exited, nothing more wanted ──┘  Stop frame → grace → TERM → grace → KILL
//! ```
//!
//! `Failed` for a spent budget looks again by itself when the oldest death leaves the window; a permanent failure waits for
//! somebody to ask.
//!
//! A worker is named by its [`Generation`], so that a late word of a dead one is never taken for the living one's.

mod reason;
mod states;
mod steps;

use std::collections::VecDeque;

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use crate::admission::{ClosedReason, Gate};

pub use reason::{DeathCause, Exit, Failure, RequestsEnd};
pub use states::{
    CheckPhase, Checking, Draining, Patience, Ready, StartPhase, Starting, State, StopPhase, Stopping, Then,
};

/// The number of a worker; each spawn takes the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants a worker: the daemon's start, or a person. Ends a pause, and calls off a drain.
    StartAsked,
    /// Let the running answers end, then stop; whoever is still running at `deadline` is failed.
    DrainAsked {
        /// A point in time.
        deadline: Millis,
    },
    /// No request is running or waiting any more. Only heard while draining.
    Drained,
    /// Stop now. Nothing is started after this until somebody asks for it.
    StopAsked,
    /// [`Action::Look`] found that the plan fits.
    CheckPassed,
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
    /// Any frame: it lives.
    HeartbeatSeen,
    /// Its socket closed or carried nonsense. It ends on the end of its socket, or is made to.
    SocketClosed {
        /// One sentence.
        why: String,
    },
    /// Its process is gone and reaped.
    Exited(Exit),
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// It can't: the same thing would happen.
    Permanent,
    /// It can: memory, a disk, a driver.
    MayPass,
}

/// What to do. Signals go to the worker of the current generation, and only after re-checking that it is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the machine, make the plan, and answer with one of the `Check…` events.
    Look,
    /// Start a worker on the plan that passed; answer with `Spawned` or `SpawnFailed`.
    Spawn(Generation),
    /// Send the stop frame.
    SendStop,
    /// Send SIGTERM.
    SignalTerm,
    /// Send SIGKILL.
    SignalKill,
    /// The worker is lost: running requests wait for the next one
    /// ([`worker_died`](crate::admission::Admission::worker_died)).
    ParkRequests,
    /// Give the parked requests to the new worker, then let waiting ones in.
    ResubmitRequests,
    /// Every request, running or waiting, ends with this.
    FailRequests(RequestsEnd),
}

/// The worker's life so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    state: State,
    /// When workers died, the oldest first; at most [`limits::MAX_DEATHS_IN_WINDOW`].
    deaths: VecDeque<Millis>,
    last_death: Option<(Millis, DeathCause)>,
    n_spawns: u64,
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        Lifecycle::new()
    }
}

impl Lifecycle {
    /// No worker, and none asked for.
    pub fn new() -> Lifecycle {
        Lifecycle { state: State::Absent, deaths: VecDeque::new(), last_death: None, n_spawns: 0 }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last death: when and of what. Survives the restart, for `/readyz` and the log.
    pub fn last_death(&self) -> Option<&(Millis, DeathCause)> {
        self.last_death.as_ref()
    }

    /// Workers started so far.
    pub fn n_spawns(&self) -> u64 {
        self.n_spawns
    }

    /// Takes one event in. `now` never runs backwards.
    pub fn step(&mut self, now: Millis, event: Event) -> Vec<Action> {
        if let Event::Worker { generation, .. } = &event
            && self.state.generation() != Some(*generation)
        {
            return Vec::new(); // a worker that is gone
        }
        let (state, actions) = match std::mem::replace(&mut self.state, State::Absent) {
            State::Absent => Self::step_absent(&event),
            State::Checking(checking) => self.step_checking(now, checking, event),
            State::Starting(starting) => self.step_starting(now, starting, event),
            State::Ready(ready) => self.step_ready(now, ready, event),
            State::Draining(draining) => Self::step_draining(now, draining, event),
            State::Stopping(stopping) => self.step_stopping(now, stopping, event),
            State::Backoff { until } => Self::step_backoff(now, until, &event),
            State::Failed(failure) => self.step_failed(now, failure, &event),
        };
        self.state = state;
        actions
    }

    /// When to send the next [`Event::Tick`], if nothing happens before. Derived from the state, so that no timer can be
    /// forgotten or left behind.
    pub fn next_wake(&self) -> Option<Millis> {
        match &self.state {
            State::Absent | State::Failed(Failure::Permanent { .. }) => None,
            State::Failed(Failure::BudgetSpent { until, .. }) => Some(*until),
            State::Checking(checking) => match checking.phase {
                CheckPhase::Looking => None,
                CheckPhase::Pausing { until } => Some(until),
            },
            State::Starting(starting) => Some(starting.silent_until.min(starting.load_until)),
            State::Ready(ready) => Some(ready.silent_until),
            State::Draining(draining) => Some(draining.deadline.min(draining.silent_until)),
            State::Stopping(stopping) => match stopping.phase {
                StopPhase::AwaitingSpawn | StopPhase::KillSent => None,
                StopPhase::StopSent { until } | StopPhase::TermSent { until } => Some(until),
            },
            State::Backoff { until } => Some(*until),
        }
    }

    /// Whether requests may run, wait, or are refused, at `now`.
    pub fn gate(&self, now: Millis) -> Gate {
        let not_ready = |retry_after| Gate::Closed(ClosedReason::NotReady { why: self.sentence(), retry_after });
        match &self.state {
            State::Ready(_) => Gate::Open,
            State::Checking(Checking { refusal: None, .. }) | State::Starting(_) | State::Backoff { .. } => Gate::Hold,
            State::Draining(_) => Gate::Closed(ClosedReason::Draining),
            State::Stopping(stopping) => match &stopping.then {
                Then::Restart | Then::Recover(_) => Gate::Hold,
                Then::Rest => Gate::Closed(ClosedReason::Draining),
                Then::Fail(failure) => not_ready(failure.retry_after(now)),
            },
            State::Absent => not_ready(None),
            State::Checking(Checking { refusal: Some(_), .. }) => not_ready(Some(limits::NOT_READY_RETRY_AFTER)),
            State::Failed(failure) => not_ready(failure.retry_after(now)),
        }
    }

    /// One sentence for `/readyz`, the log and `STATUS=`.
    pub fn sentence(&self) -> String {
        let last_death = || self.last_death.as_ref().map_or(String::new(), |(_, cause)| format!(" ({cause})"));
        match &self.state {
            State::Absent => "no worker is running, and none was asked for".to_owned(),
            State::Checking(Checking { refusal: None, .. }) => "looking whether the model fits".to_owned(),
            State::Checking(Checking { refusal: Some(why), .. }) => why.clone(),
            State::Starting(starting) => starting.sentence(),
            State::Ready(_) => "ready".to_owned(),
            State::Draining(_) => "draining: running answers may end, no new request is taken".to_owned(),
            State::Stopping(stopping) => match &stopping.then {
                Then::Rest => "stopping".to_owned(),
                Then::Restart => "stopping, to start again".to_owned(),
                Then::Recover(cause) => format!("ending a lost worker, to start another: {cause}"),
                Then::Fail(failure) => failure.to_string(),
            },
            State::Backoff { .. } => format!("the worker died{}; another one is started soon", last_death()),
            State::Failed(failure) => failure.to_string(),
        }
    }

    /// Spawns the next worker.
    fn spawn(&mut self, now: Millis) -> (State, Vec<Action>) {
        self.n_spawns += 1;
        let generation = Generation(self.n_spawns);
        let starting = Starting {
            generation,
            phase: StartPhase::Spawning,
            silent_until: now.saturating_add(limits::HELLO_DEADLINE),
            load_until: now.saturating_add(limits::LOAD_DEADLINE),
        };
        (State::Starting(starting), vec![Action::Spawn(generation)])
    }

    /// The worker is dead and gone: a pause that grows with the deaths in the window; when there were too
    /// many, until the oldest of them is out of it.
    fn recover(&mut self, now: Millis, cause: DeathCause) -> (State, Vec<Action>) {
        while self.deaths.front().is_some_and(|at| now.since(*at) >= limits::DEATH_WINDOW) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        self.last_death = Some((now, cause.clone()));
        let n_deaths = self.deaths.len();
        if n_deaths >= limits::MAX_DEATHS_IN_WINDOW {
            let oldest = self.deaths.front().copied().unwrap_or(now);
            let until = oldest.saturating_add(limits::DEATH_WINDOW);
            return steps::fail(now, Failure::BudgetSpent { n_deaths: n_deaths as u32, last: cause, at: now, until });
        }
        (State::Backoff { until: now.saturating_add(backoff(n_deaths)) }, Vec::new())
    }
}

/// The pause after the n-th death in the window, n from 1.
pub fn backoff(n_deaths: usize) -> Millis {
    let exponent = u32::try_from(n_deaths.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = limits::BACKOFF_FACTOR.saturating_pow(exponent);
    Millis(limits::BACKOFF_MIN.0.saturating_mul(factor)).min(limits::BACKOFF_MAX)
}
