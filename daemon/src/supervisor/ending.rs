//! A worker's end has two halves: its socket closes, and its process is collected. The order is the kernel's.
//!
//! What it had said before must be heard first, and how it died is more telling than that its socket closed: so the first
//! half waits for the other a little, then is told alone.

use plimsoll_config::limits::END_HALVES_APART;
use plimsoll_config::units::Millis;
use plimsoll_decide::lifecycle::WorkerEvent;
use plimsoll_decide::lifecycle::death::{Exit, Traces};

/// What is known of the end so far.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    socket: Half<String>,
    process: Half<(Exit, Traces)>,
}

/// One half.
#[derive(Debug, Default)]
enum Half<T> {
    /// Not yet.
    #[default]
    Pending,
    /// It came, and has not been told.
    Came(T, Millis),
    /// It was told.
    Told,
}

impl Ending {
    /// Everything that the worker said has been heard.
    pub(crate) fn socket_closed(&mut self, now: Millis, why: String) {
        if matches!(self.socket, Half::Pending) {
            self.socket = Half::Came(why, now.saturating_add(END_HALVES_APART));
        }
    }

    /// The process is gone and collected, and has left these traces.
    pub(crate) fn exited(&mut self, now: Millis, exit: Exit, traces: Traces) {
        if matches!(self.process, Half::Pending) {
            self.process = Half::Came((exit, traces), now.saturating_add(END_HALVES_APART));
        }
    }

    /// When to look again, if nothing comes before.
    pub(crate) fn next_wake(&self) -> Option<Millis> {
        match (&self.socket, &self.process) {
            (Half::Came(_, until), Half::Pending) | (Half::Pending, Half::Came(_, until)) => Some(*until),
            (Half::Pending | Half::Told | Half::Came(..), Half::Pending | Half::Told | Half::Came(..)) => None,
        }
    }

    /// What can be told now. After [`WorkerEvent::Exited`] there is nothing more.
    pub(crate) fn tell(&mut self, now: Millis) -> Option<WorkerEvent> {
        let overdue = self.next_wake().is_some_and(|until| now >= until);
        match (&self.socket, &self.process) {
            (Half::Came(..) | Half::Told, Half::Came(end, _)) => Some(self.told(end.clone())),
            (Half::Pending, Half::Came(end, _)) if overdue => Some(self.told(end.clone())),
            (Half::Came(why, _), Half::Pending) if overdue => {
                let why = why.clone();
                self.socket = Half::Told;
                Some(WorkerEvent::SocketClosed { why })
            }
            (Half::Pending | Half::Came(..) | Half::Told, Half::Pending | Half::Came(..) | Half::Told) => None,
        }
    }

    fn told(&mut self, (exit, traces): (Exit, Traces)) -> WorkerEvent {
        (self.socket, self.process) = (Half::Told, Half::Told);
        WorkerEvent::Exited { exit, traces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIED: Exit = Exit::Signal(9);
    const AT: Millis = Millis(1000);

    fn exited() -> WorkerEvent {
        WorkerEvent::Exited { exit: DIED, traces: Traces::default() }
    }

    #[test]
    fn both_halves_in_either_order_are_told_as_the_exit() {
        for socket_first in [true, false] {
            let mut ending = Ending::default();
            if socket_first {
                ending.socket_closed(AT, "closed".into());
            } else {
                ending.exited(AT, DIED, Traces::default());
            }
            assert_eq!(ending.tell(AT), None);
            assert_eq!(ending.next_wake(), Some(AT.saturating_add(END_HALVES_APART)));
            if socket_first {
                ending.exited(AT, DIED, Traces::default());
            } else {
                ending.socket_closed(AT, "closed".into());
            }
            assert_eq!(ending.tell(AT), Some(exited()));
            assert_eq!((ending.tell(AT), ending.next_wake()), (None, None));
        }
    }

    #[test]
    fn a_socket_that_closed_alone_is_told_after_the_wait_and_the_exit_later() {
        let mut ending = Ending::default();
        ending.socket_closed(AT, "closed".into());
        let late = AT.saturating_add(END_HALVES_APART);
        assert_eq!(ending.tell(late), Some(WorkerEvent::SocketClosed { why: "closed".into() }));
        assert_eq!((ending.tell(late), ending.next_wake()), (None, None));
        ending.exited(late, DIED, Traces::default());
        assert_eq!(ending.tell(late), Some(exited()));
    }

    #[test]
    fn an_exit_alone_is_told_after_the_wait() {
        let mut ending = Ending::default();
        ending.exited(AT, DIED, Traces::default());
        assert_eq!(ending.tell(AT.saturating_add(END_HALVES_APART)), Some(exited()));
    }
}
