//! Length-prefixed JSON, without I/O.

use plimsoll_config::limits::MAX_FRAME_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a frame was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Longer than the limit; the stream can't be trusted any more.
    TooLong {
        /// Length said by the frame.
        n_bytes: usize,
    },
    /// Not a message of this version.
    Malformed(String),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { n_bytes } => write!(f, "a frame of {n_bytes} bytes is over the limit of {MAX_FRAME_BYTES}"),
            Self::Malformed(why) => write!(f, "a frame is not a message of this version: {why}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// The bytes of one frame.
///
/// # Errors
/// [`FrameError::TooLong`] when the message is over the limit; [`FrameError::Malformed`] when it has no JSON form (a NaN).
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(|e| FrameError::Malformed(e.to_string()))?;
    let n_bytes = frame.len() - 4;
    match u32::try_from(n_bytes) {
        Ok(n) if n_bytes <= MAX_FRAME_BYTES => {
            frame[..4].copy_from_slice(&n.to_le_bytes());
            Ok(frame)
        }
        _ => Err(FrameError::TooLong { n_bytes }),
    }
}

/// Bytes in, messages out.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that earlier messages used.
    consumed: usize,
}

impl Decoder {
    /// Adds what was read from the socket.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// After an error the stream can't be trusted: close it.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let rest = &self.buffer[self.consumed..];
        let Some((length, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let n_bytes = u32::from_le_bytes(*length) as usize;
        if n_bytes > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong { n_bytes });
        }
        let Some(body) = body.get(..n_bytes) else { return Ok(None) };
        let message = serde_json::from_slice(body).map_err(|e| FrameError::Malformed(e.to_string()))?;
        self.consumed += 4 + n_bytes;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Finish, FromWorker, Timing, ToWorker};

    #[test]
    fn messages_survive_any_split_of_the_stream() {
        let messages = [
            FromWorker::Hello { wire_version: 1, pid: 7 },
            FromWorker::Tokens { request: 1, ids: vec![1, 2, 3] },
            FromWorker::Done { request: 1, finish: Finish::Stop, timing: Timing::default() },
        ];
        let stream: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
        for chunk in 1..stream.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for bytes in stream.chunks(chunk) {
                decoder.push(bytes);
                while let Some(message) = decoder.next_message::<FromWorker>().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages, "chunk of {chunk} bytes");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_are_awaited() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        let error = decoder.next_message::<ToWorker>().unwrap_err();
        assert_eq!(error, FrameError::TooLong { n_bytes: u32::MAX as usize });
    }

    #[test]
    fn an_unknown_message_is_an_error_not_a_panic() {
        for body in [&br#"{"kind":"dance"}"#[..], b"", b"\xff\xfe", b"{\"kind\":\"cancel\"}"] {
            let mut decoder = Decoder::default();
            decoder.push(&(body.len() as u32).to_le_bytes());
            decoder.push(body);
            assert!(matches!(decoder.next_message::<ToWorker>(), Err(FrameError::Malformed(_))), "{body:?}");
        }
    }
}
