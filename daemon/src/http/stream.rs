//! An answer as server-sent events: a task turns steps into chunks, a body hands them to the connection.
//!
//! Between both is a bounded buffer. A client that reads slowly fills it and is waited for; one that has stopped reading is
//! cut after a deadline. The engine never waits for either: it writes to the journal.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use plimsoll_config::limits::{STREAM_BUFFER_CHUNKS, STREAM_COMMIT_WAIT, STREAM_PING_INTERVAL, STREAM_STALL_DEADLINE};
use serde_json::Value;
use tokio::sync::mpsc;

use super::answer::{Answer, Step};
use super::error::ApiError;
use super::shape::Shape;

/// Begins a stream. What fails at once still gets its own status, so the head is sent after the first step or a short wait.
///
/// # Errors
/// The answer failed before the stream began.
pub(crate) async fn respond(mut answer: Answer, shape: Shape) -> Result<Response, ApiError> {
    let first = match tokio::time::timeout(Duration::from_millis(STREAM_COMMIT_WAIT.0), answer.step()).await {
        Ok(Step::Failed(error)) => return Err(error),
        Ok(step) => Some(step),
        Err(_still_waiting) => None,
    };
    let (out, chunks) = mpsc::channel(STREAM_BUFFER_CHUNKS);
    tokio::spawn(async move {
        // A client that is gone, or was cut, ends the task; dropping the answer cancels the request.
        drop(write(answer, first, &shape, &out).await);
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // Asks proxies not to collect the stream.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::new(Chunks { chunks, complete: false })).into_response())
}

/// A piece of the stream.
enum Chunk {
    /// More follows.
    More(Bytes),
    /// The last one.
    Last(Bytes),
}

/// The client does not take any more.
struct Gone;

async fn write(
    mut answer: Answer,
    mut first: Option<Step>,
    shape: &Shape,
    out: &mpsc::Sender<Chunk>,
) -> Result<(), Gone> {
    if let Some(chunk) = shape.first() {
        send(out, Chunk::More(data(&chunk))).await?;
    }
    loop {
        let step = match first.take() {
            Some(step) => step,
            None => tokio::select! {
                step = answer.step() => step,
                () = out.closed() => return Err(Gone),
                () = tokio::time::sleep(Duration::from_millis(STREAM_PING_INTERVAL.0)) => {
                    send(out, Chunk::More(Bytes::from_static(b": ping\n\n"))).await?;
                    continue;
                }
            },
        };
        match step {
            Step::Text(text) => send(out, Chunk::More(data(&shape.text(&text)))).await?,
            Step::End(finish, usage) => {
                send(out, Chunk::More(data(&shape.last(finish)))).await?;
                if shape.include_usage {
                    send(out, Chunk::More(data(&shape.usage(usage)))).await?;
                }
                return send(out, Chunk::Last(Bytes::from_static(b"data: [DONE]\n\n"))).await;
            }
            Step::Failed(error) => return send(out, Chunk::Last(data(&error.to_json()))).await,
        }
    }
}

async fn send(out: &mpsc::Sender<Chunk>, chunk: Chunk) -> Result<(), Gone> {
    out.send_timeout(chunk, Duration::from_millis(STREAM_STALL_DEADLINE.0)).await.map_err(|_| Gone)
}

fn data(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// The body. A stream whose task ended without a last chunk was cut: the connection then closes without a proper end, so
/// that no client takes the part for the whole.
struct Chunks {
    chunks: mpsc::Receiver<Chunk>,
    complete: bool,
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.complete {
            return Poll::Ready(None);
        }
        self.chunks.poll_recv(context).map(|chunk| match chunk {
            Some(Chunk::More(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Chunk::Last(bytes)) => {
                self.complete = true;
                Some(Ok(Frame::data(bytes)))
            }
            None => {
                self.complete = true;
                Some(Err(std::io::Error::other("the stream was cut: its reader stood still")))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::body::Body as _;

    use super::*;

    async fn next(body: &mut Chunks) -> Option<Result<Bytes, std::io::Error>> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
    }

    #[tokio::test]
    async fn a_stream_without_a_last_chunk_ends_as_an_error() {
        let (out, chunks) = mpsc::channel(2);
        let mut body = Chunks { chunks, complete: false };
        assert!(send(&out, Chunk::More("a".into())).await.is_ok());
        drop(out);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "a");
        assert!(next(&mut body).await.unwrap().is_err());
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_last_chunk_ends_it_well() {
        let (out, chunks) = mpsc::channel(2);
        let mut body = Chunks { chunks, complete: false };
        assert!(send(&out, Chunk::Last("z".into())).await.is_ok());
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "z");
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_is_given_up_after_the_deadline() {
        let (out, mut chunks) = mpsc::channel(1);
        assert!(send(&out, Chunk::More("a".into())).await.is_ok());
        let start = tokio::time::Instant::now();
        assert!(send(&out, Chunk::More("b".into())).await.is_err());
        assert_eq!(start.elapsed(), Duration::from_millis(STREAM_STALL_DEADLINE.0), "on the test's clock");
        assert!(chunks.recv().await.is_some());
        assert!(send(&out, Chunk::More("c".into())).await.is_ok());
    }
}
