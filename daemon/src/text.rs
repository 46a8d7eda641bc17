//! Text to token ids and back, for the API: the edge to the tokenizer and the chat template. Ids only beyond this point.
//!
//! What a client writes into a message never becomes a special token; what the template writes may.

use std::fmt;
use std::sync::Arc;

use plimsoll_model::gguf::Header;
use plimsoll_model::template::{ChatMessage, ChatTemplate, RenderOptions, TemplateError};
use plimsoll_model::tokenizer::{Detokenizer, Tokenizer};

use crate::http::Message;

/// Tokenizer and chat template of the model.
#[derive(Debug)]
pub(crate) struct Text {
    tokenizer: Tokenizer,
    template: ChatTemplate,
}

/// Why a text has no ids.
#[derive(Debug)]
pub(crate) enum TextError {
    /// The chat template refuses the messages: its sentence.
    Template(TemplateError),
    /// An id that the vocabulary does not have.
    UnknownId {
        /// The id.
        id: u32,
        /// Ids there are.
        n_vocab: usize,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(e) => write!(f, "{e}"),
            Self::UnknownId { id, n_vocab } => {
                write!(f, "prompt has the token id {id}, but the vocabulary has only {n_vocab} tokens")
            }
        }
    }
}

impl Text {
    /// # Errors
    /// The vocabulary or the template can't be used; one sentence.
    pub(crate) fn from_header(header: &Header) -> Result<Self, String> {
        let tokenizer = Tokenizer::from_header(header).map_err(|e| e.to_string())?;
        let template = ChatTemplate::from_header(header).map_err(|e| e.to_string())?;
        Ok(Self { tokenizer, template })
    }

    /// What a person is told of a model that brings no chat template of its own.
    pub(crate) fn template_note(&self) -> Option<String> {
        let used = match self.template.fallback_name() {
            Some(name) => format!("chats are written as {name}, which its vocabulary has"),
            None => {
                "its vocabulary has no turns that are known, so chats are refused; /v1/completions works".to_owned()
            }
        };
        self.template.is_fallback().then(|| format!("the model brings no chat template: {used}"))
    }

    /// The prompt of a chat, ready for the model's answer.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub(crate) fn chat_ids(&self, messages: &[Message]) -> Result<Vec<u32>, TextError> {
        let messages: Vec<ChatMessage> = messages.iter().map(message).collect();
        let now_unix_s = i64::try_from(crate::clock::unix_seconds()).ok();
        let options = RenderOptions { now_unix_s, ..RenderOptions::default() };
        self.template.prompt_ids(&self.tokenizer, &messages, &options).map_err(TextError::Template)
    }

    /// The prompt of a plain text: special tokens in it are what they say.
    ///
    /// # Errors
    /// None; the signature is that of [`Text::chat_ids`].
    pub(crate) fn prompt_ids(&self, text: &str) -> Result<Vec<u32>, TextError> {
        Ok(self.tokenizer.encode_prompt(text, true, true))
    }

    /// # Errors
    /// An id that the vocabulary does not have.
    pub(crate) fn check_ids(&self, ids: &[u32]) -> Result<(), TextError> {
        let n_vocab = self.tokenizer.n_vocab();
        match ids.iter().find(|id| **id as usize >= n_vocab) {
            Some(id) => Err(TextError::UnknownId { id: *id, n_vocab }),
            None => Ok(()),
        }
    }
}

fn message(message: &Message) -> ChatMessage {
    ChatMessage {
        role: message.role.name().into(),
        // A template that adds texts up can't add none: a turn without text is an empty one.
        content: Some(message.content.clone()),
        extra: message.extra.clone(),
    }
}

/// Where an answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// A text of its own: the space that some tokenizers put before every text is dropped.
    Anew,
    /// Behind the prompt's last word.
    Midway,
}

/// The ids of one answer on their way to text.
pub(crate) struct TextStream {
    text: Arc<Text>,
    detokenizer: Detokenizer,
}

impl TextStream {
    pub(crate) fn new(text: Arc<Text>, begin: Begin) -> Self {
        let detokenizer = match begin {
            Begin::Anew => Detokenizer::new(&text.tokenizer),
            Begin::Midway => Detokenizer::continuing(),
        };
        Self { text, detokenizer }
    }

    /// The text that is whole with this id: never a part of a character, nothing for a special token.
    pub(crate) fn push(&mut self, id: u32) -> String {
        self.detokenizer.push(&self.text.tokenizer, id)
    }

    /// What is left of an incomplete character.
    pub(crate) fn finish(&mut self) -> String {
        self.detokenizer.finish()
    }
}
