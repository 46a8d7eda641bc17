//! Every error that a client can see, in the shape of the OpenAI API: `{"error":{"message","type","param","code"}}`.
//!
//! One constructor per kind, so that a status and its words are chosen in one place. Always JSON, also when a stream was asked for.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_config::limits::NOT_READY_RETRY_AFTER;
use plimsoll_config::units::Millis;
use plimsoll_decide::admission::DenyReason;
use plimsoll_decide::lifecycle::RequestsEnd;
use serde_json::{Value, json};

use crate::journal::Failure;

/// An error on its way to a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
    /// Seconds for the `Retry-After` header.
    retry_after_s: Option<u64>,
    /// The two counts of an over-long prompt: (prompt, context), in tokens.
    over_long: Option<(u32, u32)>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None, retry_after_s: None, over_long: None }
    }

    /// 400 about one parameter.
    pub(crate) fn param(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        error.param = Some(param.into());
        error
    }

    /// 400 about the request as a whole.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// 400 for a parameter that this build does not act on.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::param(param, message);
        error.code = Some("unsupported_parameter");
        error
    }

    /// A refusal by the admission: its status, words and `Retry-After` come from the table in `decide`.
    pub(crate) fn denied(reason: &DenyReason) -> Self {
        let shape = reason.http();
        let status = StatusCode::from_u16(shape.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let mut error = Self::new(status, shape.kind, reason.to_string());
        error.code = Some(shape.code);
        error.retry_after_s = shape.retry_after.map(Millis::secs_rounded_up);
        if let DenyReason::TooLong { n_prompt, n_ctx } = reason {
            error.over_long = Some((n_prompt.0, n_ctx.0));
        }
        error
    }

    /// 404 for a path that nothing answers.
    pub(crate) fn not_found(path: &str) -> Self {
        let mut error = Self::new(
            StatusCode::NOT_FOUND,
            "not_found_error",
            format!(
                "nothing is served at {path}; there are /v1/chat/completions, /v1/completions, /v1/models, /healthz and /readyz"
            ),
        );
        error.code = Some("not_found");
        error
    }

    /// 404 for a model that is not the one loaded.
    pub(crate) fn no_such_model(asked: &str, served: &str) -> Self {
        let mut error = Self::new(
            StatusCode::NOT_FOUND,
            "not_found_error",
            format!("model {asked:?} is not served; {served:?} is"),
        );
        error.code = Some("model_not_found");
        error
    }

    /// 405.
    pub(crate) fn method_not_allowed(method: &str, path: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "invalid_request_error",
            format!("{path} does not answer {method}; the `Allow` header lists what it answers"),
        )
    }

    /// 408: the body did not arrive in time.
    pub(crate) fn body_too_slow(limit_s: u64) -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            format!("the request's body did not arrive within {limit_s} s"),
        )
    }

    /// 413.
    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            format!("the request's body is over the limit of {limit_bytes} bytes"),
        )
    }

    /// 500: the engine failed the request.
    pub(crate) fn engine(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// 503: it ended with its worker, and no other takes it over.
    fn ended(end: &RequestsEnd) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", end.to_string());
        error.code = Some("not_ready");
        let retry_after = match end {
            RequestsEnd::Stopped | RequestsEnd::DrainDeadline => Some(NOT_READY_RETRY_AFTER),
            RequestsEnd::NotReady { retry_after, .. } => *retry_after,
        };
        error.retry_after_s = retry_after.map(Millis::secs_rounded_up);
        error
    }

    /// How a request ended that could not be answered.
    pub(crate) fn failed(failure: &Failure) -> Self {
        match failure {
            Failure::Denied(reason) => Self::denied(reason),
            Failure::Ended(end) => Self::ended(end),
            Failure::Impossible(why) => Self::bad_request(why.clone()),
            Failure::Engine(why) => Self::engine(why.clone()),
        }
    }

    /// The JSON that goes into a body, or into a stream that has begun.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        });
        if let Some((n_prompt_tokens, n_ctx)) = self.over_long {
            error["n_prompt_tokens"] = n_prompt_tokens.into();
            error["n_ctx"] = n_ctx.into();
        }
        json!({ "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.to_json())).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_config::units::Tokens;

    use super::{ApiError, DenyReason};

    #[test]
    fn an_over_long_prompt_carries_the_words_and_counts_that_agents_look_for() {
        let json = ApiError::denied(&DenyReason::TooLong { n_prompt: Tokens(9000), n_ctx: Tokens(8192) }).to_json();
        let error = &json["error"];
        assert_eq!(error["type"], "exceed_context_size_error");
        assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&9000.into(), &8192.into()));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("exceeds the available context size"), "{message}");
        assert!(message.contains("context_length_exceeded"), "{message}");
    }

    #[test]
    fn the_four_fields_are_always_there() {
        let json = ApiError::bad_request("no").to_json();
        let fields: Vec<&String> = json["error"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["message", "type", "param", "code"]);
    }
}
