//! Chat templates: messages to a prompt's pieces, as the model was trained to see them.
//!
//! The template comes with the model and may be hostile; messages come from clients and may be hostile. So rendering has a budget
//! of steps (which also bounds memory), a bound on output, no clock and no files, and the text of a message can't become a
//! control token: see `marks.rs`.
//!
//! ```text
//! messages ─ mark ─► values ─ render ─► text ─ cut at control tokens ─ strip marks ─► pieces ─► ids
//! ```

mod fallback;
mod functions;
mod marks;

use crate::gguf::{Header, MetadataError};
use crate::tokenizer::{Stretch, Tokenizer};
use fallback::Fallback;
use functions::{Bounded, Raised};
use marks::Marks;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, ErrorKind, Value};
use plimsoll_config::limits::{
    MAX_TEMPLATE_BYTES, TEMPLATE_FUEL_BASE, TEMPLATE_FUEL_PER_BYTE, TEMPLATE_OUTPUT_EXTRA_BYTES,
};
use serde_json::Value as Json;

/// Name of the template inside the engine.
const NAME: &str = "chat";

/// Why a prompt can't be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateError {
    /// The key is there, but holds no text.
    Metadata(MetadataError),
    /// The template is too long to be one.
    TooLong {
        /// Its length.
        n_bytes: usize,
    },
    /// The template is not valid.
    Syntax {
        /// Line in the template, from 1; 0 when unknown.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The template itself refused the messages: its own words.
    Refused {
        /// What it said.
        why: String,
    },
    /// Rendering failed.
    Render {
        /// Line in the template, from 1; 0 when unknown.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The template took too many steps or made too much.
    OverBudget,
    /// The file brings no template, and its vocabulary has the tokens of no known one.
    NoTemplate,
}

impl From<MetadataError> for TemplateError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Metadata(error) => error.fmt(f),
            Self::TooLong { n_bytes } => {
                write!(f, "the model's chat template has {n_bytes} bytes, over the limit of {MAX_TEMPLATE_BYTES}")
            }
            Self::Syntax { line, why } => write!(f, "the model's chat template is not valid (line {line}): {why}"),
            Self::Refused { why } => write!(f, "the model's chat template refuses these messages: {why}"),
            Self::Render { line, why } => {
                write!(f, "the model's chat template can't render these messages (line {line}): {why}")
            }
            Self::OverBudget => {
                f.write_str("the model's chat template takes too many steps or writes too much for these messages")
            }
            Self::NoTemplate => f.write_str(
                "the model brings no chat template, and its vocabulary has the turns of no known one: send the prompt as text \
                 to /v1/completions, or use a model file with a chat template",
            ),
        }
    }
}

impl std::error::Error for TemplateError {}

/// One message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatMessage {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, …
    pub role: String,
    /// What is said; `None` is the template's `none`, as beside tool calls.
    pub content: Option<String>,
    /// Further fields that templates look at: `name`, `tool_calls`, `tool_call_id`, `reasoning_content`, …
    pub extra: serde_json::Map<String, Json>,
}

impl ChatMessage {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(content.into()), extra: serde_json::Map::new() }
    }

    /// With a further field.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: Json) -> Self {
        self.extra.insert(key.into(), value);
        self
    }
}

/// What a prompt is made with.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderOptions {
    /// Whether the prompt ends where the assistant begins to speak.
    pub add_generation_prompt: bool,
    /// Tools the model may call: a JSON list, or `None`.
    pub tools: Option<Json>,
    /// Further variables of the template, such as `enable_thinking`.
    pub extra: serde_json::Map<String, Json>,
    /// Seconds since 1970 for `strftime_now`; `None`: the template finds the function undefined.
    pub now_unix_s: Option<i64>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, tools: None, extra: serde_json::Map::new(), now_unix_s: None }
    }
}

/// A stretch of a rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A control token that the template wrote.
    Special(u32),
    /// Text: no control token is looked for in it.
    Text(String),
}

/// Where a template came from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// The model's own, or given by a caller.
    Given,
    /// The file brings none; its vocabulary has the tokens of this one.
    Fallback(&'static Fallback),
    /// The file brings none, and none fits.
    Nowhere,
}

