//! Frames between the daemon and the worker, over an inherited socket pair.
//!
//! A frame is a little-endian `u32` length followed by that many bytes of JSON. Both sides use [`encode`] and [`Decoder`];
//! neither does I/O here. Token ids come in, token ids go out: no text crosses.
//!
//! ```text
//! daemon  Start ─────────────►  worker
//!         ◄──── Hello, Loading…, Ready | LoadFailed
//!         Submit, Cancel ────►
//!         ◄──── Progress…, Tokens…, then exactly one of Done | Failed per request
//!         ◄──── Heartbeat (between steps and while idle)
//!         Stop ──────────────►  exit 0
//! ```
//! End of file on the socket ends the worker, whatever it is doing. A frame that does not parse, or is too long, ends the
//! connection: the two binaries come from one build and [`WIRE_VERSION`] says so.

pub mod frame;
pub mod message;

pub use frame::{Decoder, FrameError, encode};
pub use message::{
    FailureClass, Finish, FromWorker, Heartbeat, LoadErrorClass, Ready, Sampling, Start, Submit, Timing, ToWorker,
};

/// Raised with every change of a message. The worker refuses a daemon of another version.
pub const WIRE_VERSION: u32 = 1;
