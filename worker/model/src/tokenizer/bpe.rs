//! Byte-level byte-pair encoding: a word is its bytes, pairs are merged in the order of their rank.
//!
//! Own code rather than a library's, for two reasons that were weighed. A header may be hostile: here its merges are 16 bytes each
//! in one table, where a general library first builds maps of owned strings in both directions. And merges name tokens as the
//! file stores them, of every kind. Golden ids are its tests: equal to the reference's for every text tried.

use super::TokenizerError;
use super::pre::{PreTokenizer, known_names};
use super::vocab::{TokenKind, Vocab};
use crate::gguf::Header;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

/// No token: of a byte the vocabulary lacks, and the end of a chain.
const NONE: u32 = u32::MAX;

/// Two tokens that become one.
#[derive(Clone, Copy)]
struct Merge {
    left: u32,
    right: u32,
    rank: u32,
    merged: u32,
}

pub(super) struct Bpe {
    pre: PreTokenizer,
    /// The token of each single byte.
    byte_ids: [u32; 256],
    merges: HashTable<Merge>,
    /// Random, so that a hostile file can't choose collisions.
    hasher: DefaultHashBuilder,
}

/// A token of the word, in a chain.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    prev: u32,
    next: u32,
}

/// A merge that was possible when it was queued: lowest rank first, then leftmost.
type Candidate = Reverse<(u32, u32, u32, u32)>;

/// Buffers of one encode, reused from word to word.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
    text: Vec<u8>,
}

impl Bpe {
    pub(super) fn from_header(header: &Header, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let name = header.metadata.opt_str("tokenizer.ggml.pre")?.unwrap_or("default");
        let pre = PreTokenizer::named(name).ok_or_else(|| TokenizerError::UnknownPre {
            found: name.escape_debug().to_string(),
            known: known_names().collect::<Vec<_>>().join(", "),
        })?;
        let mut byte_ids = [NONE; 256];
        let mut buffer = [0; 4];
        for (byte, id) in byte_ids.iter_mut().enumerate() {
            *id = vocab.id(char_of_byte(byte as u8).encode_utf8(&mut buffer).as_bytes()).unwrap_or(NONE);
        }
        let hasher = DefaultHashBuilder::default();
        let merges = merges(header, vocab, &hasher)?;
        Ok(Self { pre, byte_ids, merges, hasher })
    }

    /// What is true of this kind when the file does not say.
    pub(super) fn adds_bos_by_default(&self) -> bool {
        self.pre.kind.add_bos
    }

    fn merge(&self, left: u32, right: u32) -> Option<&Merge> {
        let hash = self.hasher.hash_one(pair(left, right));
        self.merges.find(hash, |merge| merge.left == left && merge.right == right)
    }

