//! A worker's life on a clock of its own.

use plimsoll_config::units::Millis;
use plimsoll_decide::lifecycle::{Action, Event, Lifecycle, State, WorkerEvent};

/// A life with its clock.
pub(crate) struct Story {
    pub(crate) life: Lifecycle,
    pub(crate) now: Millis,
}

impl Story {
    pub(crate) fn new() -> Story {
        Story { life: Lifecycle::new(), now: Millis(1_000_000) }
    }

    pub(crate) fn ready() -> Story {
        let mut story = Story::new();
        story.become_ready();
        story
    }

    pub(crate) fn become_ready(&mut self) {
        if self.life.state() == &State::Absent {
            self.tell(Event::StartAsked);
        }
        self.tell(Event::CheckPassed);
        for event in [WorkerEvent::Spawned, WorkerEvent::Hello, WorkerEvent::Ready] {
            self.worker(event);
        }
        assert_eq!(self.life.state().name(), "ready");
    }

    pub(crate) fn tell(&mut self, event: Event) -> Vec<Action> {
        self.life.step(self.now, event)
    }

    pub(crate) fn worker(&mut self, event: WorkerEvent) -> Vec<Action> {
        let generation = self.life.state().generation().expect("there is a worker");
        self.tell(Event::Worker { generation, event })
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
