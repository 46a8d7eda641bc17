//! `GET /healthz`: this process answers. `GET /readyz`: a request would be served now, or the reason why not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::App;

/// Always 200: who reads it is being answered.
pub(crate) async fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// 200 when a worker is ready, else 503 with the state and one sentence.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    let status = app.engine.status();
    let code = if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({"ready": status.ready, "state": status.state, "reason": status.reason})))
}
