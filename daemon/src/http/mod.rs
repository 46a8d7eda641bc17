//! The public API: requests in, JSON and server-sent events out. It holds no request's state beyond its own connection and
//! decides nothing about the engine: [`crate::supervisor`] does.
//!
//! Read in this order: `server` (connections), `completions` (a request's way), `answer` and `stream` (the way back),
//! `shape` and `error` (the JSON), then the parsers.

mod answer;
mod body;
mod caller;
mod completions;
mod error;
mod fields;
mod health;
mod messages;
mod models;
mod params;
pub(crate) mod server;
mod shape;
mod stop;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use tokio::sync::Semaphore;

pub(crate) use self::body::BodyMemory;
use self::error::ApiError;
pub(crate) use self::messages::Message;
pub(crate) use self::models::ModelCard;
use crate::clock::Clock;
use crate::supervisor::Handle;
use crate::text::Text;

/// What the handlers share; never changed after the start.
pub(crate) struct App {
    /// The supervisor's clock.
    pub(crate) clock: Clock,
    /// The way to the engine.
    pub(crate) engine: Handle,
    /// Tokenizer and chat template.
    pub(crate) text: Arc<Text>,
    /// What is served.
    pub(crate) card: ModelCard,
    /// Memory for bodies on their way in.
    pub(crate) bodies: BodyMemory,
    /// Turns at the tokenizer.
    pub(crate) tokenising: Semaphore,
    /// Start of the daemon, in seconds since 1970.
    pub(crate) started_s: u64,
}

/// All routes. What has none answers in the same shape.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one))
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .fallback(async |uri: Uri| ApiError::not_found(uri.path()))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            ApiError::method_not_allowed(method.as_str(), uri.path())
        })
        .with_state(app)
}