    /// Appends the ids of `text`, which holds no special token. A byte the vocabulary lacks is left out, as the references do.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.pre.split(text, |word| {
            if self.pre.kind.ignore_merges
                && let Some(id) = whole_word(vocab, word, &mut scratch.text)
            {
                out.push(id);
            } else {
                self.encode_word(word.as_bytes(), scratch, out);
            }
        });
    }

    /// Time is n log n in the word's length: the queue never holds more than two candidates for a merge done.
    fn encode_word(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { symbols, queue, .. } = scratch;
        symbols.clear();
        queue.clear();
        let known = word.iter().map(|byte| self.byte_ids[usize::from(*byte)]).filter(|id| *id != NONE);
        for (i, id) in known.enumerate() {
            // A text is far below 2^32 bytes: a frame is at most 16 MiB; a longer one would wrap into NONE and end the chain.
            let i = i as u32;
            symbols.push(Symbol { id, prev: i.wrapping_sub(1), next: i + 1 });
        }
        let Some(last) = symbols.last_mut() else { return };
        last.next = NONE;
        for left in 0..symbols.len() as u32 - 1 {
            self.propose(symbols, queue, left, left + 1);
        }
        while let Some(Reverse((_, left, left_id, right_id))) = queue.pop() {
            let symbol = symbols[left as usize];
            let right = symbol.next;
            // Stale: one of the two was merged with another since.
            if symbol.id != left_id || right == NONE || symbols[right as usize].id != right_id {
                continue;
            }
            let Some(merge) = self.merge(left_id, right_id) else { continue };
            let after = symbols[right as usize].next;
            symbols[left as usize] = Symbol { id: merge.merged, prev: symbol.prev, next: after };
            symbols[right as usize].id = NONE;
            if after != NONE {
                symbols[after as usize].prev = left;
                self.propose(symbols, queue, left, after);
            }
            if symbol.prev != NONE {
                self.propose(symbols, queue, symbol.prev, left);
            }
        }
        let mut at = 0;
        while at != NONE {
            let symbol = symbols[at as usize];
            out.push(symbol.id);
            at = symbol.next;
        }
    }

    fn propose(&self, symbols: &[Symbol], queue: &mut BinaryHeap<Candidate>, left: u32, right: u32) {
        let (left_id, right_id) = (symbols[left as usize].id, symbols[right as usize].id);
        if let Some(merge) = self.merge(left_id, right_id) {
            queue.push(Reverse((merge.rank, left, left_id, right_id)));
        }
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

fn merges(header: &Header, vocab: &Vocab, hasher: &DefaultHashBuilder) -> Result<HashTable<Merge>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.merges";
    let texts = header.metadata.strings(KEY)?;
    let mut merges = HashTable::with_capacity(texts.len());
    let mut joined = Vec::new();
    for (rank, text) in texts.iter().enumerate() {
        let invalid = |why: &str| {
            let why = format!("has \"{}\" as its entry {rank}, {why}", text.escape_ascii());
            TokenizerError::Invalid { key: KEY, why }
        };
        // The space between the two; the first token may itself begin with one in some files.
        let at = text.iter().skip(1).position(|byte| *byte == b' ').ok_or_else(|| invalid("not two tokens"))? + 1;
        let (left, right) = (&text[..at], &text[at + 1..]);
        joined.clear();
        joined.extend_from_slice(left);
        joined.extend_from_slice(right);
        let (Some(left), Some(right), Some(merged)) = (vocab.id(left), vocab.id(right), vocab.id(&joined)) else {
            return Err(invalid("of which the vocabulary lacks one or what they make"));
        };
        let hash = |merge: &Merge| hasher.hash_one(pair(merge.left, merge.right));
        let merge = Merge { left, right, rank: rank as u32, merged };
        // Of equal pairs the first, which is the likelier, stays.
        merges.entry(hash(&merge), |other: &Merge| other.left == left && other.right == right, hash).or_insert(merge);
    }
    Ok(merges)
}

/// The token that is `word`, unless it is one that a text may not write.
fn whole_word(vocab: &Vocab, word: &str, text: &mut Vec<u8>) -> Option<u32> {
    text.clear();
    let mut buffer = [0; 4];
    for byte in word.bytes() {
        text.extend_from_slice(char_of_byte(byte).encode_utf8(&mut buffer).as_bytes());
    }
    vocab.id(text).filter(|id| vocab.kind(*id) != TokenKind::Control)
}

/// Bytes that stand for themselves in a byte-level vocabulary: printable Latin-1.
fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// How a byte-level vocabulary writes a byte: printable ones as themselves, the others as U+0100 on, in order.
pub(super) fn char_of_byte(byte: u8) -> char {
    if is_itself(byte) {
        return char::from(byte);
    }
    let n_before = (0..byte).filter(|b| !is_itself(*b)).count();
    // Cannot fail: at most 68 above U+0100.
    char::from_u32(0x100 + n_before as u32).unwrap_or(' ')
}

/// The byte that a character of a byte-level vocabulary stands for.
pub(super) fn byte_of_char(c: char) -> Option<u8> {
    static HIGH: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    match u32::from(c) {
        0..=0xFF => Some(c as u8).filter(|byte| is_itself(*byte)),
        code => HIGH.get_or_init(|| (0..=255).filter(|b| !is_itself(*b)).collect()).get(code as usize - 0x100).copied(),
    }
}
