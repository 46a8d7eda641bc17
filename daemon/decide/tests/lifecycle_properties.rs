//! What holds for the worker's life whatever happens: a world that keeps the rules of processes, and nothing else, drives
//! the machine at random.

use std::collections::VecDeque;

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::Gate;
use plimsoll_decide::lifecycle::death::{Exit, OomAccount, OomKills, Traces};
use plimsoll_decide::lifecycle::{
    Action, ErrorClass, Event, Generation, Lifecycle, Next, PlanId, State, StopPhase, WorkerEvent,
};
use plimsoll_decide::plan::Caps;
use proptest::prelude::*;

/// What the world may do next.
#[derive(Debug, Clone)]
enum Op {
    Tell(Event),
    Drain {
        span: Millis,
    },
    Wait {
        span: Millis,
    },
    /// Sleep to the next wake, as the daemon does.
    Sleep,
    /// Wake a moment too early: nothing may happen.
    WakeEarly,
    /// One of a few plans fits.
    Passes {
        plan: u64,
    },
    /// The memory of the worker that is gone is back, or is not in time.
    Release {
        is_back: bool,
    },
    /// The current worker does something.
    Worker(WorkerEvent),
    /// A worker that is gone does something.
    Stale(WorkerEvent),
}

fn any_worker_event() -> impl Strategy<Value = WorkerEvent> {
    let class = prop::sample::select(vec![ErrorClass::MayPass, ErrorClass::MayPass, ErrorClass::Permanent]);
    let exit =
        prop::sample::select(vec![Exit::Code(0), Exit::Code(1), Exit::Code(6), Exit::Signal(9), Exit::Signal(11)]);
    let account = prop::sample::select(vec![OomAccount::Host, OomAccount::Vram]);
    let traces = prop::sample::select(vec![
        Traces::default(),
        Traces { oom_kills: Some(OomKills { before: 3, after: 4 }), ..Traces::default() },
        Traces { xid: Some(79), ..Traces::default() },
    ]);
    let why = "why".to_owned();
    prop_oneof![
        4 => Just(WorkerEvent::Spawned),
        3 => Just(WorkerEvent::Hello),
        3 => (0..100u64).prop_map(|done_bytes| WorkerEvent::Loading { done_bytes, total_bytes: 100 }),
        5 => Just(WorkerEvent::Ready),
        2 => Just(WorkerEvent::HeartbeatSeen),
        1 => class.clone().prop_map(|class| WorkerEvent::LoadFailed { class, why: "why".to_owned() }),
        1 => class.prop_map(|class| WorkerEvent::SpawnFailed { class, why: "why".to_owned() }),
        1 => Just(WorkerEvent::SocketClosed { why }),
        1 => account.prop_map(|account| WorkerEvent::Exhausted { account, why: "why".to_owned() }),
        4 => (exit, traces).prop_map(|(exit, traces)| WorkerEvent::Exited { exit, traces }),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let spans = [1, 300, 5000, 20_000, 61_000, 700_000, 2_000_000].map(Millis).to_vec();
    let why = || "why".to_owned();
    prop_oneof![
        4 => Just(Op::Tell(Event::StartAsked)),
        1 => Just(Op::Tell(Event::StopAsked)),
        1 => Just(Op::Tell(Event::Drained)),
        1 => any::<bool>().prop_map(|at_once| Op::Tell(Event::RestartAsked { at_once })),
        6 => (0..4u64).prop_map(|plan| Op::Passes { plan }),
        6 => any::<bool>().prop_map(|is_back| Op::Release { is_back }),
        2 => Just(Op::Tell(Event::CheckRefused { why: why() })),
        1 => Just(Op::Tell(Event::CheckFailed { why: why() })),
        1 => prop::sample::select(spans.clone()).prop_map(|span| Op::Drain { span }),
        4 => prop::sample::select(spans).prop_map(|span| Op::Wait { span }),
        6 => Just(Op::Sleep),
        2 => Just(Op::WakeEarly),
        20 => any_worker_event().prop_map(Op::Worker),
        1 => any_worker_event().prop_map(Op::Stale),
    ]
}

/// The processes, as they are outside.
struct World {
    life: Lifecycle,
    now: Millis,
    /// The worker that was ordered and is not gone, and whether its process exists yet.
    process: Option<(Generation, bool)>,
    term_sent_at: Option<Millis>,
    kill_sent: bool,
    /// The step that is taken may kill at once: the machine can't wait.
    is_pressing: bool,
    /// Nothing may be started: a stop was asked for, and no start after it.
    is_stopped: bool,
    /// Requests may be in: the gate let some in, and nothing ended them since.
    may_have_requests: bool,
    spawned_at: VecDeque<Millis>,
    /// Whose memory is awaited.
    releasing: Option<Generation>,
    /// The plan that the next worker is on, and the one that the worker is on.
    passed: PlanId,
    plan: PlanId,
    /// Plans that ran out of memory since somebody asked last, and when.
    exhausted: Vec<(PlanId, Millis)>,
    n_plans: u64,
    learned_is_stored: bool,
    /// The worker that was ordered last has served.
    has_served: bool,
}

/// What of any plan may be lowered.
fn ours() -> Caps {
    Caps { n_ctx: Some(Tokens(4096)), gpu_layers: Some(2), ..Caps::default() }
}

impl World {
    fn new() -> World {
        World {
            life: Lifecycle::new(),
            now: Millis(0),
            process: None,
            term_sent_at: None,
            kill_sent: false,
            is_pressing: false,
            is_stopped: true,
            may_have_requests: false,
            spawned_at: VecDeque::new(),
            releasing: None,
            passed: PlanId(0),
            plan: PlanId(0),
            exhausted: Vec::new(),
            n_plans: 100,
            learned_is_stored: true,
            has_served: false,
        }
    }

    fn passes(&mut self, plan: PlanId) -> Result<(), TestCaseError> {
        self.passed = plan;
        self.tell(Event::CheckPassed { plan, ours: ours() })
    }

    fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Tell(event) => self.tell(event),
            Op::Drain { span } => self.tell(Event::DrainAsked { deadline: self.now.saturating_add(span) }),
            Op::Wait { span } => {
                self.now = self.now.saturating_add(span);
                self.tell(Event::Tick)
            }
            Op::Sleep => match self.life.next_wake() {
                None => Ok(()),
                Some(at) => {
                    self.now = self.now.max(at);
                    self.tell(Event::Tick)
                }
            },
            Op::WakeEarly => {
                let before = self.life.clone();
                let early = self.life.next_wake().map_or(self.now, |at| Millis(at.0.saturating_sub(1)));
                self.now = self.now.max(early);
                if self.life.next_wake().is_none_or(|at| self.now < at) {
                    let actions = self.life.step(self.now, Event::Tick);
                    prop_assert!(
                        actions.is_empty() && self.life == before,
                        "{actions:?} before {:?}",
                        before.next_wake()
                    );
                }
                Ok(())
            }
            Op::Passes { plan } => self.passes(PlanId(plan)),
            Op::Release { is_back } => self.release(is_back),
            Op::Worker(event) => self.worker(event),
            Op::Stale(event) => {
                let before = self.life.clone();
                let generation = Generation(self.life.n_spawns() + 1);
                let actions = self.life.step(self.now, Event::Worker { generation, event });
                prop_assert!(actions.is_empty() && self.life == before);
                Ok(())
            }
        }
    }

    /// The current worker does something, if a process could.
    fn worker(&mut self, event: WorkerEvent) -> Result<(), TestCaseError> {
        let Some((generation, exists)) = self.process else { return Ok(()) };
        let (is_possible, after) = match &event {
            WorkerEvent::Spawned => (!exists, Some((generation, true))),
            WorkerEvent::SpawnFailed { .. } => (!exists, None),
            WorkerEvent::Exited { .. } => (exists, None),
            WorkerEvent::Hello
            | WorkerEvent::Loading { .. }
            | WorkerEvent::Ready
            | WorkerEvent::LoadFailed { .. }
            | WorkerEvent::Exhausted { .. }
            | WorkerEvent::HeartbeatSeen
            | WorkerEvent::SocketClosed { .. } => (exists, self.process),
        };
        if !is_possible {
            return Ok(());
        }
        self.process = after;
        let is_end = matches!(event, WorkerEvent::Exited { .. });
        self.tell(Event::Worker { generation, event })?;
        prop_assert!(!is_end || self.releasing == Some(generation), "its memory is not awaited");
        Ok(())
    }

    fn release(&mut self, is_back: bool) -> Result<(), TestCaseError> {
        let Some(generation) = self.releasing else { return Ok(()) };
        let before = self.life.clone();
        let stale = Event::Released { generation: Generation(generation.0 + 1) };
        prop_assert!(self.life.step(self.now, stale).is_empty() && self.life == before, "somebody else's memory");
        self.tell(match is_back {
            true => Event::Released { generation },
            false => Event::ReleaseTimedOut { generation, held: "12 MiB".to_owned() },
        })?;
        prop_assert_eq!(self.releasing, None);
        Ok(())
    }

    /// Takes one step and checks what it asks for.
    fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        let was_draining = self.life.state().name() == "draining";
        let steps_before = self.life.learned().steps.clone();
        self.learned_is_stored = false;
        self.is_pressing = matches!(event, Event::RestartAsked { at_once: true });
        match &event {
            Event::StartAsked => {
                self.is_stopped = false;
                let is_given_up = match self.life.state() {
                    State::Absent | State::Failed(_) => true,
                    State::Releasing(releasing) => matches!(releasing.next, Next::Fail(_)),
                    _ => false,
                };
                if is_given_up {
                    self.exhausted.clear(); // somebody wants the same plan again
                }
            }
            Event::StopAsked | Event::DrainAsked { .. } => self.is_stopped = true,
            Event::Drained if was_draining => self.may_have_requests = false,
            Event::Drained
            | Event::RestartAsked { .. }
            | Event::CheckPassed { .. }
            | Event::CheckRefused { .. }
            | Event::CheckFailed { .. }
            | Event::Worker { .. }
            | Event::Released { .. }
            | Event::ReleaseTimedOut { .. }
            | Event::Tick => {}
        }
        let actions = self.life.step(self.now, event);
        if self.life.state().name() != "releasing" {
            self.releasing = None;
        }
        for action in actions {
            self.obey(action)?;
        }
        prop_assert!(self.learned_is_stored || self.life.learned().steps == steps_before);
        prop_assert!(self.life.learned().steps.len() <= limits::MAX_LEARNED_STEPS);
        self.check_state()
    }

    fn obey(&mut self, action: Action) -> Result<(), TestCaseError> {
        let exists = self.process.is_some_and(|(_, exists)| exists);
        match action {
            Action::Look { caps, fallback } => {
                prop_assert!(!self.is_stopped, "looks after a stop");
                prop_assert!(self.process.is_none() && self.releasing.is_none(), "looks while memory is on its way");
                prop_assert_eq!(caps, self.life.learned().caps());
                prop_assert_ne!(fallback, Some(self.plan), "falls back to the plan that did not come up");
            }
            Action::AwaitRelease(generation) => {
                prop_assert!(self.process.is_none());
                self.releasing = Some(generation);
            }
            Action::Died { class, had_served } => {
                prop_assert!(!class.to_string().is_empty());
                prop_assert_eq!(had_served, self.has_served);
                if class.oom().is_some() {
                    self.exhausted.push((self.plan, self.now));
                }
            }
            Action::StoreLearned => self.learned_is_stored = true,
            Action::Spawn(generation) => {
                let is_barred =
                    |(plan, at): &(PlanId, Millis)| *plan == self.passed && self.now.since(*at) < limits::LEARNED_CALM;
                prop_assert!(!self.exhausted.iter().any(is_barred), "a plan that ran out of memory is tried again");
                self.plan = self.passed;
                self.has_served = false;
                prop_assert!(!self.is_stopped, "spawns after a stop");
                prop_assert!(self.process.is_none(), "two workers");
                self.process = Some((generation, false));
                self.spawned_at.push_back(self.now);
                self.term_sent_at = None;
                self.kill_sent = false;
            }
            Action::SendStop => prop_assert!(exists && self.term_sent_at.is_none()),
            Action::SignalTerm => {
                prop_assert!(exists && self.term_sent_at.is_none(), "signals nobody, or twice");
                self.term_sent_at = Some(self.now);
            }
            Action::SignalKill => {
                let since_term = self.term_sent_at.map(|at| self.now.since(at));
                prop_assert!(exists && !self.kill_sent);
                let had_time = since_term.is_some_and(|span| span >= limits::TERM_GRACE);
                prop_assert!(had_time || self.is_pressing, "killed after {:?}", since_term);
                self.kill_sent = true;
            }
            Action::ParkRequests => prop_assert!(!self.is_stopped),
            Action::ResubmitRequests => prop_assert_eq!(self.life.gate(self.now), Gate::Open),
            Action::FailRequests(end) => {
                prop_assert!(!end.to_string().is_empty());
                self.may_have_requests = false;
            }
        }
        Ok(())
    }

    fn check_state(&mut self) -> Result<(), TestCaseError> {
        if !matches!(self.life.gate(self.now), Gate::Closed(_)) {
            self.may_have_requests = true;
        }
        let state = self.life.state();
        prop_assert_eq!(state.generation(), self.process.map(|(generation, _)| generation), "{:?}", state);
        prop_assert!(!self.life.sentence().is_empty());
        match state {
            State::Absent | State::Failed(_) => {
                prop_assert!(!self.may_have_requests, "forgotten requests in {:?}", state);
            }
            State::Ready(ready) => {
                self.has_served = true;
                prop_assert!(self.life.gate(self.now) == Gate::Open);
                prop_assert!(ready.since <= self.now);
            }
            State::Checking(_)
            | State::Starting(_)
            | State::Draining(_)
            | State::Stopping(_)
            | State::Releasing(_)
            | State::Backoff { .. } => prop_assert!(self.life.gate(self.now) != Gate::Open),
        }
        Ok(())
    }

    /// One step of a world in which everything works: checks pass, workers come up, and end when they are told to.
    fn help(&mut self) -> Result<(), TestCaseError> {
        match self.life.state().clone() {
            State::Checking(_) => {
                self.n_plans += 1;
                self.passes(PlanId(self.n_plans))
            }
            State::Starting(_) => {
                self.worker(WorkerEvent::Spawned)?;
                self.worker(WorkerEvent::Ready)
            }
            State::Stopping(stopping) if stopping.phase == StopPhase::AwaitingSpawn => {
                self.worker(WorkerEvent::Spawned)
            }
            State::Stopping(_) => self.worker(exited(Exit::Code(0))),
            State::Releasing(_) => self.release(true),
            State::Backoff { .. } => self.run(Op::Sleep),
            State::Absent | State::Ready(_) | State::Draining(_) | State::Failed(_) => Ok(()),
        }
    }

    /// One step of a world in which workers obey nothing but SIGKILL, and nobody knows about memory.
    fn resist(&mut self) -> Result<(), TestCaseError> {
        match self.life.state().clone() {
            State::Stopping(stopping) => match stopping.phase {
                StopPhase::AwaitingSpawn => self.worker(WorkerEvent::Spawned),
                StopPhase::StopSent { .. } | StopPhase::TermSent { .. } => self.run(Op::Sleep),
                StopPhase::KillSent => self.worker(exited(Exit::Signal(9))),
            },
            State::Releasing(_) => self.run(Op::Sleep), // nobody answers
            State::Absent
            | State::Checking(_)
            | State::Starting(_)
            | State::Ready(_)
            | State::Draining(_)
            | State::Backoff { .. }
            | State::Failed(_) => Ok(()),
        }
    }
}

