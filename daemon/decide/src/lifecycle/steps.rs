//! The states with a worker, one function for each: every event is named, none falls through.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use super::Lifecycle;
use super::death::{DeathClass, Hang, LastWord};
use super::ends::{later, release};
use super::event::{Action, ErrorClass, Event, Generation, WorkerEvent};
use super::reason::{Failure, RequestsEnd};
use super::states::{Draining, Loss, Next, Ready, StartPhase, Starting, State, StopPhase, Stopping, Then};

/// The next state, and what to do on the way.
pub(super) type Step = (State, Vec<Action>);

impl Lifecycle {
    pub(super) fn step_starting(&mut self, now: Millis, starting: Starting, event: Event) -> Step {
        match event {
            Event::Worker { event, .. } => self.worker_of_starting(now, starting, event),
            Event::StopAsked | Event::DrainAsked { .. } => {
                let (state, mut actions) = end_start(now, &starting, Then::Rest);
                actions.insert(0, Action::FailRequests(RequestsEnd::Stopped));
                (state, actions)
            }
            Event::RestartAsked { at_once: true } if starting.phase != StartPhase::Spawning => {
                kill(starting.generation, Then::Later)
            }
            Event::RestartAsked { .. } => end_start(now, &starting, Then::Later),
            Event::Tick => match overdue(now, &starting) {
                Some(hang) => end_start(now, &starting, Then::Recover(hung(hang, false))),
                None => stay(State::Starting(starting)),
            },
            Event::StartAsked
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::Drained
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. } => stay(State::Starting(starting)),
        }
    }

    fn worker_of_starting(&mut self, now: Millis, mut starting: Starting, event: WorkerEvent) -> Step {
        let generation = starting.generation;
        match event {
            WorkerEvent::Spawned => {
                if starting.phase == StartPhase::Spawning {
                    starting.phase = StartPhase::AwaitingHello;
                }
                stay(State::Starting(starting))
            }
            WorkerEvent::SpawnFailed { class: ErrorClass::Permanent, why } => fail(now, Failure::Permanent { why }),
            WorkerEvent::SpawnFailed { class: ErrorClass::MayPass, why } => {
                let (next, mut actions) = self.died(now, DeathClass::SpawnFailed { why }, false);
                let (state, further) = self.go_on(now, next);
                actions.extend(further);
                (state, actions)
            }
            WorkerEvent::Hello => stay(State::Starting(progress(now, starting, 0, 0))),
            WorkerEvent::Loading { done_bytes, total_bytes } => {
                stay(State::Starting(progress(now, starting, done_bytes, total_bytes)))
            }
            WorkerEvent::Ready => {
                self.last_served = self.plan.map(|(plan, _)| plan);
                self.fell_back = false;
                (self.ready(now, generation, now), vec![Action::ResubmitRequests])
            }
            WorkerEvent::LoadFailed { class: ErrorClass::Permanent, why } => {
                stay(await_end(now, generation, Then::Fail(Failure::Permanent { why })))
            }
            WorkerEvent::LoadFailed { class: ErrorClass::MayPass, why } => {
                stay(await_end(now, generation, Then::Recover(said(LastWord::LoadFailed { why }, false))))
            }
            WorkerEvent::Exhausted { account, why } => {
                stay(await_end(now, generation, Then::Recover(said(LastWord::Exhausted { account, why }, false))))
            }
            WorkerEvent::SocketClosed { why } => {
                stay(await_end(now, generation, Then::Recover(said(LastWord::SocketLost { why }, false))))
            }
            WorkerEvent::Exited { exit, traces } => {
                let (next, actions) = self.ended_alone(now, false, exit, traces);
                release(now, generation, next, actions)
            }
            // A heartbeat is not a step of the load: a loader that only says that it lives is hung all the same.
            WorkerEvent::HeartbeatSeen => stay(State::Starting(starting)),
        }
    }

    pub(super) fn step_ready(&mut self, now: Millis, ready: Ready, event: Event) -> Step {
        let generation = ready.generation;
        match event {
            Event::Worker { event, .. } => self.worker_of_ready(now, ready, event),
            Event::DrainAsked { deadline } => {
                self.leave_ready(now, &ready);
                let Ready { generation, since: ready_since, silent_until, is_forgiven, .. } = ready;
                stay(State::Draining(Draining { generation, deadline, silent_until, is_forgiven, ready_since }))
            }
            Event::StopAsked => {
                self.leave_ready(now, &ready);
                stop(now, generation, RequestsEnd::Stopped)
            }
            Event::RestartAsked { at_once } => {
                self.leave_ready(now, &ready);
                let (state, end) = match at_once {
                    true => kill(generation, Then::Restart),
                    false => (await_end(now, generation, Then::Restart), vec![Action::SendStop]),
                };
                (state, [vec![Action::ParkRequests], end].concat())
            }
            Event::Tick if now >= ready.silent_until => {
                self.leave_ready(now, &ready);
                let then = Then::Recover(hung(Hang::Silent, true));
                (terminate(now, generation, then), vec![Action::ParkRequests, Action::SignalTerm])
            }
            Event::Tick if ready.calm_until.is_some_and(|until| now >= until) => {
                self.learned.give_up();
                let calm_until = self.learned.calm_until(now);
                (State::Ready(Ready { calm_until, ..ready }), vec![Action::StoreLearned])
            }
            Event::Tick
            | Event::StartAsked
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::Drained
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. } => stay(State::Ready(ready)),
        }
    }

    fn worker_of_ready(&mut self, now: Millis, mut ready: Ready, event: WorkerEvent) -> Step {
        match event {
            WorkerEvent::HeartbeatSeen => {
                ready.silent_until = now.saturating_add(limits::HEARTBEAT_SILENCE);
                ready.is_forgiven = false;
                stay(State::Ready(ready))
            }
            WorkerEvent::SocketClosed { why } => self.lost_ready(now, &ready, LastWord::SocketLost { why }),
            WorkerEvent::Exhausted { account, why } => {
                self.lost_ready(now, &ready, LastWord::Exhausted { account, why })
            }
            WorkerEvent::Exited { exit, traces } => {
                self.leave_ready(now, &ready);
                let (next, mut actions) = self.ended_alone(now, true, exit, traces);
                actions.insert(0, Action::ParkRequests);
                release(now, ready.generation, next, actions)
            }
            // Late or out of order: a worker that is ready has nothing more to say about its start.
            WorkerEvent::Spawned
            | WorkerEvent::SpawnFailed { .. }
            | WorkerEvent::Hello
            | WorkerEvent::Loading { .. }
            | WorkerEvent::Ready
            | WorkerEvent::LoadFailed { .. } => stay(State::Ready(ready)),
        }
    }

    /// A serving worker is lost, and ends by itself or is made to.
    fn lost_ready(&mut self, now: Millis, ready: &Ready, last_word: LastWord) -> Step {
        self.leave_ready(now, ready);
        let then = Then::Recover(said(last_word, true));
        (await_end(now, ready.generation, then), vec![Action::ParkRequests])
    }

    pub(super) fn step_draining(&mut self, now: Millis, draining: Draining, event: Event) -> Step {
        let generation = draining.generation;
        match event {
            Event::Worker { event, .. } => worker_of_draining(now, draining, &event),
            Event::StartAsked => {
                let Draining { generation, silent_until, is_forgiven, ready_since: since, .. } = draining;
                let calm_until = self.learned.calm_until(now);
                stay(State::Ready(Ready { generation, since, silent_until, is_forgiven, calm_until }))
            }
            Event::Drained => (await_end(now, generation, Then::Rest), vec![Action::SendStop]),
            Event::StopAsked => stop(now, generation, RequestsEnd::Stopped),
            Event::Tick if now >= draining.deadline => stop(now, generation, RequestsEnd::DrainDeadline),
            Event::Tick if now >= draining.silent_until => {
                let actions = vec![Action::FailRequests(RequestsEnd::Stopped), Action::SignalTerm];
                (terminate(now, generation, Then::Rest), actions)
            }
            // A second order to drain sets the deadline anew.
            Event::DrainAsked { deadline } => stay(State::Draining(Draining { deadline, ..draining })),
            Event::Tick
            | Event::RestartAsked { .. }
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. } => stay(State::Draining(draining)),
        }
    }

    pub(super) fn step_stopping(&mut self, now: Millis, stopping: Stopping, event: Event) -> Step {
        match event {
            Event::Worker { event, .. } => self.worker_of_stopping(now, stopping, event),
            Event::StopAsked | Event::DrainAsked { .. } => {
                let actions = vec![Action::FailRequests(RequestsEnd::Stopped)];
                (State::Stopping(Stopping { then: Then::Rest, ..stopping }), actions)
            }
            Event::StartAsked => {
                let then = match stopping.then {
                    Then::Rest | Then::Restart | Then::Later | Then::Fail(_) => Then::Restart,
                    Then::Recover(loss) => Then::Recover(loss), // another one comes, after the pause that it earned
                };
                stay(State::Stopping(Stopping { then, ..stopping }))
            }
            Event::Tick => harder(now, stopping),
            Event::RestartAsked { at_once: true }
                if matches!(stopping.phase, StopPhase::StopSent { .. } | StopPhase::TermSent { .. }) =>
            {
                kill(stopping.generation, stopping.then)
            }
            Event::RestartAsked { .. }
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::Drained
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. } => stay(State::Stopping(stopping)),
        }
    }

    fn worker_of_stopping(&mut self, now: Millis, stopping: Stopping, event: WorkerEvent) -> Step {
        match event {
            WorkerEvent::Spawned if stopping.phase == StopPhase::AwaitingSpawn => {
                (terminate(now, stopping.generation, stopping.then), vec![Action::SignalTerm])
            }
            WorkerEvent::Exited { exit, traces } => {
                let generation = stopping.generation;
                let (next, actions) = self.ended(now, stopping, exit, traces);
                release(now, generation, next, actions)
            }
            // No process, nothing to be released.
            WorkerEvent::SpawnFailed { why, .. } => {
                let (next, mut actions) = match stopping.then {
                    Then::Rest => (Next::Rest, Vec::new()),
                    Then::Restart => (Next::Restart, Vec::new()),
                    Then::Later => (later(now), Vec::new()),
                    Then::Recover(_) => self.died(now, DeathClass::SpawnFailed { why }, false),
                    Then::Fail(failure) => (Next::Fail(failure), Vec::new()),
                };
                let (state, further) = self.go_on(now, next);
                actions.extend(further);
                (state, actions)
            }
            // The last word of one that is lost anyway tells more than how it was lost.
            WorkerEvent::Exhausted { account, why } => {
                let then = match stopping.then {
                    Then::Recover(loss) => {
                        Then::Recover(Loss { last_word: Some(LastWord::Exhausted { account, why }), ..loss })
                    }
                    Then::Rest | Then::Restart | Then::Later | Then::Fail(_) => stopping.then,
                };
                stay(State::Stopping(Stopping { then, ..stopping }))
            }
            WorkerEvent::Spawned
            | WorkerEvent::Hello
            | WorkerEvent::Loading { .. }
            | WorkerEvent::Ready
            | WorkerEvent::LoadFailed { .. }
            | WorkerEvent::HeartbeatSeen
            | WorkerEvent::SocketClosed { .. } => stay(State::Stopping(stopping)),
        }
    }

    fn ready(&self, now: Millis, generation: Generation, since: Millis) -> State {
        let silent_until = now.saturating_add(limits::HEARTBEAT_SILENCE);
        let calm_until = self.learned.calm_until(now);
        State::Ready(Ready { generation, since, silent_until, is_forgiven: false, calm_until })
    }
}

