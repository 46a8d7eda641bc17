//! The vocabulary: texts, kinds and scores of tokens, and the look-up from text to id.

use super::TokenizerError;
use crate::gguf::{Header, StringArray};
use hashbrown::{DefaultHashBuilder, HashTable};
use plimsoll_config::limits::{MAX_TOKEN_BYTES, MAX_VOCAB_TOKENS};
use std::hash::BuildHasher;
use std::sync::Arc;

/// What a token is for, as GGUF numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Normal,
    Unknown,
    /// Structure: never written by a text, only by a template.
    Control,
    /// Text that is always one token, found before all else.
    UserDefined,
    Unused,
    /// One raw byte, written `<0xXX>`.
    Byte,
}

impl TokenKind {
    fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Looked for in a text before it is cut into words.
    pub(super) fn is_special(self) -> bool {
        match self {
            Self::Unknown | Self::Control | Self::UserDefined => true,
            Self::Normal | Self::Unused | Self::Byte => false,
        }
    }
}

/// Tokens by id, and ids by text.
pub(super) struct Vocab {
    texts: Arc<StringArray>,
    kinds: Box<[TokenKind]>,
    /// Ids, hashed by text. Four bytes a token: the texts are not copied.
    by_text: HashTable<u32>,
    /// Random, so that a hostile vocabulary can't choose collisions.
    hasher: DefaultHashBuilder,
    max_token_bytes: usize,
}

impl Vocab {
    pub(super) fn from_header(header: &Header) -> Result<Self, TokenizerError> {
        let texts = header.metadata.strings("tokenizer.ggml.tokens")?.clone();
        if texts.is_empty() || texts.len() > MAX_VOCAB_TOKENS {
            let why = format!("has {} tokens; 1 to {MAX_VOCAB_TOKENS} are possible", texts.len());
            return Err(TokenizerError::Invalid { key: "tokenizer.ggml.tokens", why });
        }
        let kinds = kinds(header, texts.len())?;
        let max_token_bytes = texts.iter().map(<[u8]>::len).max().unwrap_or(0);
        if max_token_bytes > MAX_TOKEN_BYTES {
            let why = format!("has a token of {max_token_bytes} bytes, over the limit of {MAX_TOKEN_BYTES}");
            return Err(TokenizerError::Invalid { key: "tokenizer.ggml.tokens", why });
        }
        let hasher = DefaultHashBuilder::default();
        let mut by_text = HashTable::with_capacity(texts.len());
        // Of equal texts the first id stays.
        for (id, text) in texts.iter().enumerate() {
            let same = |other: &u32| texts.get(*other as usize) == Some(text);
            let hash = |other: &u32| hasher.hash_one(texts.get(*other as usize).unwrap_or(&[]));
            // Fits: at most MAX_VOCAB_TOKENS.
            by_text.entry(hasher.hash_one(text), same, hash).or_insert(id as u32);
        }
        Ok(Self { texts, kinds, by_text, hasher, max_token_bytes })
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn max_token_bytes(&self) -> usize {
        self.max_token_bytes
    }

    /// The token's text as the file stores it; empty for an id there is none of.
    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).unwrap_or(&[])
    }

    /// Texts by id.
    pub(super) fn texts(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        self.texts.iter().enumerate().map(|(id, text)| (id as u32, text))
    }

    /// Bytes of all texts.
    pub(super) fn text_bytes(&self) -> usize {
        self.texts.iter().map(<[u8]>::len).sum()
    }

    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// The id of the token with this stored text.
    pub(super) fn id(&self, text: &[u8]) -> Option<u32> {
        self.by_text.find(self.hasher.hash_one(text), |id| self.text(*id) == text).copied()
    }
}

fn kinds(header: &Header, n_tokens: usize) -> Result<Box<[TokenKind]>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(numbers) = header.metadata.opt_numbers(KEY)? else {
        return Ok(vec![TokenKind::Normal; n_tokens].into());
    };
    if numbers.len() != n_tokens {
        let why = format!("has {} entries for {n_tokens} tokens", numbers.len());
        return Err(TokenizerError::Invalid { key: KEY, why });
    }
    let mut kinds = Vec::with_capacity(n_tokens);
    for (id, number) in numbers.iter().enumerate() {
        let kind = number.as_u64().and_then(TokenKind::from_number);
        kinds.push(kind.ok_or_else(|| {
            let why = format!("says {number} for token {id}; 1 to 6 are possible");
            TokenizerError::Invalid { key: KEY, why }
        })?);
    }
    Ok(kinds.into())
}
