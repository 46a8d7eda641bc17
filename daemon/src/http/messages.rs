//! The messages of a chat request: from JSON to typed values. Only text; what else a client may send is named in the refusal.

use plimsoll_config::limits::MAX_CHAT_MESSAGES;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::Fields;

/// One message of a chat.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    /// Who speaks.
    pub(crate) role: Role,
    /// The text; parts of a list are joined by a line break. Empty beside tool calls.
    pub(crate) content: String,
    /// Further fields that chat templates look at: [`EXTRA_FIELDS`], as they came.
    pub(crate) extra: Map<String, Value>,
}

/// Fields of a message that are handed to the chat template. A chat that was begun elsewhere may have tool calls in it.
const EXTRA_FIELDS: [&str; 4] = ["name", "tool_calls", "tool_call_id", "reasoning_content"];

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Instructions; `developer` is the newer word for it.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// What a tool gave.
    Tool,
}

impl Role {
    /// The name that chat templates know.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// # Errors
/// 400 with a sentence that names the message.
pub(crate) fn parse(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let wrong = || {
        ApiError::param(
            "messages",
            format!("messages must be a list of 1 to {MAX_CHAT_MESSAGES} objects with role and content"),
        )
    };
    let list = fields.get("messages").and_then(Value::as_array).ok_or_else(wrong)?;
    if list.is_empty() || list.len() > MAX_CHAT_MESSAGES {
        return Err(wrong());
    }
    list.iter().enumerate().map(|(i, message)| one(&format!("messages[{i}]"), message)).collect()
}

fn one(name: &str, message: &Value) -> Result<Message, ApiError> {
    let Some(object) = message.as_object() else {
        return Err(ApiError::param(name, format!("{name} must be an object with role and content")));
    };
    let role = role(&format!("{name}.role"), &message["role"])?;
    let content = content(&format!("{name}.content"), role, &message["content"])?;
    let extra = object.iter().filter(|(key, value)| EXTRA_FIELDS.contains(&key.as_str()) && !value.is_null());
    Ok(Message { role, content, extra: extra.map(|(key, value)| (key.clone(), value.clone())).collect() })
}

fn role(name: &str, role: &Value) -> Result<Role, ApiError> {
    match role.as_str() {
        Some("system" | "developer") => Ok(Role::System),
        Some("user") => Ok(Role::User),
        Some("assistant") => Ok(Role::Assistant),
        Some("tool") => Ok(Role::Tool),
        Some(_) | None => {
            Err(ApiError::param(name, format!("{name} must be system, developer, user, assistant or tool, not {role}")))
        }
    }
}

fn content(name: &str, role: Role, content: &Value) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        // Beside tool calls, and what clients keep of an answer that was stopped before its first word.
        Value::Null if role == Role::Assistant => Ok(String::new()),
        Value::Array(parts) => {
            let texts: Vec<&str> =
                parts.iter().enumerate().map(|(i, p)| part(&format!("{name}[{i}]"), p)).collect::<Result<_, _>>()?;
            Ok(texts.join("\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(ApiError::param(name, format!("{name} must be a string or a list of {{\"type\": \"text\"}} parts")))
        }
    }
}

fn part<'a>(name: &str, part: &'a Value) -> Result<&'a str, ApiError> {
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text),
        (Some("text"), None) => Err(ApiError::param(name, format!("{name}.text must be a string"))),
        (Some(other), _) => Err(ApiError::unsupported(
            name,
            format!("{name} is of type {other:?}, which is not supported by this server; only \"text\" is"),
        )),
        (None, _) => Err(ApiError::param(name, format!("{name} must be an object with type \"text\" and text"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Fields, Message, Role, parse};

    fn messages(list: &serde_json::Value) -> Result<Vec<Message>, super::ApiError> {
        parse(&Fields::parse(json!({ "messages": list }).to_string().as_bytes()).unwrap())
    }

    #[test]
    fn roles_and_kinds_of_content() {
        let parsed = messages(&json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x"},
            {"role": "assistant", "content": null, "tool_calls": []},
            {"role": "tool", "content": "4", "tool_call_id": "c1", "elsewhere": 1},
            {"role": "user", "content": ""},
        ]))
        .unwrap();
        let seen: Vec<(Role, &str)> = parsed.iter().map(|m| (m.role, m.content.as_str())).collect();
        assert_eq!(
            seen,
            [
                (Role::System, "be brief"),
                (Role::User, "a\nb"),
                (Role::Assistant, ""),
                (Role::Tool, "4"),
                (Role::User, "")
            ]
        );
        assert_eq!(serde_json::Value::Object(parsed[3].extra.clone()), json!({"tool_call_id": "c1"}));
    }

    #[test]
    fn a_refusal_names_the_message() {
        let cases = [
            (json!([]), "messages"),
            (json!("hello"), "messages"),
            (json!(["hello"]), "messages[0]"),
            (json!([{"content": "x"}]), "messages[0].role"),
            (json!([{"role": "king", "content": "x"}]), "messages[0].role"),
            (json!([{"role": "tool", "content": null}]), "messages[0].content"),
            (json!([{"role": "user"}]), "messages[0].content"),
            (json!([{"role": "user", "content": 5}]), "messages[0].content"),
            (json!([{"role": "user", "content": "x"}, {"role": "user", "content": ["x"]}]), "messages[1].content[0]"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content[0]"),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0]"),
        ];
        for (list, name) in cases {
            let error = messages(&list).unwrap_err().to_json();
            assert_eq!(error["error"]["param"], name, "{list}");
        }
    }
}