/// What is known of a worker that we found hanging.
fn hung(hang: Hang, had_served: bool) -> Loss {
    Loss { hang: Some(hang), last_word: None, had_served }
}

/// What is known of a worker that said why it ends.
fn said(last_word: LastWord, had_served: bool) -> Loss {
    Loss { hang: None, last_word: Some(last_word), had_served }
}

fn worker_of_draining(now: Millis, mut draining: Draining, event: &WorkerEvent) -> Step {
    match event {
        WorkerEvent::HeartbeatSeen => {
            draining.silent_until = now.saturating_add(limits::HEARTBEAT_SILENCE);
            draining.is_forgiven = false;
            stay(State::Draining(draining))
        }
        // No new worker for the last answers: the daemon is on its way out.
        WorkerEvent::Exited { .. } => {
            release(now, draining.generation, Next::Rest, vec![Action::FailRequests(RequestsEnd::Stopped)])
        }
        WorkerEvent::SocketClosed { .. } | WorkerEvent::Exhausted { .. } => {
            (await_end(now, draining.generation, Then::Rest), vec![Action::FailRequests(RequestsEnd::Stopped)])
        }
        WorkerEvent::Spawned
        | WorkerEvent::SpawnFailed { .. }
        | WorkerEvent::Hello
        | WorkerEvent::Loading { .. }
        | WorkerEvent::Ready
        | WorkerEvent::LoadFailed { .. } => stay(State::Draining(draining)),
    }
}

