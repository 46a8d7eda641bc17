//! The worker's supervisor: one task owns the worker, its life, the admission and the journal; others send it events.
//!
//! `decide` says what to do ([`plimsoll_decide::lifecycle`], [`plimsoll_decide::admission`]); `owner` and `life` carry it out
//! through [`crate::actuate`]. It never waits for a client, a disk or a child inside its loop.
//!
//! ```text
//! http ──Submit, Dropped──►┌───────┐──Start, Submit, Cancel, Stop──► worker
//! signals ──Drain, StopNow►│ owner │◄──frames, end of the socket──── worker
//! plan ──Looked───────────►└───────┘──journal (watch)──► answers     SIGCHLD
//! ```

mod ending;
mod event;
mod frames;
mod life;
mod link;
mod owner;
mod plans;
mod release;
mod requests;

use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::{DenyReason, RequestId};
use tokio::sync::{mpsc, oneshot, watch};

use self::event::Event;
pub(crate) use self::owner::{Setup, start};
use crate::journal::{Order, Progress};

/// The way to the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    events: mpsc::Sender<Event>,
    status: watch::Receiver<Status>,
}

/// What the rest of the daemon may know about the worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Requests run now.
    pub(crate) ready: bool,
    /// One word.
    pub(crate) state: &'static str,
    /// One sentence.
    pub(crate) reason: String,
    /// When the last frame of a ready worker came.
    pub(crate) heard: Option<Millis>,
    /// Context of one session in force, in tokens; none before the first plan.
    pub(crate) n_ctx: Option<Tokens>,
    /// What computes, in the worker's words; empty before it is ready.
    pub(crate) backend: String,
    /// Time of the last load.
    pub(crate) load_ms: u64,
}

/// A request that was taken in. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// Its number.
    pub(crate) request: RequestId,
    /// The answer so far.
    pub(crate) progress: watch::Receiver<Progress>,
    _guard: Guard,
}

/// Tells the supervisor when nobody waits any more. The channel has no bound of its own: each ticket sends one number, and
/// the admission bounds the tickets.
#[derive(Debug)]
struct Guard {
    request: RequestId,
    dropped: mpsc::UnboundedSender<RequestId>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.dropped.send(self.request); // the supervisor may have ended before
    }
}

impl Handle {
    /// Offers a request.
    ///
    /// # Errors
    /// The admission's refusal.
    pub(crate) async fn submit(&self, order: Order) -> Result<Ticket, DenyReason> {
        let (reply, answer) = oneshot::channel();
        if self.events.send(Event::Submit { order, reply }).await.is_err() {
            return Err(DenyReason::Draining);
        }
        answer.await.unwrap_or(Err(DenyReason::Draining))
    }

    /// The worker's state now.
    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Follows the worker's state.
    pub(crate) fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Takes nothing new; what runs may end until `deadline` of the daemon's clock.
    pub(crate) async fn drain(&self, deadline: Millis) {
        drop(self.events.send(Event::Drain { deadline }).await);
    }

    /// Ends now.
    pub(crate) async fn stop_now(&self) {
        drop(self.events.send(Event::StopNow).await);
    }
}
