//! The JSON of an answer, whole and in chunks, for both endpoints. The order of the chunks is `stream`'s.

use serde_json::{Value, json};

/// Which endpoint is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// Why an answer ended, for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model or a stop string ended it.
    Stop,
    /// It reached `max_tokens` or the end of the context.
    Length,
}

impl FinishReason {
    const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// Token counts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Tokens of the prompt.
    pub(crate) n_prompt: usize,
    /// Tokens of the answer.
    pub(crate) n_completion: usize,
}

impl Usage {
    fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_completion,
            "total_tokens": self.n_prompt + self.n_completion,
        })
    }
}

/// What all chunks of one answer share.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// The endpoint.
    pub(crate) kind: Kind,
    /// `id`.
    pub(crate) id: String,
    /// `created`, in seconds since 1970.
    pub(crate) created_s: u64,
    /// `model`.
    pub(crate) model: String,
    /// `system_fingerprint`.
    pub(crate) fingerprint: String,
    /// Whether the stream closes with counts; then every other chunk says `"usage": null`.
    pub(crate) include_usage: bool,
}

impl Shape {
    /// The whole answer.
    pub(crate) fn whole(&self, text: &str, finish: FinishReason, usage: Usage) -> Value {
        let (object, choice) = match self.kind {
            Kind::Chat => {
                ("chat.completion", json!({"message": {"role": "assistant", "content": text, "refusal": null}}))
            }
            Kind::Text => ("text_completion", json!({ "text": text })),
        };
        let mut body = self.envelope(object, &[with_finish(choice, Some(finish))]);
        body["usage"] = usage.to_json();
        body
    }

    /// The first chunk of a stream, where the endpoint has one.
    pub(crate) fn first(&self) -> Option<Value> {
        match self.kind {
            Kind::Chat => Some(self.chunk(with_finish(json!({"delta": {"role": "assistant", "content": ""}}), None))),
            Kind::Text => None,
        }
    }

    /// A chunk of text.
    pub(crate) fn text(&self, text: &str) -> Value {
        let choice = match self.kind {
            Kind::Chat => json!({"delta": {"content": text}}),
            Kind::Text => json!({ "text": text }),
        };
        self.chunk(with_finish(choice, None))
    }

    /// The chunk that says why the answer ended.
    pub(crate) fn last(&self, finish: FinishReason) -> Value {
        let choice = match self.kind {
            Kind::Chat => json!({"delta": {}}),
            Kind::Text => json!({"text": ""}),
        };
        self.chunk(with_finish(choice, Some(finish)))
    }

    /// The chunk of counts, without choices.
    pub(crate) fn usage(&self, usage: Usage) -> Value {
        let mut body = self.envelope(self.chunk_object(), &[]);
        body["usage"] = usage.to_json();
        body
    }

    fn chunk(&self, choice: Value) -> Value {
        let mut body = self.envelope(self.chunk_object(), &[choice]);
        if self.include_usage {
            body["usage"] = Value::Null;
        }
        body
    }

    const fn chunk_object(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Text => "text_completion",
        }
    }

    fn envelope(&self, object: &str, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        })
    }
}

fn with_finish(mut choice: Value, finish: Option<FinishReason>) -> Value {
    choice["index"] = 0.into();
    choice["logprobs"] = Value::Null;
    choice["finish_reason"] = finish.map(FinishReason::name).into();
    choice
}
