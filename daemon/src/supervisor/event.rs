//! All that can wake the supervisor, in one enum.

use std::io;

use plimsoll_config::units::Millis;
use plimsoll_decide::admission::{DenyReason, RequestId};
use plimsoll_decide::lifecycle::Generation;
use plimsoll_wire::FromWorker;
use tokio::sync::oneshot;

use super::Ticket;
use crate::actuate::spawn::Spawned;
use crate::journal::Order;
use crate::plan::Verdict;

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request with its counted prompt; the reply is a ticket or a refusal.
    Submit {
        /// What to run.
        order: Order,
        /// Who asks.
        reply: oneshot::Sender<Result<Ticket, DenyReason>>,
    },
    /// Nobody waits for this request any more. Comes for every ticket, also after its end.
    Dropped(RequestId),
    /// The machine was looked at.
    Looked(Verdict),
    /// A worker was started, or not.
    Spawned {
        /// Its number.
        generation: Generation,
        /// The process.
        result: io::Result<Spawned>,
    },
    /// A worker said something.
    Frame {
        /// Which one.
        generation: Generation,
        /// What.
        message: FromWorker,
    },
    /// A worker's socket has ended.
    Closed {
        /// Which one.
        generation: Generation,
        /// How.
        why: String,
    },
    /// The memory of a worker that is gone was waited for.
    Release {
        /// Which one it was.
        generation: Generation,
        /// What has not come back, for a person; `None`: nothing.
        held: Option<String>,
    },
    /// A child process changed its state.
    ChildSignal,
    /// End: take nothing new, let what runs end until `deadline`.
    Drain {
        /// A point of the daemon's clock.
        deadline: Millis,
    },
    /// End now.
    StopNow,
    /// A moment that somebody waited for has come.
    Tick,
}
