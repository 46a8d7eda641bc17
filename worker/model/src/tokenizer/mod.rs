//! Text to ids and back, from a header's metadata alone.
//!
//! Two kinds: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and SentencePiece-style (`llama`). Both sides use it: the daemon to
//! count before it admits, the offline commands to run. Ids are those of llama.cpp; golden pairs are the tests.
//!
//! ```text
//! text ─► special tokens cut out ─► words (BPE) or characters (SPM) ─► merges ─► ids
//! ```

mod bpe;
mod detokenizer;
mod pre;
mod special;
mod spm;
mod vocab;

pub use detokenizer::Detokenizer;

use crate::gguf::{Header, MetadataError, StringArray};
use bpe::Bpe;
use special::{ControlIndex, Fragment, SpecialTokens};
use spm::Spm;
use std::sync::OnceLock;
use vocab::{TokenKind, Vocab};

/// Why a header gives no tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerError {
    /// A key is missing or has the wrong type.
    Metadata(MetadataError),
    /// A kind of tokenizer this build does not have.
    UnknownModel {
        /// The value of `tokenizer.ggml.model`.
        found: String,
    },
    /// A way to cut words this build does not have.
    UnknownPre {
        /// The value of `tokenizer.ggml.pre`.
        found: String,
        /// What is known.
        known: String,
    },
    /// A key's value can't be.
    Invalid {
        /// The key.
        key: &'static str,
        /// What is wrong, as the rest of a sentence.
        why: String,
    },
}

impl From<MetadataError> for TokenizerError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl std::fmt::Display for TokenizerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Metadata(error) => error.fmt(f),
            Self::UnknownModel { found } => {
                write!(f, "tokenizer \"{found}\" is unknown to this build; known are gpt2 and llama")
            }
            Self::UnknownPre { found, known } => {
                write!(f, "pre-tokenizer \"{found}\" (tokenizer.ggml.pre) is unknown to this build; known are {known}")
            }
            Self::Invalid { key, why } => write!(f, "\"{key}\" {why}; the file is damaged"),
        }
    }
}

impl std::error::Error for TokenizerError {}

/// The two kinds.
enum Model {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

/// Texts of tokens that end an answer, whatever the metadata says of them; from the templates of models in use.
static END_TEXTS: [&str; 14] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
    "<\u{FF5C}end\u{2581}of\u{2581}sentence\u{FF5C}>",
];

/// A model's tokenizer. Immutable: share it between threads.
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    special: SpecialTokens,
    /// Raw bytes of each token.
    pieces: StringArray,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    adds_eos: bool,
    /// Sorted.
    end_of_generation: Vec<u32>,
    /// Made when a template first needs it.
    control_index: OnceLock<ControlIndex>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("n_vocab", &self.vocab.len()).field("bos", &self.bos).finish_non_exhaustive()
    }
}

/// A stretch of a prompt, for [`Tokenizer::encode_pieces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch<'t> {
    /// A token as it is.
    Token(u32),
    /// Text in which no control token is looked for.
    Text(&'t str),
}

