//! A worker's life on a clock of its own.

#![allow(dead_code, reason = "each file of tests tells its part")]

use plimsoll_config::units::{Bytes, Millis, Tokens};
use plimsoll_decide::lifecycle::death::{DeathClass, Exit, Traces};
use plimsoll_decide::lifecycle::{Action, Event, Lifecycle, PlanId, State, WorkerEvent};
use plimsoll_decide::plan::Caps;

/// A life with its clock.
pub(crate) struct Story {
    pub(crate) life: Lifecycle,
    pub(crate) now: Millis,
    /// The plan that the next look finds.
    pub(crate) plan: PlanId,
    /// Its knobs that may be lowered.
    pub(crate) ours: Caps,
    /// What workers died of.
    pub(crate) deaths: Vec<DeathClass>,
}

impl Story {
    pub(crate) fn new() -> Story {
        let ours = Caps { n_ctx: Some(Tokens(8192)), resident_budget: Some(Bytes::from_gib(32)), ..Caps::default() };
        Story { life: Lifecycle::new(), now: Millis(1_000_000), plan: PlanId(1), ours, deaths: Vec::new() }
    }

    pub(crate) fn ready() -> Story {
        let mut story = Story::new();
        story.become_ready();
        story
    }

    /// A worker exists and loads.
    pub(crate) fn starting() -> Story {
        let mut story = Story::new();
        story.tell(Event::StartAsked);
        story.passes();
        story.worker(WorkerEvent::Spawned);
        story
    }

    pub(crate) fn become_ready(&mut self) {
        if self.life.state() == &State::Absent {
            self.tell(Event::StartAsked);
        }
        self.passes();
        for event in [WorkerEvent::Spawned, WorkerEvent::Hello, WorkerEvent::Ready] {
            self.worker(event);
        }
        assert_eq!(self.life.state().name(), "ready");
    }

    /// The plan fits.
    pub(crate) fn passes(&mut self) -> Vec<Action> {
        self.tell(Event::CheckPassed { plan: self.plan, ours: self.ours })
    }

    pub(crate) fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.life.step(self.now, event);
        self.deaths.extend(actions.iter().filter_map(|action| match action {
            Action::Died { class, .. } => Some(class.clone()),
            _ => None,
        }));
        actions.retain(|action| !matches!(action, Action::Died { .. }));
        actions
    }

    /// The worker does something. When its process ends, its memory is awaited and is back at once.
    pub(crate) fn worker(&mut self, event: WorkerEvent) -> Vec<Action> {
        let generation = self.life.state().generation().expect("there is a worker");
        let is_end = matches!(event, WorkerEvent::Exited { .. });
        let mut actions = self.tell(Event::Worker { generation, event });
        if is_end {
            assert_eq!(actions.pop(), Some(Action::AwaitRelease(generation)));
            assert_eq!(self.life.state().name(), "releasing");
            actions.extend(self.tell(Event::Released { generation }));
        }
        actions
    }

    pub(crate) fn ends_with(&mut self, exit: Exit, traces: Traces) -> Vec<Action> {
        self.worker(WorkerEvent::Exited { exit, traces })
    }

    pub(crate) fn ends(&mut self, exit: Exit) -> Vec<Action> {
        self.ends_with(exit, Traces::default())
    }

    pub(crate) fn wait(&mut self, span: Millis) -> Vec<Action> {
        self.now = self.now.saturating_add(span);
        self.tell(Event::Tick)
    }

    /// Sleeps as the daemon does.
    pub(crate) fn sleep(&mut self) -> Vec<Action> {
        self.now = self.life.next_wake().expect("something is awaited");
        self.tell(Event::Tick)
    }

    #[track_caller]
    pub(crate) fn is(&self, name: &str) {
        assert_eq!(self.life.state().name(), name, "{:?}", self.life.state());
    }
}

/// Looks for a plan, with no limit learned.
pub(crate) fn look() -> Action {
    Action::Look { caps: Caps::default(), fallback: None }
}
