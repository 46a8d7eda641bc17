//! What both completion endpoints share: how to sample, when to stop, how to send. Parsed once, then only typed values move on.

use plimsoll_config::limits::{MAX_STOP_STRING_BYTES, MAX_STOP_STRINGS, MAX_TEMPERATURE};
use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use crate::journal::Sampling;

/// The settings of one request.
#[derive(Debug)]
pub(crate) struct Params {
    /// How the next token is chosen, without the seed.
    pub(crate) sampling: Sampling,
    /// The seed asked for.
    pub(crate) seed: Option<u64>,
    /// Most tokens in the answer; absent = up to the end of the context.
    pub(crate) max_tokens: Option<u32>,
    /// Where to stop; not empty strings.
    pub(crate) stop: Vec<String>,
    /// Send pieces as they come.
    pub(crate) stream: bool,
    /// Close the stream with a chunk of counts.
    pub(crate) include_usage: bool,
}

/// What a value of an unsupported parameter may be without asking for anything.
enum Harmless {
    Nothing,
    False,
    Zero,
    AtMostOne,
    Empty,
    Text(&'static str),
}

/// Parameters whose meaning this build can't give. Said clearly in place of an answer that ignores them.
const UNSUPPORTED: [(&str, &[Harmless], &str); 13] = [
    ("n", &[Harmless::AtMostOne], "one answer per request: send n requests"),
    ("best_of", &[Harmless::AtMostOne], "one answer per request"),
    ("tools", &[Harmless::Empty], "describe tools in a message"),
    ("functions", &[Harmless::Empty], "describe tools in a message"),
    ("tool_choice", &[Harmless::Text("none"), Harmless::Text("auto")], "there are no tools to choose from"),
    ("logprobs", &[Harmless::False], "only text is returned"),
    ("top_logprobs", &[Harmless::Zero], "only text is returned"),
    ("logit_bias", &[Harmless::Empty], "use temperature, top_k, top_p and min_p"),
    ("frequency_penalty", &[Harmless::Zero], "use repeat_penalty"),
    ("presence_penalty", &[Harmless::Zero], "use repeat_penalty"),
    ("echo", &[Harmless::False], "put the prompt before the answer yourself"),
    ("suffix", &[Harmless::Text("")], "only continuations are made"),
    ("audio", &[Harmless::Nothing], "only text is returned"),
];

impl Harmless {
    fn allows(&self, value: &Value) -> bool {
        match self {
            Self::Nothing => false,
            Self::False => value == &Value::Bool(false),
            Self::Zero => value.as_f64() == Some(0.0),
            Self::AtMostOne => value.as_f64().is_some_and(|n| n == 0.0 || n == 1.0),
            Self::Empty => {
                value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
            }
            Self::Text(text) => value.as_str() == Some(text),
        }
    }
}

impl Params {
    /// # Errors
    /// 400 with a sentence that names the parameter.
    pub(crate) fn parse(fields: &Fields) -> Result<Self, ApiError> {
        refuse_unsupported(fields)?;
        if let Some(model) = fields.get("model")
            && !model.is_string()
        {
            return Err(ApiError::param("model", "model must be a string"));
        }
        let stream = fields.boolean("stream")?.unwrap_or(false);
        Ok(Self {
            sampling: sampling(fields)?,
            seed: seed(fields)?,
            max_tokens: max_tokens(fields)?,
            stop: stop(fields)?,
            stream,
            include_usage: stream && include_usage(fields)?,
        })
    }
}

fn refuse_unsupported(fields: &Fields) -> Result<(), ApiError> {
    for (name, harmless, instead) in UNSUPPORTED {
        if let Some(value) = fields.get(name)
            && !harmless.iter().any(|h| h.allows(value))
        {
            return Err(ApiError::unsupported(name, format!("{name} is not supported by this server: {instead}")));
        }
    }
    match fields.get("response_format").map(|format| &format["type"]) {
        Some(kind) if kind != "text" => Err(ApiError::unsupported(
            "response_format",
            "response_format is not supported by this server except {\"type\": \"text\"}: ask for the format in a message",
        )),
        Some(_) | None => Ok(()),
    }
}

fn sampling(fields: &Fields) -> Result<Sampling, ApiError> {
    let plain = Sampling::default();
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=MAX_TEMPERATURE)?.unwrap_or(plain.temperature),
        top_k: match is_minus_one(fields, "top_k") {
            true => 0, // all
            false => fields.integer("top_k", 0..=u64::from(u32::MAX))?.map_or(plain.top_k, narrow),
        },
        top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(plain.top_p),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(plain.min_p),
        repeat_penalty: fields.number("repeat_penalty", 0.1..=10.0)?.unwrap_or(plain.repeat_penalty),
        repeat_last_n: fields.integer("repeat_last_n", 0..=u64::from(u32::MAX))?.map_or(plain.repeat_last_n, narrow),
    })
}

/// −1 is how clients of other local servers say "draw one", "all" or "no limit".
fn is_minus_one(fields: &Fields, name: &str) -> bool {
    fields.get(name).and_then(Value::as_f64) == Some(-1.0)
}

fn seed(fields: &Fields) -> Result<Option<u64>, ApiError> {
    if is_minus_one(fields, "seed") {
        return Ok(None);
    }
    fields.integer("seed", 0..=u64::MAX)
}

/// The two names mean the same; the newer one wins.
fn max_tokens(fields: &Fields) -> Result<Option<u32>, ApiError> {
    let read = |name| match fields.get(name) {
        None => Ok(None),
        Some(_) if is_minus_one(fields, name) => Ok(Some(u64::from(u32::MAX))),
        Some(_) => fields.integer(name, 1..=u64::from(u32::MAX)),
    };
    let (old, new) = (read("max_tokens")?, read("max_completion_tokens")?);
    Ok(new.or(old).map(narrow))
}