/// A model's chat template. Immutable: share it between threads.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    origin: Origin,
}

impl ChatTemplate {
    /// The template of a header. When it has none, the one whose control tokens the vocabulary has: see
    /// [`ChatTemplate::is_fallback`]. When there is no such one either, rendering is refused.
    ///
    /// # Errors
    /// [`TemplateError::Metadata`], [`TemplateError::TooLong`], [`TemplateError::Syntax`].
    pub fn from_header(header: &Header) -> Result<Self, TemplateError> {
        if let Some(source) = header.metadata.opt_str("tokenizer.chat_template")? {
            return Self::new(source);
        }
        match fallback::of_vocabulary(header)? {
            Some(fallback) => Ok(Self { origin: Origin::Fallback(fallback), ..Self::new(fallback.source)? }),
            None => Ok(Self { origin: Origin::Nowhere, ..Self::new("")? }),
        }
    }

    /// A template from its source.
    ///
    /// # Errors
    /// [`TemplateError::TooLong`], [`TemplateError::Syntax`].
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong { n_bytes: source.len() });
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| syntax_error(&e))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", functions::tojson);
        environment.add_function("raise_exception", functions::raise_exception);
        let source = without_generation_tags(source);
        environment.add_template_owned(NAME, source.clone()).map_err(|e| syntax_error(&e))?;
        Ok(Self { environment, source, origin: Origin::Given })
    }

    /// Whether the model brings no template of its own: say so to the user, and [which](ChatTemplate::fallback_name) is used.
    pub fn is_fallback(&self) -> bool {
        match self.origin {
            Origin::Given => false,
            Origin::Fallback(_) | Origin::Nowhere => true,
        }
    }

    /// What chats are written as in place of the model's own template; `None` when it has one, and when none fits.
    pub fn fallback_name(&self) -> Option<&'static str> {
        match self.origin {
            Origin::Given | Origin::Nowhere => None,
            Origin::Fallback(fallback) => Some(fallback.name),
        }
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages to pieces.
    ///
    /// # Errors
    /// [`TemplateError::Refused`], [`TemplateError::Render`], [`TemplateError::OverBudget`], [`TemplateError::NoTemplate`].
    pub fn render(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage],
        options: &RenderOptions,
    ) -> Result<Vec<Piece>, TemplateError> {
        if matches!(self.origin, Origin::Nowhere) {
            return Err(TemplateError::NoTemplate);
        }
        let texts = all_texts(messages, options);
        let input_bytes = texts.iter().map(|text| text.len()).fold(0, usize::saturating_add);
        let marks = Marks::new(tokenizer, &self.source, texts.into_iter());
        let context = context(tokenizer, &marks, messages, options);
        let text = self.render_text(context, input_bytes).map_err(|error| match error {
            TemplateError::Refused { why } => TemplateError::Refused { why: marks.strip(&why) },
            TemplateError::Render { line, why } => TemplateError::Render { line, why: marks.strip(&why) },
            other => other,
        })?;
        let mut pieces = Vec::new();
        for stretch in tokenizer.split_control(&text, |id| marks.recognises(id)) {
            match stretch {
                Stretch::Token(id) => pieces.push(Piece::Special(id)),
                Stretch::Text(text) => pieces.push(Piece::Text(marks.strip(text))),
            }
        }
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Ok(pieces)
    }

    /// Renders messages to the ids of a prompt, with BOS before it if the model asks for one and the template wrote none.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn prompt_ids(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage],
        options: &RenderOptions,
    ) -> Result<Vec<u32>, TemplateError> {
        let pieces = self.render(tokenizer, messages, options)?;
        let mut ids = tokenizer.encode_pieces(pieces.iter().map(|piece| match piece {
            Piece::Special(id) => Stretch::Token(*id),
            Piece::Text(text) => Stretch::Text(text),
        }));
        if let Some(bos) = tokenizer.bos()
            && tokenizer.adds_bos()
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn render_text(&self, context: Value, input_bytes: usize) -> Result<String, TemplateError> {
        let mut environment = self.environment.clone();
        let per_byte = (input_bytes as u64).saturating_mul(TEMPLATE_FUEL_PER_BYTE);
        environment.set_fuel(Some(per_byte.saturating_add(TEMPLATE_FUEL_BASE)));
        let limit_bytes = input_bytes.saturating_mul(2).saturating_add(TEMPLATE_OUTPUT_EXTRA_BYTES);
        let mut out = Bounded { bytes: Vec::new(), limit_bytes };
        let template = environment.get_template(NAME).map_err(|e| render_error(&e))?;
        template.render_captured_to(context, &mut out).map_err(|e| render_error(&e))?;
        // Cannot fail: the engine writes whole strings.
        String::from_utf8(out.bytes).map_err(|e| TemplateError::Render { line: 0, why: e.to_string() })
    }
}

