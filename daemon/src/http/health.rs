//! `GET /healthz`: this process answers. `GET /readyz`: a request would be served now, or the reason why not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use plimsoll_config::units::Millis;
use serde_json::{Value, json};

use super::App;

/// Always 200: who reads it is being answered.
pub(crate) async fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// A worker that is silent for this long, twenty of its heartbeats, is not called ready any more. It is ended much later: one
/// that works hard comes back, and a balancer that looks elsewhere for a moment costs nothing.
const SILENCE: Millis = Millis::from_secs(5);

/// What to say of a ready worker that was last heard at `heard`, if that is too long ago.
fn silence(now: Millis, heard: Option<Millis>) -> Option<String> {
    let silent = now.since(heard?);
    (silent >= SILENCE).then(|| format!("the worker has been silent for {} s", silent.0 / 1000))
}

/// 200 when a worker is ready, else 503 with the state and one sentence.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    let status = app.engine.status();
    let (ready, reason) = match silence(app.clock.now(), status.heard) {
        Some(silence) => (false, silence),
        None => (status.ready, status.reason),
    };
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({"ready": ready, "state": status.state, "reason": reason})))
}

#[cfg(test)]
mod tests {
    use super::{Millis, silence};

    #[test]
    fn a_worker_that_is_silent_for_seconds_is_not_called_ready() {
        let said = |now_ms| silence(Millis(now_ms), Some(Millis(1000)));
        assert_eq!((said(1000), said(5999)), (None, None));
        assert_eq!(said(6000).as_deref(), Some("the worker has been silent for 5 s"));
        assert_eq!(said(61_500).as_deref(), Some("the worker has been silent for 60 s"));
        assert_eq!(silence(Millis(61_500), None), None, "the state's own words hold");
    }
}
