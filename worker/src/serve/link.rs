//! The worker's end of the socket: a thread that reads, and a writer that the job loop owns.
//!
//! The reading thread does the one thing that must not wait for anybody: when the socket ends, it ends the process, in the
//! middle of a load or a step too. Everything else it hands to the job loop through a bounded channel.

use crate::exit::ExitCode;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_config::limits::{HEARTBEAT_INTERVAL, WORKER_INBOX_MESSAGES, WORKER_WRITE_DEADLINE};
use plimsoll_wire::{Decoder, FromWorker, ToWorker, encode};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Silence after which a sign of life is due: early enough that a hand-over that comes late does not stretch the pause
/// beyond [`HEARTBEAT_INTERVAL`].
const QUIET: Duration = Duration::from_millis(HEARTBEAT_INTERVAL.0 * 4 / 5);

/// The daemon can't be written to any more. The process ends with [`ExitCode::NoDaemon`].
#[derive(Debug)]
pub struct DaemonGone(String);

impl std::fmt::Display for DaemonGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the daemon does not take frames any more: {}", self.0)
    }
}

/// What the job loop holds of the socket.
pub struct Link {
    socket: UnixStream,
    inbox: Receiver<ToWorker>,
    /// SIGTERM or SIGINT came.
    term: Arc<AtomicBool>,
    last_sent: Instant,
}

impl Link {
    /// Starts the reading thread. `term` is set by the signal handlers.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn open(socket: UnixStream, term: Arc<AtomicBool>) -> io::Result<Self> {
        socket.set_write_timeout(Some(Duration::from_millis(WORKER_WRITE_DEADLINE.0)))?;
        let reading = socket.try_clone()?;
        let (messages, inbox) = sync_channel(WORKER_INBOX_MESSAGES);
        thread::Builder::new().name("socket".into()).spawn(move || end_process(&read_all(reading, &messages)))?;
        Ok(Self { socket, inbox, term, last_sent: Instant::now() })
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// [`DaemonGone`] when the socket is closed, or the daemon has not read for [`WORKER_WRITE_DEADLINE`].
    pub fn send(&mut self, message: &FromWorker) -> Result<(), DaemonGone> {
        let frame = encode(message).map_err(|e| DaemonGone(e.to_string()))?;
        self.socket.write_all(&frame).map_err(|e| DaemonGone(e.to_string()))?;
        self.last_sent = Instant::now();
        Ok(())
    }

    /// Whether it is time for a sign of life.
    pub fn is_quiet(&self) -> bool {
        self.last_sent.elapsed() >= QUIET
    }

    /// Whether a signal asked for the end.
    pub fn term(&self) -> bool {
        self.term.load(Ordering::Relaxed)
    }

    /// The next message, if one is there.
    pub fn take(&self) -> Option<ToWorker> {
        self.inbox.try_recv().ok()
    }

    /// The next message, waiting until the next sign of life is due.
    pub fn wait(&self) -> Option<ToWorker> {
        let due = QUIET.saturating_sub(self.last_sent.elapsed());
        self.inbox.recv_timeout(due).ok()
    }
}

/// How reading ended.
enum ReadEnd {
    /// The daemon closed its end, or is dead.
    Closed,
    /// A frame is not one of this version, or reading failed.
    Broken(String),
}

/// Reads until the socket ends.
fn read_all(mut socket: UnixStream, messages: &SyncSender<ToWorker>) -> ReadEnd {
    let mut decoder = Decoder::default();
    let mut bytes = vec![0; 64 << 10];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return ReadEnd::Closed,
            Ok(n) => decoder.push(&bytes[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return ReadEnd::Closed,
            Err(e) => return ReadEnd::Broken(e.to_string()),
        }
        loop {
            match decoder.next_message::<ToWorker>() {
                Ok(Some(message)) => {
                    if let Err(end) = hand_over(&socket, messages, message) {
                        return end;
                    }
                }
                Ok(None) => break,
                Err(e) => return ReadEnd::Broken(e.to_string()),
            }
        }
    }
}

/// Gives a message to the job loop. While its inbox is full, the daemon has to wait, but its death is still noticed.
fn hand_over(socket: &UnixStream, messages: &SyncSender<ToWorker>, mut message: ToWorker) -> Result<(), ReadEnd> {
    loop {
        message = match messages.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(message)) => message,
            // The job loop has ended; so will the process.
            Err(TrySendError::Disconnected(_)) => return Ok(()),
        };
        // No event is asked for: the peer's end (POLLHUP) is always told.
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::from(10_u8)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Err(ReadEnd::Closed),
            Err(e) => return Err(ReadEnd::Broken(e.desc().to_owned())),
        }
    }
}

/// The end of the socket is the end of the worker, whatever the other threads are doing: they may be in a read of the disk
/// or a long step, and hold nothing that outlives the process.
#[expect(clippy::disallowed_methods, reason = "no guard of the job loop may delay the end when the daemon is dead")]
fn end_process(end: &ReadEnd) {
    let code = match end {
        ReadEnd::Closed => ExitCode::NoDaemon,
        ReadEnd::Broken(why) => {
            // A closed stderr changes nothing: the process ends all the same.
            drop(writeln!(io::stderr(), "plimsoll-worker: the daemon's frames can't be read: {why}"));
            ExitCode::System
        }
    };
    std::process::exit(i32::from(code.number()))
}
