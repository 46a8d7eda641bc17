//! The states without a worker: what is looked at, refused, paused and given up before the next one is spawned.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use super::Lifecycle;
use super::event::{Action, Event, Generation, PlanId};
use super::reason::{Failure, RequestsEnd};
use super::states::{CheckPhase, Checking, Patience, StartPhase, Starting, State};
use super::steps::{Step, fail, rest, stay};
use crate::plan::Caps;

impl Lifecycle {
    pub(super) fn step_absent(&mut self, event: &Event) -> Step {
        match event {
            Event::StartAsked => {
                self.forgive();
                self.look(None)
            }
            Event::RestartAsked { .. }
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::DrainAsked { .. }
            | Event::Drained
            | Event::StopAsked
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. }
            | Event::Tick => stay(State::Absent),
        }
    }

    pub(super) fn step_checking(&mut self, now: Millis, checking: Checking, event: Event) -> Step {
        match (event, checking.phase) {
            (Event::CheckPassed { plan, ours }, _) => self.passed(now, plan, ours),
            (Event::CheckFailed { why }, _) => fail(now, Failure::Permanent { why }),
            (Event::CheckRefused { why }, _) => {
                let patience = match checking.patience {
                    Patience::Full => Patience::Until(now.saturating_add(limits::PARK_DEADLINE)),
                    Patience::Until(_) | Patience::Spent => checking.patience,
                };
                let phase = CheckPhase::Pausing { until: now.saturating_add(limits::RECHECK_PAUSE) };
                stay(State::Checking(Checking { phase, refusal: Some(why), patience }))
            }
            (Event::StopAsked | Event::DrainAsked { .. }, _) => rest(),
            (Event::StartAsked, CheckPhase::Pausing { .. }) => self.look_again(now, checking),
            (Event::Tick, CheckPhase::Pausing { until }) if now >= until => self.look_again(now, checking),
            (Event::StartAsked | Event::Tick, CheckPhase::Looking | CheckPhase::Pausing { .. })
            | (
                Event::RestartAsked { .. }
                | Event::Drained
                | Event::Worker { .. }
                | Event::Released { .. }
                | Event::ReleaseTimedOut { .. },
                _,
            ) => stay(State::Checking(checking)),
        }
    }

    pub(super) fn step_backoff(&mut self, now: Millis, until: Millis, event: &Event) -> Step {
        match event {
            Event::StartAsked => self.look(None),
            Event::Tick if now >= until => self.look(None),
            Event::StopAsked | Event::DrainAsked { .. } => rest(),
            Event::Tick
            | Event::RestartAsked { .. }
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::Drained
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. } => stay(State::Backoff { until }),
        }
    }

    pub(super) fn step_failed(&mut self, now: Millis, failure: Failure, event: &Event) -> Step {
        match event {
            // The deaths that are left in the window still count: one more is the end of this try.
            Event::Tick if failure.until().is_some_and(|until| now >= until) => self.look(None),
            Event::StartAsked => {
                self.forgive();
                self.look(None)
            }
            Event::StopAsked | Event::DrainAsked { .. } => stay(State::Absent),
            Event::RestartAsked { .. }
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::Drained
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. }
            | Event::Tick => stay(State::Failed(failure)),
        }
    }

    /// The plan is made anew, also after a death: the same plan may be what it died of.
    pub(super) fn look(&self, fallback: Option<PlanId>) -> Step {
        let checking = Checking { phase: CheckPhase::Looking, refusal: None, patience: Patience::Full };
        (State::Checking(checking), vec![Action::Look { caps: self.learned.caps(), fallback }])
    }

    /// Looks again after a refusal; requests that have waited for room long enough are failed.
    fn look_again(&self, now: Millis, checking: Checking) -> Step {
        let why = checking.refusal.clone().unwrap_or_default();
        let (patience, mut actions) = match checking.patience {
            Patience::Until(until) if now >= until => {
                let retry_after = Some(limits::NOT_READY_RETRY_AFTER);
                (Patience::Spent, vec![Action::FailRequests(RequestsEnd::NotReady { why, retry_after })])
            }
            Patience::Full | Patience::Until(_) | Patience::Spent => (checking.patience, Vec::new()),
        };
        actions.push(Action::Look { caps: self.learned.caps(), fallback: None });
        (State::Checking(Checking { phase: CheckPhase::Looking, patience, ..checking }), actions)
    }

    /// A plan fits: spawns the next worker, unless a worker of this very plan ran out of memory.
    fn passed(&mut self, now: Millis, plan: PlanId, ours: Caps) -> Step {
        self.exhausted.retain(|(_, at)| now.since(*at) < limits::LEARNED_CALM);
        let died_at = self.exhausted.iter().rev().find(|(exhausted, _)| *exhausted == plan).map(|(_, at)| *at);
        if let Some((at, (_, class))) = died_at.zip(self.last_death.clone()) {
            return fail(now, Failure::SamePlan { class, until: at.saturating_add(limits::LEARNED_CALM) });
        }
        self.plan = Some((plan, ours));
        self.n_spawns += 1;
        let generation = Generation(self.n_spawns);
        let starting = Starting {
            generation,
            phase: StartPhase::Spawning,
            silent_until: now.saturating_add(limits::HELLO_DEADLINE),
            load_until: now.saturating_add(limits::LOAD_DEADLINE),
            is_forgiven: false,
        };
        (State::Starting(starting), vec![Action::Spawn(generation)])
    }
}
