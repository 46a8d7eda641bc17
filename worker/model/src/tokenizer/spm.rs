//! SentencePiece-style tokens: a text is its characters, neighbours are merged by the score of what they make.

use super::TokenizerError;
use super::vocab::{TokenKind, Vocab};
use crate::gguf::Header;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// How this kind of vocabulary writes a space: U+2581.
pub(super) const SPACE: &str = "\u{2581}";

/// End of a chain.
const NONE: u32 = u32::MAX;

pub(super) struct Spm {
    scores: Box<[f32]>,
    /// The token of each raw byte, written `<0xXX>`; else the unknown token; else none.
    byte_ids: [Option<u32>; 256],
    /// Whether a text that does not follow another starts with a space.
    pub(super) add_space_prefix: bool,
}

/// A stretch of the text, in a chain. Empty when it was merged away.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    n_bytes: u32,
    prev: u32,
    next: u32,
}

/// A merge that was possible when it was queued.
struct Candidate {
    score: f32,
    left: u32,
    right: u32,
    n_bytes: u32,
}

impl Ord for Candidate {
    /// Higher score first, then leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl Spm {
    pub(super) fn from_header(header: &Header, vocab: &Vocab, unknown: Option<u32>) -> Result<Self, TokenizerError> {
        let mut byte_ids = [unknown; 256];
        for (byte, id) in byte_ids.iter_mut().enumerate() {
            let found = vocab.id(format!("<0x{byte:02X}>").as_bytes());
            *id = found.filter(|id| vocab.kind(*id) == TokenKind::Byte).or(*id);
        }
        let add_space_prefix = header.metadata.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Self { scores: scores(header, vocab.len())?, byte_ids, add_space_prefix })
    }

    /// Appends the ids of `text`, which holds no special token. `follows` says whether other text stands right before it.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, follows: bool, out: &mut Vec<u32>) {
        let prefix = if self.add_space_prefix && !follows { SPACE } else { "" };
        let text = format!("{prefix}{}", text.replace(' ', SPACE));
        let mut symbols = symbols(&text);
        let mut queue = BinaryHeap::new();
        for left in 0..(symbols.len() as u32).saturating_sub(1) {
            self.propose(vocab, &text, &symbols, &mut queue, (left, left + 1));
        }
        while let Some(Candidate { left, right, n_bytes, .. }) = queue.pop() {
            let (l, r) = (symbols[left as usize], symbols[right as usize]);
            // Stale: one of the two was merged with another since.
            if l.n_bytes == 0 || r.n_bytes == 0 || l.n_bytes + r.n_bytes != n_bytes {
                continue;
            }
            symbols[left as usize] = Symbol { n_bytes, next: r.next, ..l };
            symbols[right as usize].n_bytes = 0;
            if r.next != NONE {
                symbols[r.next as usize].prev = left;
                self.propose(vocab, &text, &symbols, &mut queue, (left, r.next));
            }
            if l.prev != NONE {
                self.propose(vocab, &text, &symbols, &mut queue, (l.prev, left));
            }
        }
        for symbol in symbols.iter().filter(|symbol| symbol.n_bytes > 0) {
            let bytes = bytes_of(&text, symbol);
            match vocab.id(bytes).filter(|id| vocab.kind(*id) != TokenKind::Control) {
                Some(id) => out.push(id),
                None => out.extend(bytes.iter().filter_map(|byte| self.byte_ids[usize::from(*byte)])),
            }
        }
    }

    fn propose(
        &self,
        vocab: &Vocab,
        text: &str,
        symbols: &[Symbol],
        queue: &mut BinaryHeap<Candidate>,
        (left, right): (u32, u32),
    ) {
        let (l, r) = (symbols[left as usize], symbols[right as usize]);
        let n_bytes = l.n_bytes + r.n_bytes;
        if n_bytes as usize > vocab.max_token_bytes() {
            return;
        }
        let both = Symbol { n_bytes, ..l };
        if let Some(id) = vocab.id(bytes_of(text, &both)) {
            let score = self.scores.get(id as usize).copied().unwrap_or(0.0);
            queue.push(Candidate { score, left, right, n_bytes });
        }
    }
}

fn bytes_of<'t>(text: &'t str, symbol: &Symbol) -> &'t [u8] {
    &text.as_bytes()[symbol.start as usize..(symbol.start + symbol.n_bytes) as usize]
}

/// One symbol for each character.
fn symbols(text: &str) -> Vec<Symbol> {
    // Positions are 32 bits: a text comes in a frame of at most 16 MiB; of a longer one nothing behind 4 GiB is read.
    let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
    for (i, (start, c)) in text.char_indices().take_while(|(start, _)| u32::try_from(*start + 4).is_ok()).enumerate() {
        let i = i as u32;
        symbols.push(Symbol {
            start: start as u32,
            n_bytes: c.len_utf8() as u32,
            prev: i.wrapping_sub(1),
            next: i + 1,
        });
    }
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

fn scores(header: &Header, n_tokens: usize) -> Result<Box<[f32]>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.scores";
    let Some(numbers) = header.metadata.opt_numbers(KEY)? else { return Ok(vec![0.0; n_tokens].into()) };
    if numbers.len() != n_tokens {
        let why = format!("has {} entries for {n_tokens} tokens", numbers.len());
        return Err(TokenizerError::Invalid { key: KEY, why });
    }
    let mut scores = Vec::with_capacity(n_tokens);
    for (id, number) in numbers.iter().enumerate() {
        match number.as_f64() {
            Some(score) if !score.is_nan() => scores.push(score as f32),
            Some(_) | None => {
                let why = format!("says {number} for token {id}");
                return Err(TokenizerError::Invalid { key: KEY, why });
            }
        }
    }
    Ok(scores.into())
}