/// Nothing changes, or nothing is to be done.
pub(super) fn stay(state: State) -> Step {
    (state, Vec::new())
}

/// No worker, and nobody to serve the requests that are left.
pub(super) fn rest() -> Step {
    (State::Absent, vec![Action::FailRequests(RequestsEnd::Stopped)])
}

/// Nothing more will be tried until somebody asks, or the budget is whole again.
pub(super) fn fail(now: Millis, failure: Failure) -> Step {
    let end = RequestsEnd::NotReady { why: failure.to_string(), retry_after: failure.retry_after(now) };
    (State::Failed(failure), vec![Action::FailRequests(end)])
}

/// Ends a worker that serves, and what it serves.
fn stop(now: Millis, generation: Generation, end: RequestsEnd) -> Step {
    (await_end(now, generation, Then::Rest), vec![Action::FailRequests(end), Action::SendStop])
}

/// Waits for a worker that knows that it should end.
fn await_end(now: Millis, generation: Generation, then: Then) -> State {
    let phase = StopPhase::StopSent { until: now.saturating_add(limits::STOP_GRACE) };
    State::Stopping(Stopping { generation, phase, then })
}

/// Waits for a worker that gets SIGTERM.
fn terminate(now: Millis, generation: Generation, then: Then) -> State {
    let phase = StopPhase::TermSent { until: now.saturating_add(limits::TERM_GRACE) };
    State::Stopping(Stopping { generation, phase, then })
}

