//! The worker's socket and output as events: two tasks turn bytes into frames and back, one for each pipe turns it into log lines.
//!
//! They hold no state of their own and never decide; the supervisor owns what they report.

use std::io;

use plimsoll_config::limits::{LINK_QUEUE_FRAMES, LINK_READ_BYTES, MAX_WORKER_LINE_BYTES};
use plimsoll_wire::{Decoder, FromWorker};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::event::Event;
use crate::actuate::spawn::Spawned;
use plimsoll_decide::lifecycle::Generation;

/// What the supervisor keeps of a running worker.
#[derive(Debug)]
pub(crate) struct Link {
    /// The process.
    pub(crate) child: std::process::Child,
    /// Encoded frames on their way to it; none once the socket is given up.
    frames: Option<mpsc::Sender<Vec<u8>>>,
}

impl Link {
    /// Hands a frame over without waiting. False when too many wait already: the worker does not read.
    pub(crate) fn send(&self, frame: Vec<u8>) -> bool {
        match self.frames.as_ref().map(|frames| frames.try_send(frame)) {
            // One that has just died is noticed by the end of its socket.
            None | Some(Ok(()) | Err(TrySendError::Closed(_))) => true,
            Some(Err(TrySendError::Full(_))) => false,
        }
    }

    /// Gives up the socket: the worker sees its end and ends too.
    pub(crate) fn close(&mut self) {
        self.frames = None;
    }
}

/// Starts the tasks of one worker; `generation` marks its events, so that those of a dead one are told apart.
///
/// # Errors
/// The system refuses to watch a socket or a pipe.
pub(crate) fn open(spawned: Spawned, generation: Generation, events: mpsc::Sender<Event>) -> io::Result<Link> {
    let Spawned { mut child, socket } = spawned;
    socket.set_nonblocking(true)?;
    let (read, write) = UnixStream::from_std(socket)?.into_split();
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(log_lines(pipe::Receiver::from_owned_fd(stdout.into())?));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(log_lines(pipe::Receiver::from_owned_fd(stderr.into())?));
    }
    let (frames, outbox) = mpsc::channel(LINK_QUEUE_FRAMES);
    tokio::spawn(write_frames(write, outbox));
    tokio::spawn(read_frames(read, generation, events));
    Ok(Link { child, frames: Some(frames) })
}

async fn write_frames(mut socket: OwnedWriteHalf, mut outbox: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = outbox.recv().await {
        if socket.write_all(&frame).await.is_err() {
            return; // the reading side tells the supervisor
        }
    }
}

async fn read_frames(mut socket: OwnedReadHalf, generation: Generation, events: mpsc::Sender<Event>) {
    let mut decoder = Decoder::default();
    let mut chunk = vec![0; LINK_READ_BYTES];
    let why = loop {
        match socket.read(&mut chunk).await {
            Ok(0) => break "its socket closed".to_owned(),
            Ok(n_bytes) => decoder.push(&chunk[..n_bytes]),
            Err(e) => break format!("its socket failed: {e}"),
        }
        let bad_frame = loop {
            match decoder.next_message::<FromWorker>() {
                Ok(Some(message)) => {
                    if events.send(Event::Frame { generation, message }).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        if let Some(e) = bad_frame {
            break format!("it sent something else than a frame: {e}");
        }
    };
    // The supervisor has ended if nobody listens.
    drop(events.send(Event::Closed { generation, why }).await);
}

/// Copies the worker's output into the log, line by line. What is longer than a line may be is cut.
async fn log_lines(mut pipe: impl AsyncRead + Unpin) {
    let mut lines = Lines::default();
    let mut chunk = [0; 4096];
    while let Ok(n_bytes @ 1..) = pipe.read(&mut chunk).await {
        lines.push(&chunk[..n_bytes], |line| tracing::info!(target: "worker", "{line}"));
    }
    lines.finish(|line| tracing::info!(target: "worker", "{line}"));
}

/// Cuts bytes into lines of bounded length, without control characters.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    /// The line is over its bound; the rest is dropped.
    cut: bool,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], mut say: impl FnMut(String)) {
        for &byte in bytes {
            if byte == b'\n' {
                self.finish(&mut say);
            } else if self.line.len() < MAX_WORKER_LINE_BYTES {
                self.line.push(byte);
            } else {
                self.cut = true;
            }
        }
    }

    fn finish(&mut self, mut say: impl FnMut(String)) {
        let mut text = String::from_utf8_lossy(&self.line).replace(char::is_control, " ");
        if self.cut {
            text.push_str(" … (cut)");
        }
        self.line.clear();
        self.cut = false;
        if !text.trim().is_empty() {
            say(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, MAX_WORKER_LINE_BYTES};

    #[test]
    fn lines_are_whole_bounded_and_printable() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let long = "x".repeat(MAX_WORKER_LINE_BYTES + 10);
        for piece in ["one", " line\n\n", "bell\x07 and \x1b[31mred\n", &long, "\n", "no end"] {
            lines.push(piece.as_bytes(), |line| seen.push(line));
        }
        lines.finish(|line| seen.push(line));
        let cut = format!("{} … (cut)", "x".repeat(MAX_WORKER_LINE_BYTES));
        assert_eq!(seen, ["one line", "bell  and  [31mred", &cut, "no end"]);
    }
}
