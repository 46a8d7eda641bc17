//! Why a request is refused, in words and over HTTP.

use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyReason {
    /// The prompt has no tokens.
    EmptyPrompt,
    /// The prompt leaves no room for a single token of answer.
    TooLong {
        /// Tokens of the prompt.
        n_prompt: Tokens,
        /// Tokens of context.
        n_ctx: Tokens,
    },
    /// The queue is full.
    QueueFull {
        /// Requests that wait.
        n_waiting: u32,
    },
    /// It waited for as long as its client wanted to.
    DeadlinePassed,
    /// No worker, and none will come by itself, or not soon.
    NotReady {
        /// One sentence.
        why: String,
        /// When to ask again; `None` when waiting does not help.
        retry_after: Option<Millis>,
    },
    /// The daemon is ending.
    Draining,
    /// Workers died while they ran this request alone.
    Poisoned {
        /// How many did.
        n_deaths: u32,
        /// Where in it, in tokens from its beginning.
        position: Tokens,
    },
}

/// How a refusal looks to an HTTP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpShape {
    /// The status.
    pub status: u16,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.code`.
    pub code: &'static str,
    /// `Retry-After`, where trying again can help.
    pub retry_after: Option<Millis>,
}

impl DenyReason {
    /// The table reason → HTTP. Agents look for `exceed_context_size_error` to shorten a chat in place of repeating it;
    /// clients repeat a 429 and a 503 by themselves, and never a 400. A request that ends workers is a 500 of its own type:
    /// one of 503 would be sent again.
    pub fn http(&self) -> HttpShape {
        let shape = |status, kind, code, retry_after| HttpShape { status, kind, code, retry_after };
        match self {
            DenyReason::EmptyPrompt => shape(400, "invalid_request_error", "empty_prompt", None),
            DenyReason::TooLong { .. } => shape(400, "exceed_context_size_error", "context_length_exceeded", None),
            DenyReason::QueueFull { .. } => {
                shape(429, "rate_limit_error", "queue_full", Some(limits::QUEUE_RETRY_AFTER))
            }
            DenyReason::DeadlinePassed => {
                shape(503, "service_unavailable_error", "deadline_passed", Some(limits::QUEUE_RETRY_AFTER))
            }
            DenyReason::NotReady { retry_after, .. } => {
                shape(503, "service_unavailable_error", "not_ready", *retry_after)
            }
            DenyReason::Draining => {
                shape(503, "service_unavailable_error", "draining", Some(limits::NOT_READY_RETRY_AFTER))
            }
            DenyReason::Poisoned { .. } => shape(500, "poisoned_request_error", "request_ends_worker", None),
        }
    }
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DenyReason::EmptyPrompt => write!(f, "the prompt is empty: send at least one token of text"),
            // Plain digits: clients read the numbers out of this sentence.
            DenyReason::TooLong { n_prompt, n_ctx } => write!(
                f,
                "the request exceeds the available context size (context_length_exceeded): {} tokens of prompt, {} of \
                 context, and an answer needs at least one; shorten the chat, or start with a larger context.tokens",
                n_prompt.0, n_ctx.0
            ),
            DenyReason::QueueFull { n_waiting } => {
                write!(f, "{n_waiting} requests are waiting already and the queue is full: try again later")
            }
            DenyReason::DeadlinePassed => {
                write!(f, "the request waited for as long as it was to wait, and others are still before it")
            }
            DenyReason::NotReady { why, .. } => write!(f, "no model is ready: {why}"),
            DenyReason::Draining => {
                write!(f, "the server is ending and takes no new requests: try again after its restart")
            }
            DenyReason::Poisoned { n_deaths, position } => write!(
                f,
                "{n_deaths} workers died with this request while nothing else ran, the last one after {} of its tokens: it \
                 is not tried again, and is kept for replay; see the log for what they died of",
                position.0
            ),
        }
    }
}