/// Waits for a worker that gets SIGKILL.
fn kill(generation: Generation, then: Then) -> Step {
    (State::Stopping(Stopping { generation, phase: StopPhase::KillSent, then }), vec![Action::SignalKill])
}

/// Ends a worker that does not serve yet. One whose process is still being made can't be told: it gets SIGTERM as soon
/// as it exists. A loader that is hung reads no frames: SIGTERM at once.
fn end_start(now: Millis, starting: &Starting, then: Then) -> Step {
    let generation = starting.generation;
    match (starting.phase, &then) {
        (StartPhase::Spawning, _) => {
            stay(State::Stopping(Stopping { generation, phase: StopPhase::AwaitingSpawn, then }))
        }
        (StartPhase::AwaitingHello | StartPhase::Loading { .. }, Then::Recover(_)) => {
            (terminate(now, generation, then), vec![Action::SignalTerm])
        }
        (
            StartPhase::AwaitingHello | StartPhase::Loading { .. },
            Then::Rest | Then::Restart | Then::Later | Then::Fail(_),
        ) => (await_end(now, generation, then), vec![Action::SendStop]),
    }
}

/// What a start that is late died of.
fn overdue(now: Millis, starting: &Starting) -> Option<Hang> {
    if now >= starting.load_until {
        return Some(Hang::LoadTooLong);
    }
    if now < starting.silent_until {
        return None;
    }
    match starting.phase {
        StartPhase::Spawning | StartPhase::AwaitingHello => Some(Hang::NoHello),
        StartPhase::Loading { .. } => Some(Hang::LoadStalled),
    }
}

/// A start that says where it is. Only bytes that were not there before move the deadline.
fn progress(now: Millis, starting: Starting, done_bytes: u64, total_bytes: u64) -> Starting {
    let (before_bytes, is_further) = match starting.phase {
        StartPhase::Spawning | StartPhase::AwaitingHello => (0, true),
        StartPhase::Loading { done_bytes: before_bytes, .. } => (before_bytes, done_bytes > before_bytes),
    };
    let (silent_until, is_forgiven) = match is_further {
        true => (now.saturating_add(limits::LOAD_SILENCE), false),
        false => (starting.silent_until, starting.is_forgiven),
    };
    let phase = StartPhase::Loading { done_bytes: done_bytes.max(before_bytes), total_bytes };
    Starting { phase, silent_until, is_forgiven, ..starting }
}

/// The next stronger means, once the time of the last one is over.
fn harder(now: Millis, stopping: Stopping) -> Step {
    match stopping.phase {
        StopPhase::StopSent { until } if now >= until => {
            (terminate(now, stopping.generation, stopping.then), vec![Action::SignalTerm])
        }
        StopPhase::TermSent { until } if now >= until => kill(stopping.generation, stopping.then),
        StopPhase::AwaitingSpawn | StopPhase::StopSent { .. } | StopPhase::TermSent { .. } | StopPhase::KillSent => {
            stay(State::Stopping(stopping))
        }
    }
}
