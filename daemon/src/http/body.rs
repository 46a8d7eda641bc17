//! Reads a request's body within its bounds of size and time, and within the bytes that all bodies together may take.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use plimsoll_config::limits::{HTTP_READ_DEADLINE, MAX_HTTP_BODIES_BYTES, MAX_HTTP_BODY_BYTES};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::ApiError;

/// The unit in which memory for bodies is lent: small enough for a short chat, large enough for a count in 32 bits.
const LOAN_BYTES: usize = 1 << 10;

/// The memory that all bodies share.
#[derive(Debug)]
pub(crate) struct BodyMemory(Semaphore);

/// A body, and the loan that its bytes are under until they are parsed and turned into tokens.
#[derive(Debug)]
pub(crate) struct Loaned<'a> {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    _loan: SemaphorePermit<'a>,
}

impl BodyMemory {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(MAX_HTTP_BODIES_BYTES / LOAN_BYTES))
    }

    /// Waits for room, then reads. Room and body have one deadline.
    ///
    /// # Errors
    /// 413 over the size, 408 over the time, 400 when the connection broke.
    pub(crate) async fn read(&self, body: Body) -> Result<Loaned<'_>, ApiError> {
        let size = body.size_hint();
        if size.lower() > MAX_HTTP_BODY_BYTES as u64 {
            return Err(ApiError::too_large(MAX_HTTP_BODY_BYTES)); // said by Content-Length: not a byte is read
        }
        // A chunked body says nothing: it may become as long as any.
        let n_bytes = size.upper().and_then(|n| usize::try_from(n).ok()).unwrap_or(MAX_HTTP_BODY_BYTES);
        let deadline = Duration::from_millis(HTTP_READ_DEADLINE.0);
        let reading = async {
            let n_loans = u32::try_from(n_bytes.div_ceil(LOAN_BYTES)).unwrap_or(u32::MAX);
            let loan = self.0.acquire_many(n_loans).await.map_err(|_| ApiError::engine("the daemon is ending"))?;
            Ok(Loaned { bytes: collect(body).await?, _loan: loan })
        };
        tokio::time::timeout(deadline, reading)
            .await
            .unwrap_or_else(|_| Err(ApiError::body_too_slow(deadline.as_secs())))
    }
}

async fn collect(mut body: Body) -> Result<Vec<u8>, ApiError> {
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame =
            frame.map_err(|e| ApiError::bad_request(format!("the request's body did not arrive whole: {e}")))?;
        let Ok(data) = frame.into_data() else { continue }; // trailers say nothing here
        if all.len() + data.len() > MAX_HTTP_BODY_BYTES {
            return Err(ApiError::too_large(MAX_HTTP_BODY_BYTES));
        }
        all.extend_from_slice(&data);
    }
    Ok(all)
}