fn stop(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        ApiError::param(
            "stop",
            format!(
                "stop must be a string or a list of at most {MAX_STOP_STRINGS} strings, each of 1 to {MAX_STOP_STRING_BYTES} bytes"
            ),
        )
    };
    let stops = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) if many.len() <= MAX_STOP_STRINGS => {
            many.iter().map(|s| s.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    if stops.iter().any(|s| s.is_empty() || s.len() > MAX_STOP_STRING_BYTES) {
        return Err(wrong());
    }
    Ok(stops)
}

fn include_usage(fields: &Fields) -> Result<bool, ApiError> {
    match fields.get("stream_options") {
        None => Ok(false),
        Some(Value::Object(options)) => match options.get("include_usage") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(wanted)) => Ok(*wanted),
            Some(_) => Err(ApiError::param(
                "stream_options.include_usage",
                "stream_options.include_usage must be true or false",
            )),
        },
        Some(_) => Err(ApiError::param("stream_options", "stream_options must be an object")),
    }
}

/// For values whose range was checked to be that of a u32.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Fields, MAX_STOP_STRINGS, Params};

    fn parse(body: &serde_json::Value) -> Result<Params, super::ApiError> {
        Params::parse(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn each_bad_value_is_refused_with_the_parameter_s_name() {
        let cases = [
            (json!({"temperature": 5.1}), "temperature"),
            (json!({"temperature": -0.1}), "temperature"),
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"top_p": 1.01}), "top_p"),
            (json!({"min_p": -1}), "min_p"),
            (json!({"top_k": -2}), "top_k"),
            (json!({"repeat_penalty": 0}), "repeat_penalty"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"max_tokens": -2}), "max_tokens"),
            (json!({"max_completion_tokens": 1.5}), "max_completion_tokens"),
            (json!({"seed": -2}), "seed"),
            (json!({"seed": "x"}), "seed"),
            (json!({"stop": ""}), "stop"),
            (json!({"stop": vec!["a"; MAX_STOP_STRINGS + 1]}), "stop"),
            (json!({"stop": ["a", 1]}), "stop"),
            (json!({"stop": {}}), "stop"),
            (json!({"stop": "x".repeat(5000)}), "stop"),
            (json!({"stream": 1}), "stream"),
            (json!({"stream": true, "stream_options": []}), "stream_options"),
            (json!({"stream": true, "stream_options": {"include_usage": 1}}), "stream_options.include_usage"),
            (json!({"model": 5}), "model"),
            (json!({"n": 2}), "n"),
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"top_logprobs": 3}), "top_logprobs"),
            (json!({"logit_bias": {"50256": -100}}), "logit_bias"),
            (json!({"frequency_penalty": 0.5}), "frequency_penalty"),
            (json!({"response_format": {"type": "json_object"}}), "response_format"),
            (json!({"echo": true}), "echo"),
            (json!({"best_of": 3}), "best_of"),
        ];
        for (body, name) in cases {
            let error = parse(&body).unwrap_err().to_json();
            assert_eq!(error["error"]["param"], name, "{body}");
            assert!(error["error"]["message"].as_str().unwrap().contains(name), "{body}: {error}");
        }
    }

    #[test]
    fn what_clients_send_out_of_habit_is_accepted() {
        for body in [
            json!({"n": 1, "tools": [], "logprobs": false, "top_logprobs": 0, "logit_bias": {}, "frequency_penalty": 0}),
            json!({"n": null, "tools": null, "logprobs": null, "stop": null, "seed": null, "max_tokens": null}),
            json!({"user": "u", "store": true, "metadata": {"a": "b"}, "parallel_tool_calls": true, "service_tier": "auto"}),
            json!({"tool_choice": "none", "response_format": {"type": "text"}, "presence_penalty": 0.0, "best_of": 1}),
            json!({"an_unknown_field": [1, 2, 3], "stop": [], "seed": -1, "suffix": ""}),
            json!({"stream_options": {"include_usage": true}}),
            json!({"frequency_penalty": null, "presence_penalty": null, "n": 1.0, "top_k": 40.0, "max_tokens": 5.0}),
        ] {
            assert!(parse(&body).is_ok(), "{body}: {:?}", parse(&body));
        }
    }

    #[test]
    fn minus_one_and_zero_mean_what_other_local_servers_take_them_for() {
        let params = parse(&json!({"max_tokens": -1, "top_k": -1, "top_p": 0})).unwrap();
        assert_eq!((params.max_tokens, params.sampling.top_k), (Some(u32::MAX), 0));
        assert_eq!(params.sampling.top_p, 0.0, "the likeliest only");
        let params = parse(&json!({"max_tokens": 5, "max_completion_tokens": -1.0})).unwrap();
        assert_eq!(params.max_tokens, Some(u32::MAX), "the newer name wins");
    }

    #[test]
    fn values_arrive() {
        let params = parse(&json!({
            "temperature": 0, "top_p": 0.5, "min_p": 0.25, "top_k": 7, "repeat_penalty": 1.5, "seed": 18446744073709551615u64,
            "max_tokens": 5, "max_completion_tokens": 9, "stop": ["a", "b"], "stream": true,
            "stream_options": {"include_usage": true}
        }))
        .unwrap();
        assert_eq!((params.sampling.temperature, params.sampling.top_p, params.sampling.min_p), (0.0, 0.5, 0.25));
        assert_eq!((params.sampling.top_k, params.sampling.repeat_penalty), (7, 1.5));
        assert_eq!((params.seed, params.max_tokens), (Some(u64::MAX), Some(9)));
        assert_eq!(params.stop, ["a", "b"]);
        assert!(params.stream && params.include_usage);
    }
}
