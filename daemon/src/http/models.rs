//! `GET /v1/models` and `GET /v1/models/{id}`: the one model, with the context in force so that clients need not guess it.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;

/// What is served.
#[derive(Debug, Clone)]
pub(crate) struct ModelCard {
    /// The file's name without `.gguf`.
    pub(crate) id: String,
    /// Changes with the build, the model file and what else can change an answer.
    pub(crate) fingerprint: String,
    /// Context that the model was trained for, in tokens.
    pub(crate) n_ctx_train: u32,
    /// Tokens in the vocabulary.
    pub(crate) n_vocab: u32,
    /// Storage of K and V.
    pub(crate) kv_type: &'static str,
    /// Bytes of the model file, all parts.
    pub(crate) file_bytes: u64,
}

/// `GET /v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [entry(&app)] }))
}

/// `GET /v1/models/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|e| ApiError::bad_request(format!("the model's name can't be read: {e}")))?;
    if id == app.card.id { Ok(Json(entry(&app))) } else { Err(ApiError::no_such_model(&id, &app.card.id)) }
}

fn entry(app: &App) -> Value {
    let (card, n_ctx) = (&app.card, app.engine.status().n_ctx.map(|n_ctx| n_ctx.0));
    json!({
        "id": card.id,
        "object": "model",
        "created": app.started_s,
        "owned_by": "plimsoll",
        // Two names for the same: clients look for either. Null until the first plan has chosen it.
        "max_model_len": n_ctx,
        "context_length": n_ctx,
        "meta": {
            "n_ctx_train": card.n_ctx_train,
            "n_vocab": card.n_vocab,
            "kv_type": card.kv_type,
            "size": card.file_bytes,
        },
    })
}
