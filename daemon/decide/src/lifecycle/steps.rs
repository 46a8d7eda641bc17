//! One function for each state: every event is named, none falls through.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use super::reason::{DeathCause, Exit, Failure, RequestsEnd};
use super::states::{
    CheckPhase, Checking, Draining, Patience, Ready, StartPhase, Starting, State, StopPhase, Stopping, Then,
};
use super::{Action, ErrorClass, Event, Generation, Lifecycle, WorkerEvent};

/// The next state, and what to do on the way.
type Step = (State, Vec<Action>);

impl Lifecycle {
    pub(super) fn step_absent(event: &Event) -> Step {
        match event {
            Event::StartAsked => look(),
            Event::DrainAsked { .. }
            | Event::Drained
            | Event::StopAsked
            | Event::CheckPassed
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. }
            | Event::Tick => stay(State::Absent),
        }
    }

    pub(super) fn step_checking(&mut self, now: Millis, checking: Checking, event: Event) -> Step {
        match (event, checking.phase) {
            (Event::CheckPassed, _) => self.spawn(now),
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
            (Event::StartAsked, CheckPhase::Pausing { .. }) => look_again(now, checking),
            (Event::Tick, CheckPhase::Pausing { until }) if now >= until => look_again(now, checking),
            (Event::StartAsked | Event::Tick, CheckPhase::Looking | CheckPhase::Pausing { .. })
            | (Event::Drained | Event::Worker { .. }, _) => stay(State::Checking(checking)),
        }
    }

    pub(super) fn step_starting(&mut self, now: Millis, starting: Starting, event: Event) -> Step {
        match event {
            Event::Worker { event, .. } => self.worker_of_starting(now, starting, event),
            Event::StopAsked | Event::DrainAsked { .. } => {
                let (state, mut actions) = end_start(now, &starting, Then::Rest);
                actions.insert(0, Action::FailRequests(RequestsEnd::Stopped));
                (state, actions)
            }
            Event::Tick => match overdue(now, &starting) {
                Some(cause) => end_start(now, &starting, Then::Recover(cause)),
                None => stay(State::Starting(starting)),
            },
            Event::StartAsked
            | Event::Drained
            | Event::CheckPassed
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
                self.recover(now, DeathCause::SpawnFailed { why })
            }
            WorkerEvent::Hello => stay(State::Starting(progress(now, starting, 0, 0))),
            WorkerEvent::Loading { done_bytes, total_bytes } => {
                stay(State::Starting(progress(now, starting, done_bytes, total_bytes)))
            }
            WorkerEvent::Ready => {
                let silent_until = now.saturating_add(limits::HEARTBEAT_SILENCE);
                (State::Ready(Ready { generation, since: now, silent_until }), vec![Action::ResubmitRequests])
            }
            WorkerEvent::LoadFailed { class, why } => {
                let then = match class {
                    ErrorClass::Permanent => Then::Fail(Failure::Permanent { why }),
                    ErrorClass::MayPass => Then::Recover(DeathCause::LoadFailed { why }),
                };
                stay(await_end(now, generation, then))
            }
            WorkerEvent::SocketClosed { why } => {
                stay(await_end(now, generation, Then::Recover(DeathCause::SocketClosed { why })))
            }
            WorkerEvent::Exited(exit) => self.exited(now, exit),
            // A heartbeat is not a step of the load: a loader that only says that it lives is hung all the same.
            WorkerEvent::HeartbeatSeen => stay(State::Starting(starting)),
        }
    }

    pub(super) fn step_ready(&mut self, now: Millis, ready: Ready, event: Event) -> Step {
        let generation = ready.generation;
        match event {
            Event::Worker { event, .. } => self.worker_of_ready(now, ready, event),
            Event::DrainAsked { deadline } => {
                let Ready { generation, since: ready_since, silent_until } = ready;
                stay(State::Draining(Draining { generation, deadline, silent_until, ready_since }))
            }
            Event::StopAsked => stop(now, generation, RequestsEnd::Stopped),
            Event::Tick if now >= ready.silent_until => (
                terminate(now, generation, Then::Recover(DeathCause::Hung)),
                vec![Action::ParkRequests, Action::SignalTerm],
            ),
            Event::Tick
            | Event::StartAsked
            | Event::Drained
            | Event::CheckPassed
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. } => stay(State::Ready(ready)),
        }
    }

    fn worker_of_ready(&mut self, now: Millis, mut ready: Ready, event: WorkerEvent) -> Step {
        match event {
            WorkerEvent::HeartbeatSeen => {
                ready.silent_until = now.saturating_add(limits::HEARTBEAT_SILENCE);
                stay(State::Ready(ready))
            }
            WorkerEvent::SocketClosed { why } => {
                let then = Then::Recover(DeathCause::SocketClosed { why });
                (await_end(now, ready.generation, then), vec![Action::ParkRequests])
            }
            WorkerEvent::Exited(exit) => {
                let (state, mut actions) = self.exited(now, exit);
                actions.insert(0, Action::ParkRequests);
                (state, actions)
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

    pub(super) fn step_draining(now: Millis, draining: Draining, event: Event) -> Step {
        let generation = draining.generation;
        match event {
            Event::Worker { event, .. } => worker_of_draining(now, draining, &event),
            Event::StartAsked => {
                let Draining { generation, silent_until, ready_since: since, .. } = draining;
                stay(State::Ready(Ready { generation, since, silent_until }))
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
            Event::Tick | Event::CheckPassed | Event::CheckRefused { .. } | Event::CheckFailed { .. } => {
                stay(State::Draining(draining))
            }
        }
    }

    pub(super) fn step_stopping(&mut self, now: Millis, stopping: Stopping, event: Event) -> Step {
        match event {
            Event::Worker { event, .. } => self.worker_of_stopping(now, stopping, &event),
            Event::StopAsked | Event::DrainAsked { .. } => {
                let actions = vec![Action::FailRequests(RequestsEnd::Stopped)];
                (State::Stopping(Stopping { then: Then::Rest, ..stopping }), actions)
            }
            Event::StartAsked => {
                let then = match stopping.then {
                    Then::Rest | Then::Restart | Then::Fail(_) => Then::Restart,
                    Then::Recover(cause) => Then::Recover(cause), // another one comes, after the pause that it earned
                };
                stay(State::Stopping(Stopping { then, ..stopping }))
            }
            Event::Tick => harder(now, stopping),
            Event::Drained | Event::CheckPassed | Event::CheckRefused { .. } | Event::CheckFailed { .. } => {
                stay(State::Stopping(stopping))
            }
        }
    }

    fn worker_of_stopping(&mut self, now: Millis, stopping: Stopping, event: &WorkerEvent) -> Step {
        match event {
            WorkerEvent::Spawned if stopping.phase == StopPhase::AwaitingSpawn => {
                (terminate(now, stopping.generation, stopping.then), vec![Action::SignalTerm])
            }
            // The socket is the first to tell of a crash, the exit tells what kind it was.
            WorkerEvent::Exited(exit)
                if *exit != Exit::Code(0)
                    && matches!(stopping.then, Then::Recover(DeathCause::SocketClosed { .. })) =>
            {
                self.exited(now, *exit)
            }
            WorkerEvent::Exited(_) | WorkerEvent::SpawnFailed { .. } => match stopping.then {
                Then::Rest => stay(State::Absent),
                Then::Restart => look(),
                Then::Recover(cause) => self.recover(now, cause),
                Then::Fail(failure) => fail(now, failure),
            },
            WorkerEvent::Spawned
            | WorkerEvent::Hello
            | WorkerEvent::Loading { .. }
            | WorkerEvent::Ready
            | WorkerEvent::LoadFailed { .. }
            | WorkerEvent::HeartbeatSeen
            | WorkerEvent::SocketClosed { .. } => stay(State::Stopping(stopping)),
        }
    }

    pub(super) fn step_backoff(now: Millis, until: Millis, event: &Event) -> Step {
        match event {
            Event::StartAsked => look(),
            Event::Tick if now >= until => look(),
            Event::StopAsked | Event::DrainAsked { .. } => rest(),
            Event::Tick
            | Event::Drained
            | Event::CheckPassed
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. } => stay(State::Backoff { until }),
        }
    }

    pub(super) fn step_failed(&mut self, now: Millis, failure: Failure, event: &Event) -> Step {
        match event {
            // The deaths that are left in the window still count: one more is the end of this try.
            Event::Tick if matches!(failure, Failure::BudgetSpent { until, .. } if now >= until) => look(),
            Event::StartAsked => {
                self.deaths.clear(); // somebody looked at it and wants another try: a whole budget
                look()
            }
            Event::StopAsked | Event::DrainAsked { .. } => stay(State::Absent),
            Event::Drained
            | Event::CheckPassed
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. }
            | Event::Tick => stay(State::Failed(failure)),
        }
    }

    /// A worker ended and nobody had asked it to.
    fn exited(&mut self, now: Millis, exit: Exit) -> Step {
        match exit.permanent() {
            Some(meaning) => fail(now, Failure::Permanent { why: format!("the worker {exit}: {meaning}") }),
            None => self.recover(now, DeathCause::Exited(exit)),
        }
    }
}

fn worker_of_draining(now: Millis, mut draining: Draining, event: &WorkerEvent) -> Step {
    match event {
        WorkerEvent::HeartbeatSeen => {
            draining.silent_until = now.saturating_add(limits::HEARTBEAT_SILENCE);
            stay(State::Draining(draining))
        }
        // No new worker for the last answers: the daemon is on its way out.
        WorkerEvent::Exited(_) => rest(),
        WorkerEvent::SocketClosed { .. } => {
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
fn stay(state: State) -> Step {
    (state, Vec::new())
}

/// The plan is made anew, also after a death: the same plan may be what it died of.
fn look() -> Step {
    let checking = Checking { phase: CheckPhase::Looking, refusal: None, patience: Patience::Full };
    (State::Checking(checking), vec![Action::Look])
}

/// Looks again after a refusal; requests that have waited for room long enough are failed.
fn look_again(now: Millis, checking: Checking) -> Step {
    let why = checking.refusal.clone().unwrap_or_default();
    let (patience, mut actions) = match checking.patience {
        Patience::Until(until) if now >= until => {
            let retry_after = Some(limits::NOT_READY_RETRY_AFTER);
            (Patience::Spent, vec![Action::FailRequests(RequestsEnd::NotReady { why, retry_after })])
        }
        Patience::Full | Patience::Until(_) | Patience::Spent => (checking.patience, Vec::new()),
    };
    actions.push(Action::Look);
    (State::Checking(Checking { phase: CheckPhase::Looking, patience, ..checking }), actions)
}

/// No worker, and nobody to serve the requests that are left.
fn rest() -> Step {
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
        (StartPhase::AwaitingHello | StartPhase::Loading { .. }, Then::Rest | Then::Restart | Then::Fail(_)) => {
            (await_end(now, generation, then), vec![Action::SendStop])
        }
    }
}

/// What a start that is late died of.
fn overdue(now: Millis, starting: &Starting) -> Option<DeathCause> {
    if now >= starting.load_until {
        return Some(DeathCause::LoadTooLong);
    }
    if now < starting.silent_until {
        return None;
    }
    match starting.phase {
        StartPhase::Spawning | StartPhase::AwaitingHello => Some(DeathCause::NoHello),
        StartPhase::Loading { .. } => Some(DeathCause::LoadStalled),
    }
}

/// A start that says where it is. Only bytes that were not there before move the deadline.
fn progress(now: Millis, starting: Starting, done_bytes: u64, total_bytes: u64) -> Starting {
    let (before_bytes, is_further) = match starting.phase {
        StartPhase::Spawning | StartPhase::AwaitingHello => (0, true),
        StartPhase::Loading { done_bytes: before_bytes, .. } => (before_bytes, done_bytes > before_bytes),
    };
    let silent_until = match is_further {
        true => now.saturating_add(limits::LOAD_SILENCE),
        false => starting.silent_until,
    };
    let phase = StartPhase::Loading { done_bytes: done_bytes.max(before_bytes), total_bytes };
    Starting { phase, silent_until, ..starting }
}

/// The next stronger means, once the time of the last one is over.
fn harder(now: Millis, stopping: Stopping) -> Step {
    match stopping.phase {
        StopPhase::StopSent { until } if now >= until => {
            (terminate(now, stopping.generation, stopping.then), vec![Action::SignalTerm])
        }
        StopPhase::TermSent { until } if now >= until => {
            (State::Stopping(Stopping { phase: StopPhase::KillSent, ..stopping }), vec![Action::SignalKill])
        }
        StopPhase::AwaitingSpawn | StopPhase::StopSent { .. } | StopPhase::TermSent { .. } | StopPhase::KillSent => {
            stay(State::Stopping(stopping))
        }
    }
}
