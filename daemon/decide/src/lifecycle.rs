//! The life of the worker, as a pure step: what happened goes in, what to do comes out.
//!
//! The daemon's supervisor owns one [`Lifecycle`], turns each thing that happens into an [`Event`], carries out the
//! [`Action`]s in their order, and sleeps until [`Lifecycle::next_wake`] or the next event. Nothing here signals, spawns
//! or reads a clock; nothing out there decides.
//!
//! ```text
//!   Absent ──StartAsked──► Checking ──CheckPassed──► Starting ──Ready──► Ready ◄──DrainAsked, StartAsked──► Draining
//!                          │  ▲ ▲ │ refused:            │                  │                                  │
//!              CheckFailed │  │ └─┘ again after a pause └────────┬─────────┴──────────────────────────────────┘
//!                          ▼  │                                  ├─ to end, hung, lost ─► Stopping: frame → TERM → KILL
//!                        Failed                                  │                           │ Exited
//!                     asked, or its time is over                 └─ died by itself ─► Releasing: AwaitRelease
//!                                                                                            │ Released, or not in time
//!                                                                                            ▼
//!        what comes next was decided at the end:  Absent │ Checking (asked, fallback) │ Backoff ──► Checking │ Failed
//! ```
//!
//! What a worker died of is told from evidence ([`death`]). After one that ran out of memory the same plan is never tried
//! again: one lever is lowered ([`learned`]), or nothing is tried until somebody asks or a calm time is over. A plan that
//! never came up falls back, once, to the last one that served. `Failed` for a spent budget looks again by itself when the
//! oldest death leaves the window; a permanent failure waits for somebody to ask.
//!
//! A worker is named by its [`Generation`], so that a late word of a dead one is never taken for the living one's.

mod checks;
pub mod death;
mod ends;
mod event;
pub mod learned;
mod reason;
mod states;
mod steps;

use std::collections::VecDeque;

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use crate::admission::{ClosedReason, Gate};
use crate::plan::Caps;

use death::DeathClass;
use learned::Learned;

pub use event::{Action, ErrorClass, Event, Generation, PlanId, WorkerEvent};
pub use reason::{Failure, RequestsEnd};
pub use states::{
    CheckPhase, Checking, Draining, Loss, Next, Patience, Ready, Releasing, StartPhase, Starting, State, StopPhase,
    Stopping, Then,
};

/// The worker's life so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    state: State,
    /// When workers died, the oldest first; at most [`limits::MAX_DEATHS_IN_WINDOW`].
    deaths: VecDeque<Millis>,
    last_death: Option<(Millis, DeathClass)>,
    n_spawns: u64,
    /// The plan of the worker that exists, or existed last, and its knobs that may be lowered.
    plan: Option<(PlanId, Caps)>,
    last_served: Option<PlanId>,
    /// The last plan that served was tried again, and no worker was ready since.
    fell_back: bool,
    /// Plans whose workers ran out of memory, and when; at most [`limits::MAX_LEARNED_STEPS`].
    exhausted: VecDeque<(PlanId, Millis)>,
    learned: Learned,
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        Lifecycle::new()
    }
}

impl Lifecycle {
    /// No worker, and none asked for.
    pub fn new() -> Lifecycle {
        Lifecycle::with_learned(Learned::default())
    }