impl Tokenizer {
    /// Builds the tokenizer a header describes.
    ///
    /// # Errors
    /// A [`TokenizerError`] that names the key.
    pub fn from_header(header: &Header) -> Result<Self, TokenizerError> {
        let metadata = &header.metadata;
        let vocab = Vocab::from_header(header)?;
        let id = |key: &'static str| match metadata.opt_u32(key)? {
            Some(id) if id as usize >= vocab.len() => {
                let why = format!("is {id}, the vocabulary has {} tokens", vocab.len());
                Err(TokenizerError::Invalid { key, why })
            }
            id => Ok(id),
        };
        let model = match metadata.str("tokenizer.ggml.model")? {
            "gpt2" => Model::Bpe(Box::new(Bpe::from_header(header, &vocab)?)),
            "llama" => {
                let unknown = id("tokenizer.ggml.unknown_token_id")?;
                Model::Spm(Box::new(Spm::from_header(header, &vocab, unknown)?))
            }
            found => return Err(TokenizerError::UnknownModel { found: found.escape_debug().to_string() }),
        };
        let bos = id("tokenizer.ggml.bos_token_id")?;
        let eos = id("tokenizer.ggml.eos_token_id")?;
        let adds_bos_by_default = match &model {
            Model::Bpe(bpe) => bpe.adds_bos_by_default(),
            Model::Spm(_) => true,
        };
        let adds_bos = metadata.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos_by_default);
        let adds_eos = metadata.opt_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        let special = SpecialTokens::new(&vocab);
        let mut end_of_generation: Vec<u32> = END_TEXTS
            .iter()
            .filter_map(|text| vocab.id(text.as_bytes()))
            .filter(|id| vocab.kind(*id).is_special())
            .collect();
        end_of_generation.extend(eos);
        end_of_generation.extend(id("tokenizer.ggml.eot_token_id")?);
        end_of_generation.extend(id("tokenizer.ggml.eom_token_id")?);
        end_of_generation.sort_unstable();
        end_of_generation.dedup();
        let pieces = pieces(&vocab, &model);
        Ok(Self {
            vocab,
            model,
            special,
            pieces,
            bos,
            eos,
            adds_bos,
            adds_eos,
            end_of_generation,
            control_index: OnceLock::new(),
        })
    }

    /// The ids of `text`; no BOS or EOS is added. With `parse_special`, control tokens written in the text are taken as such;
    /// without, they are plain text. Tokens defined by the model's users (`<table>`, runs of newlines) are found either way.
    pub fn encode(&self, text: &str, parse_special: bool) -> Vec<u32> {
        let mut out = Vec::new();
        let wanted = |_, kind| parse_special || kind == TokenKind::UserDefined;
        let fragments = self.special.split(&self.vocab, text, wanted);
        self.encode_fragments(fragments.into_iter(), &mut out);
        out
    }

    /// The ids of `text`, with BOS before and EOS after it if `add_special` and the model's metadata asks for them. A text that
    /// already starts with BOS gets no second one.
    pub fn encode_prompt(&self, text: &str, parse_special: bool, add_special: bool) -> Vec<u32> {
        self.with_ends(self.encode(text, parse_special), add_special)
    }

    /// The ids of a prompt whose tokens and texts are told apart already. In texts only user-defined tokens are looked for.
    pub fn encode_pieces<'t>(&self, pieces: impl IntoIterator<Item = Stretch<'t>>) -> Vec<u32> {
        let mut out = Vec::new();
        let mut fragments = Vec::new();
        for piece in pieces {
            match piece {
                Stretch::Token(id) => fragments.push(Fragment::Token(id)),
                Stretch::Text(text) => {
                    fragments.extend(self.special.split(&self.vocab, text, |_, kind| kind == TokenKind::UserDefined));
                }
            }
        }
        self.encode_fragments(fragments.into_iter(), &mut out);
        out
    }

    /// Adds BOS and EOS as the metadata asks, but never a second BOS.
    pub fn with_ends(&self, mut ids: Vec<u32>, add_special: bool) -> Vec<u32> {
        if !add_special {
            return ids;
        }
        if let Some(bos) = self.bos
            && self.adds_bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        if let Some(eos) = self.eos
            && self.adds_eos
        {
            ids.push(eos);
        }
        ids
    }

    fn encode_fragments<'t>(&self, fragments: impl Iterator<Item = Fragment<'t>>, out: &mut Vec<u32>) {
        let mut scratch = bpe::Scratch::default();
        let mut follows = false;
        for fragment in fragments {
            match (fragment, &self.model) {
                (Fragment::Token(id), _) => {
                    out.push(id);
                    follows = false;
                }
                (Fragment::Text(text), Model::Bpe(bpe)) => bpe.encode(&self.vocab, text, &mut scratch, out),
                (Fragment::Text(text), Model::Spm(spm)) => {
                    spm.encode(&self.vocab, text, follows, out);
                    follows = true;
                }
            }
        }
    }

    /// The text of `ids`, control tokens left out; invalid bytes become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut detokenizer = Detokenizer::new(self);
        let mut text: String = ids.iter().map(|id| detokenizer.push(self, *id)).collect();
        text.push_str(&detokenizer.finish());
        text
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether the model wants BOS before a prompt.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos && self.bos.is_some()
    }

    /// Whether every text is encoded with a space before it.
    pub fn adds_space_prefix(&self) -> bool {
        match &self.model {
            Model::Bpe(_) => false,
            Model::Spm(spm) => spm.add_space_prefix,
        }
    }

    /// Whether `id` ends an answer.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// The tokens that end an answer, in order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Raw bytes of a token: what it adds to a text. Empty for an id there is none of. Control tokens give their name.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).unwrap_or(&[])
    }

    /// Whether `id` is structure (control, unknown) or defined by the model's users, rather than learned from text.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocab.kind(id).is_special()
    }

    /// Whether `id` is structure that a text can't write.
    pub fn is_control(&self, id: u32) -> bool {
        match self.vocab.kind(id) {
            TokenKind::Control | TokenKind::Unknown => true,
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused | TokenKind::Byte => false,
        }
    }

    /// The control token called `text`, such as `<|im_start|>`.
    pub fn control_token(&self, text: &str) -> Option<u32> {
        self.vocab.id(text.as_bytes()).filter(|id| self.is_control(*id))
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// Control tokens whose text is UTF-8, with that text.
    pub(crate) fn control_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        let text = |id: u32| std::str::from_utf8(self.vocab.text(id)).ok().map(|text| (id, text));
        self.special.ids().iter().filter(|id| self.is_control(**id)).filter_map(move |id| text(*id))
    }

    /// Whether a control token that was begun before `text` could end in it, or go on behind it.
    pub(crate) fn could_finish_a_control_token(&self, text: &str) -> bool {
        let index = self.control_index.get_or_init(|| ControlIndex::new(&self.vocab, self.control_tokens()));
        index.begins_inside(&self.vocab, text.as_bytes())
    }

    /// Cuts `text` at the control tokens for which `wanted` says yes.
    pub(crate) fn split_control<'t>(&self, text: &'t str, wanted: impl Fn(u32) -> bool) -> Vec<Stretch<'t>> {
        let wanted = |id, kind| kind != TokenKind::UserDefined && wanted(id);
        let fragments = self.special.split(&self.vocab, text, wanted);
        let stretch = |fragment| match fragment {
            Fragment::Text(text) => Stretch::Text(text),
            Fragment::Token(id) => Stretch::Token(id),
        };
        fragments.into_iter().map(stretch).collect()
    }
}