/// Every text of a request that a client wrote.
fn all_texts<'r>(messages: &'r [ChatMessage], options: &'r RenderOptions) -> Vec<&'r str> {
    let mut texts = Vec::new();
    let map = |map: &'r serde_json::Map<String, Json>, texts: &mut Vec<&'r str>| {
        for (key, value) in map {
            texts.push(key.as_str());
            marks::for_each_text(value, &mut |text| texts.push(text));
        }
    };
    for message in messages {
        texts.push(message.role.as_str());
        texts.extend(message.content.as_deref());
        map(&message.extra, &mut texts);
    }
    if let Some(tools) = &options.tools {
        marks::for_each_text(tools, &mut |text| texts.push(text));
    }
    map(&options.extra, &mut texts);
    texts
}

fn context(tokenizer: &Tokenizer, marks: &Marks<'_>, messages: &[ChatMessage], options: &RenderOptions) -> Value {
    let message = |message: &ChatMessage| {
        let content = message.content.as_ref().map_or(Value::from(()), |text| marks.text(text).into());
        let own = [("role".to_owned(), marks.role(&message.role)), ("content".to_owned(), content)];
        // A further field can't stand in for one of these two.
        let extra = message.extra.iter().filter(|(key, _)| !matches!(key.as_str(), "role" | "content"));
        Value::from_pairs(own.into_iter().chain(extra.map(|(key, value)| (marks.text(key), marks.json(value)))))
    };
    let token = |id: Option<u32>| {
        Value::from(id.map_or(String::new(), |id| String::from_utf8_lossy(tokenizer.piece(id)).into_owned()))
    };
    let mut variables: Vec<(String, Value)> =
        options.extra.iter().map(|(key, value)| (key.clone(), marks.json(value))).collect();
    variables.extend([
        ("messages".to_owned(), Value::from_iter(messages.iter().map(message))),
        ("tools".to_owned(), options.tools.as_ref().map_or(Value::from(()), |tools| marks.json(tools))),
        ("add_generation_prompt".to_owned(), options.add_generation_prompt.into()),
        ("bos_token".to_owned(), token(tokenizer.bos())),
        ("eos_token".to_owned(), token(tokenizer.eos())),
    ]);
    if let Some(unix_s) = options.now_unix_s {
        let now = Value::from_function(move |format: String| functions::strftime(&format, unix_s));
        variables.push(("strftime_now".to_owned(), now));
    }
    Value::from_pairs(variables)
}

/// `{% generation %} … {% endgeneration %}` marks what a trainer learns from; for a prompt it is nothing.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(end) = rest[at..].find("%}").map(|end| at + end) else { break };
        let tag = rest[at + 2..end].trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        let replacement = match tag {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match replacement {
            Some(with) => {
                out.push_str(&rest[..at]);
                out.push_str(&rest[at..end + 2].replacen(tag, with, 1));
            }
            None => out.push_str(&rest[..end + 2]),
        }
        rest = &rest[end + 2..];
    }
    out.push_str(rest);
    out
}

fn sentence(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn syntax_error(error: &minijinja::Error) -> TemplateError {
    TemplateError::Syntax { line: error.line().unwrap_or(0), why: sentence(error) }
}

fn render_error(error: &minijinja::Error) -> TemplateError {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(Raised(why)) = inner.downcast_ref() {
            return TemplateError::Refused { why: why.clone() };
        }
        source = inner.source();
    }
    match error.kind() {
        ErrorKind::OutOfFuel | ErrorKind::WriteFailure => TemplateError::OverBudget,
        _ => TemplateError::Render { line: error.line().unwrap_or(0), why: sentence(error) },
    }
}
