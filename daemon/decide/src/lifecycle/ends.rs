//! What follows from an end: what is learned of it, what is tried next, and when.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use super::death::{Asked, DeathClass, Exit, Traces};
use super::event::{Action, Event, Generation, PlanId};
use super::reason::{Failure, RequestsEnd};
use super::states::{Loss, Next, Ready, Releasing, State, StopPhase, Stopping, Then};
use super::steps::{Step, fail, stay};
use super::{Lifecycle, backoff};

impl Lifecycle {
    /// A worker ended and nobody had asked it to.
    pub(super) fn ended_alone(
        &mut self,
        now: Millis,
        had_served: bool,
        exit: Exit,
        traces: Traces,
    ) -> (Next, Vec<Action>) {
        let loss = Loss { hang: None, last_word: None, had_served };
        self.died(now, loss.class(exit, traces, Asked::No), had_served)
    }

    /// A worker on its way out is gone.
    pub(super) fn ended(&mut self, now: Millis, stopping: Stopping, exit: Exit, traces: Traces) -> (Next, Vec<Action>) {
        let asked = |by_frame| match stopping.phase {
            StopPhase::AwaitingSpawn => Asked::No,
            StopPhase::StopSent { .. } => by_frame,
            StopPhase::TermSent { .. } => Asked::ToEnd,
            StopPhase::KillSent => Asked::Killed,
        };
        let on_request = Loss { hang: None, last_word: None, had_served: true };
        match stopping.then {
            Then::Rest => (Next::Rest, self.learn(now, &on_request.class(exit, traces, asked(Asked::ToEnd)))),
            Then::Restart => (Next::Restart, self.learn(now, &on_request.class(exit, traces, asked(Asked::ToEnd)))),
            Then::Later => (later(now), self.learn(now, &on_request.class(exit, traces, asked(Asked::ToEnd)))),
            Then::Recover(loss) => self.died(now, loss.class(exit, traces, asked(Asked::No)), loss.had_served),
            Then::Fail(failure) => (Next::Fail(failure), Vec::new()),
        }
    }

    /// Books a death, learns from it, and decides what is tried next.
    pub(super) fn died(&mut self, now: Millis, class: DeathClass, had_served: bool) -> (Next, Vec<Action>) {
        while self.deaths.front().is_some_and(|at| now.since(*at) >= limits::DEATH_WINDOW) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        self.last_death = Some((now, class.clone()));
        let mut actions = vec![Action::Died { class: class.clone(), had_served }];
        let learned = self.learn(now, &class);
        let fallback = self.fallback(had_served);
        let next = if class.is_permanent() {
            Next::Fail(Failure::Permanent { why: format!("the worker {class}") })
        } else if class.oom().is_some() && learned.is_empty() && fallback.is_none() {
            Next::Fail(Failure::SamePlan { class, until: now.saturating_add(limits::LEARNED_CALM) })
        } else if self.deaths.len() >= limits::MAX_DEATHS_IN_WINDOW {
            let until = self.deaths.front().copied().unwrap_or(now).saturating_add(limits::DEATH_WINDOW);
            Next::Fail(Failure::BudgetSpent { n_deaths: self.deaths.len() as u32, last: class, at: now, until })
        } else if let Some(plan) = fallback {
            self.fell_back = true;
            Next::Fallback(plan)
        } else {
            Next::Pause { until: now.saturating_add(backoff(self.deaths.len())) }
        };
        actions.extend(learned);
        (next, actions)
    }

    /// The last plan that served, if the one that never did is another, and this was not tried yet.
    fn fallback(&self, had_served: bool) -> Option<PlanId> {
        let current = self.plan.map(|(plan, _)| plan);
        let is_free =
            |plan: &PlanId| Some(*plan) != current && !self.exhausted.iter().any(|(banned, _)| banned == plan);
        self.last_served.filter(is_free).filter(|_| !had_served && !self.fell_back)
    }

    /// After a worker that ran out of memory: its plan is not tried again, and one lever is lowered. Empty: it did not, or
    /// there is nothing to lower.
    fn learn(&mut self, now: Millis, class: &DeathClass) -> Vec<Action> {
        let Some((account, (plan, ours))) = class.oom().zip(self.plan) else { return Vec::new() };
        if self.exhausted.len() >= limits::MAX_LEARNED_STEPS {
            self.exhausted.pop_front();
        }
        self.exhausted.push_back((plan, now));
        self.learned.lower(account, &ours).map_or_else(Vec::new, |_| vec![Action::StoreLearned])
    }

    /// A worker serves no longer: its calm time stands still.
    pub(super) fn leave_ready(&mut self, now: Millis, ready: &Ready) {
        self.learned.pause(now, ready.calm_until);
    }

    pub(super) fn step_releasing(&mut self, now: Millis, mut releasing: Releasing, event: &Event) -> Step {
        match event {
            Event::Released { generation } | Event::ReleaseTimedOut { generation, .. }
                if *generation == releasing.generation =>
            {
                self.go_on(now, releasing.next)
            }
            Event::Tick if now >= releasing.until => self.go_on(now, releasing.next),
            Event::StopAsked | Event::DrainAsked { .. } => {
                releasing.next = Next::Rest;
                (State::Releasing(releasing), vec![Action::FailRequests(RequestsEnd::Stopped)])
            }
            Event::StartAsked => {
                releasing.next = match releasing.next {
                    Next::Rest | Next::Restart | Next::Pause { .. } => Next::Restart,
                    Next::Fallback(plan) => Next::Fallback(plan),
                    Next::Fail(_) => {
                        self.forgive();
                        Next::Restart
                    }
                };
                stay(State::Releasing(releasing))
            }
            Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::RestartAsked { .. }
            | Event::Drained
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. }
            | Event::Tick => stay(State::Releasing(releasing)),
        }
    }

    /// The worker that is gone holds nothing more, or nobody can tell.
    pub(super) fn go_on(&mut self, now: Millis, next: Next) -> Step {
        match next {
            Next::Rest => stay(State::Absent),
            Next::Restart => self.look(None),
            Next::Fallback(plan) => self.look(Some(plan)),
            Next::Pause { until } => stay(State::Backoff { until }),
            Next::Fail(failure) => fail(now, failure),
        }
    }

    /// Somebody looked at it and wants another try: a whole budget, and no plan is barred.
    pub(super) fn forgive(&mut self) {
        self.deaths.clear();
        self.exhausted.clear();
        self.fell_back = false;
    }
}

/// A pause after a start that was given up: no loop without one.
pub(super) fn later(now: Millis) -> Next {
    Next::Pause { until: now.saturating_add(limits::RECHECK_PAUSE) }
}

/// Waits for what a worker held whose process is gone. Before anything else is decided: a plan that is made while memory is
/// on its way back is made for a smaller machine.
pub(super) fn release(now: Millis, generation: Generation, next: Next, mut actions: Vec<Action>) -> Step {
    let until = now.saturating_add(limits::RELEASE_TIMEOUT).saturating_add(limits::RELEASE_ANSWER_GRACE);
    actions.push(Action::AwaitRelease(generation));
    (State::Releasing(Releasing { generation, until, next }), actions)
}