/// Raw bytes of every token. None is longer than its stored text.
fn pieces(vocab: &Vocab, model: &Model) -> StringArray {
    let mut all = Vec::with_capacity(vocab.text_bytes());
    let mut ends = Vec::with_capacity(vocab.len());
    for (id, text) in vocab.texts() {
        push_piece(vocab.kind(id), text, model, &mut all);
        // Fits: stored texts are under 4 GiB together.
        ends.push(all.len() as u32);
    }
    StringArray::from_parts(all, ends)
}

fn push_piece(kind: TokenKind, text: &[u8], model: &Model, out: &mut Vec<u8>) {
    match (kind, model) {
        (TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown, _) => out.extend_from_slice(text),
        (TokenKind::Normal | TokenKind::Unused | TokenKind::Byte, Model::Bpe(_)) => {
            for chunk in text.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match bpe::byte_of_char(c) {
                        Some(byte) => out.push(byte),
                        None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                out.extend_from_slice(chunk.invalid());
            }
        }
        (TokenKind::Byte, Model::Spm(_)) => match byte_token(text) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(text),
        },
        (TokenKind::Normal | TokenKind::Unused, Model::Spm(_)) => {
            let mut rest = text;
            while let Some(at) = rest.windows(spm::SPACE.len()).position(|bytes| bytes == spm::SPACE.as_bytes()) {
                out.extend_from_slice(&rest[..at]);
                out.push(b' ');
                rest = &rest[at + spm::SPACE.len()..];
            }
            out.extend_from_slice(rest);
        }
    }
}

/// The byte of `<0xXX>`.
fn byte_token(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2 && !digits.starts_with('+'))?;
    u8::from_str_radix(digits, 16).ok()
}