fn exited(exit: Exit) -> WorkerEvent {
    WorkerEvent::Exited { exit, traces: Traces::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn one_worker_at_most_ended_gently_and_no_request_forgotten(ops in prop::collection::vec(any_op(), 0..120)) {
        let mut world = World::new();
        for op in ops {
            world.run(op)?;
        }
    }

    #[test]
    fn a_stop_always_ends(ops in prop::collection::vec(any_op(), 0..60)) {
        let mut world = World::new();
        for op in ops {
            world.run(op)?;
        }
        world.tell(Event::StopAsked)?;
        for _ in 0..5 {
            world.resist()?;
        }
        prop_assert_eq!(world.life.state(), &State::Absent);
        prop_assert_eq!(world.process, None);
    }

    #[test]
    fn a_start_always_serves_in_a_world_that_works(ops in prop::collection::vec(any_op(), 0..60)) {
        let mut world = World::new();
        for op in ops {
            world.run(op)?;
        }
        world.tell(Event::StartAsked)?;
        for _ in 0..8 {
            world.help()?;
        }
        // A loss that was on its way out at the start may have been the last of its budget.
        prop_assert!(matches!(world.life.state(), State::Ready(_) | State::Failed(_)), "{:?}", world.life.state());
    }

    #[test]
    fn the_budget_bounds_the_spawns(
        spans in prop::collection::vec(0..200_000u64, 1..200),
        deaths in prop::collection::vec(0..4usize, 200),
    ) {
        let mut world = World::new();
        world.tell(Event::StartAsked)?;
        for (span, death) in spans.into_iter().zip(deaths) {
            for _ in 0..3 {
                world.help()?;
            }
            world.now = world.now.saturating_add(Millis(span));
            match death {
                0 => world.worker(exited(Exit::Signal(9)))?,
                1 => world.worker(WorkerEvent::SocketClosed { why: "why".to_owned() })?,
                2 => world.worker(WorkerEvent::HeartbeatSeen)?,
                _ => world.tell(Event::Tick)?,
            }
            let in_window = |at: &&Millis| world.now.since(**at) < limits::DEATH_WINDOW;
            let n_spawns = world.spawned_at.iter().filter(in_window).count();
            prop_assert!(n_spawns <= limits::MAX_DEATHS_IN_WINDOW, "{} spawns in one window", n_spawns);
        }
    }
}
