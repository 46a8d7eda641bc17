//! `POST /v1/chat/completions` and `POST /v1/completions`: from a body to a counted prompt, then to an answer.
//!
//! Everything that can be wrong with a request is found here, before it is offered to the engine. Templates and tokenizers
//! run on blocking threads, a bounded number at once: a long prompt must not stop the pings of other streams.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::answer::{Answer, Step};
use super::caller::Caller;
use super::error::ApiError;
use super::fields::Fields;
use super::params::Params;
use super::shape::{Kind, Shape};
use super::{App, messages, stream};
use crate::clock;
use crate::journal::Order;
use crate::text::{Begin, Text, TextError, TextStream};

/// `POST /v1/chat/completions`.
pub(crate) async fn chat(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = app.bodies.read(body).await?;
    let fields = Fields::parse(&body.bytes)?;
    let caller = Caller::of(&headers, &fields);
    let messages = messages::parse(&fields)?;
    let params = Params::parse(&fields)?;
    let prompt = tokenise(&app, move |text| text.chat_ids(&messages)).await?;
    drop((fields, body));
    answer(&app, Kind::Chat, caller, prompt, params).await
}

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = app.bodies.read(body).await?;
    let fields = Fields::parse(&body.bytes)?;
    let caller = Caller::of(&headers, &fields);
    let params = Params::parse(&fields)?;
    let prompt = match prompt(&fields)? {
        Prompt::Text(text) => tokenise(&app, move |tokens| tokens.prompt_ids(&text)).await?,
        Prompt::Ids(ids) => {
            app.text.check_ids(&ids).map_err(|e| ApiError::param("prompt", e.to_string()))?;
            ids
        }
    };
    drop((fields, body));
    answer(&app, Kind::Text, caller, prompt, params).await
}

/// A prompt without roles.
#[derive(Debug, PartialEq, Eq)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

/// A string, a list of ids, or a list with one of either.
fn prompt(fields: &Fields) -> Result<Prompt, ApiError> {
    let wrong = || ApiError::param("prompt", "prompt must be a string or a list of token ids; one prompt per request");
    let one = |value: &Value| match value {
        Value::String(text) => Some(Prompt::Text(text.clone())),
        Value::Array(ids) => ids.iter().map(id).collect::<Option<_>>().map(Prompt::Ids),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    let value = fields.get("prompt").ok_or_else(wrong)?;
    let value = match value.as_array().map(Vec::as_slice) {
        Some([only @ (Value::String(_) | Value::Array(_))]) => only,
        Some(_) | None => value,
    };
    one(value).ok_or_else(wrong)
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// A client that leaves meanwhile leaves its turn too late by one tokenising, not more.
async fn tokenise(
    app: &App,
    work: impl FnOnce(&Text) -> Result<Vec<u32>, TextError> + Send + 'static,
) -> Result<Vec<u32>, ApiError> {
    let turn = app.tokenising.acquire().await.map_err(|_| ApiError::engine("the daemon is ending"))?;
    let text = Arc::clone(&app.text);
    let ids = tokio::task::spawn_blocking(move || work(&text)).await;
    drop(turn);
    match ids {
        Ok(Ok(ids)) => Ok(ids),
        Ok(Err(e)) => Err(ApiError::bad_request(e.to_string())),
        Err(e) => Err(ApiError::engine(format!("the prompt could not be made into tokens: {e}"))),
    }
}

/// Offers the request to the engine and sends what comes back.
async fn answer(app: &App, kind: Kind, caller: Caller, prompt: Vec<u32>, params: Params) -> Result<Response, ApiError> {
    let n_prompt = prompt.len();
    let seed = match params.seed {
        Some(seed) => seed,
        None => clock::random_seed().map_err(|e| ApiError::engine(format!("no seed can be drawn: {e}")))?,
    };
    let max_tokens = params.max_tokens.unwrap_or(u32::MAX); // the admission ends it where the context does
    let Caller { client, wait } = caller;
    let order = Order { client, wait, prompt, sampling: params.sampling, seed, max_tokens };
    let ticket = app.engine.submit(order).await.map_err(|reason| ApiError::denied(&reason))?;
    let (prefix, begin) = match kind {
        Kind::Chat => ("chatcmpl", Begin::Anew),
        Kind::Text => ("cmpl", Begin::Midway),
    };
    let shape = Shape {
        kind,
        id: format!("{prefix}-{:x}-{}", app.started_s, ticket.request.0),
        created_s: clock::unix_seconds(),
        model: app.card.id.clone(),
        fingerprint: app.card.fingerprint.clone(),
        include_usage: params.include_usage,
    };
    let answer = Answer::new(ticket, TextStream::new(Arc::clone(&app.text), begin), params.stop, n_prompt);
    if params.stream { stream::respond(answer, shape).await } else { whole(answer, &shape).await }
}

async fn whole(mut answer: Answer, shape: &Shape) -> Result<Response, ApiError> {
    let mut text = String::new();
    loop {
        match answer.step().await {
            Step::Text(more) => text.push_str(&more),
            Step::End(finish, usage) => return Ok(axum::Json(shape.whole(&text, finish, usage)).into_response()),
            Step::Failed(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Fields, Prompt, prompt};

    #[test]
    fn the_kinds_of_prompt() {
        let cases = [
            (json!("text"), Some(Prompt::Text("text".into()))),
            (json!(["text"]), Some(Prompt::Text("text".into()))),
            (json!([1, 2]), Some(Prompt::Ids(vec![1, 2]))),
            (json!([5]), Some(Prompt::Ids(vec![5]))),
            (json!([[1, 2]]), Some(Prompt::Ids(vec![1, 2]))),
            (json!(["a", "b"]), None),
            (json!([[1], [2]]), None),
            (json!([1, "a"]), None),
            (json!([-1]), None),
            (json!([4294967296u64]), None),
            (json!(5), None),
            (json!({}), None),
            (json!(null), None),
        ];
        for (value, expected) in cases {
            let fields = Fields::parse(json!({ "prompt": value }).to_string().as_bytes()).unwrap();
            assert_eq!(prompt(&fields).ok(), expected, "{value}");
        }
    }
}