    /// The same, with what an earlier daemon had learned.
    pub fn with_learned(learned: Learned) -> Lifecycle {
        Lifecycle {
            state: State::Absent,
            deaths: VecDeque::new(),
            last_death: None,
            n_spawns: 0,
            plan: None,
            last_served: None,
            fell_back: false,
            exhausted: VecDeque::new(),
            learned,
        }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last death: when and of what. Survives the restart, for `/readyz` and the log.
    pub fn last_death(&self) -> Option<&(Millis, DeathClass)> {
        self.last_death.as_ref()
    }

    /// What deaths for want of memory have taught.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Levers of the living worker have moved: what a death would be learned from is where they stand, not where they began.
    pub fn levers_moved(&mut self, ours: Caps) {
        if let Some((_, at_start)) = &mut self.plan {
            *at_start = ours;
        }
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
        if event == Event::Tick && self.next_wake().is_some_and(|at| now >= at.saturating_add(limits::LATE_TICK)) {
            self.state.begin_silence_anew(now);
        }
        let (state, actions) = match std::mem::replace(&mut self.state, State::Absent) {
            State::Absent => self.step_absent(&event),
            State::Checking(checking) => self.step_checking(now, checking, event),
            State::Starting(starting) => self.step_starting(now, starting, event),
            State::Ready(ready) => self.step_ready(now, ready, event),
            State::Draining(draining) => self.step_draining(now, draining, event),
            State::Stopping(stopping) => self.step_stopping(now, stopping, event),
            State::Releasing(releasing) => self.step_releasing(now, releasing, &event),
            State::Backoff { until } => self.step_backoff(now, until, &event),
            State::Failed(failure) => self.step_failed(now, failure, &event),
        };
        self.state = state;
        actions
    }

    /// When to send the next [`Event::Tick`], if nothing happens before. Derived from the state, so that no timer can be
    /// forgotten or left behind.
    pub fn next_wake(&self) -> Option<Millis> {
        match &self.state {
            State::Absent => None,
            State::Failed(failure) => failure.until(),
            State::Checking(checking) => match checking.phase {
                CheckPhase::Looking => None,
                CheckPhase::Pausing { until } => Some(until),
            },
            State::Starting(starting) => Some(starting.silent_until.min(starting.load_until)),
            State::Ready(ready) => ready.calm_until.into_iter().chain([ready.silent_until]).min(),
            State::Draining(draining) => Some(draining.deadline.min(draining.silent_until)),
            State::Stopping(stopping) => match stopping.phase {
                StopPhase::AwaitingSpawn | StopPhase::KillSent => None,
                StopPhase::StopSent { until } | StopPhase::TermSent { until } => Some(until),
            },
            State::Releasing(Releasing { until, .. }) | State::Backoff { until } => Some(*until),
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
                Then::Restart | Then::Later | Then::Recover(_) => Gate::Hold,
                Then::Rest => Gate::Closed(ClosedReason::Draining),
                Then::Fail(failure) => not_ready(failure.retry_after(now)),
            },
            State::Releasing(releasing) => match &releasing.next {
                Next::Restart | Next::Fallback(_) | Next::Pause { .. } => Gate::Hold,
                Next::Rest => Gate::Closed(ClosedReason::Draining),
                Next::Fail(failure) => not_ready(failure.retry_after(now)),
            },
            State::Absent => not_ready(None),
            // Who had a worker, or comes soon after, waits for room as long as the parked requests do.
            State::Checking(Checking { refusal: Some(_), patience: Patience::Spent, .. }) => {
                not_ready(Some(limits::NOT_READY_RETRY_AFTER))
            }
            State::Checking(Checking { refusal: Some(_), patience: Patience::Full | Patience::Until(_), .. }) => {
                if self.last_served.is_some() { Gate::Hold } else { not_ready(Some(limits::NOT_READY_RETRY_AFTER)) }
            }
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
                Then::Restart | Then::Later => "stopping, to start again".to_owned(),
                Then::Recover(loss) => format!("ending a lost worker: it {}", loss.first_sight()),
                Then::Fail(failure) => failure.to_string(),
            },
            State::Releasing(releasing) => match &releasing.next {
                Next::Rest => "stopped; its memory is on its way back".to_owned(),
                Next::Restart => "waiting for the memory of the last worker, to start again".to_owned(),
                Next::Fallback(_) => {
                    format!("the worker died{}; the plan that served before is tried next", last_death())
                }
                Next::Pause { .. } => format!("the worker died{}; waiting for its memory", last_death()),
                Next::Fail(failure) => failure.to_string(),
            },
            State::Backoff { .. } => format!("the worker died{}; another one is started soon", last_death()),
            State::Failed(failure) => failure.to_string(),
        }
    }
}

/// The pause after the n-th death in the window, n from 1.
pub fn backoff(n_deaths: usize) -> Millis {
    let exponent = u32::try_from(n_deaths.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = limits::BACKOFF_FACTOR.saturating_pow(exponent);
    Millis(limits::BACKOFF_MIN.0.saturating_mul(factor)).min(limits::BACKOFF_MAX)
}
