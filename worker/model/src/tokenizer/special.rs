//! Finding special tokens in a text before it is cut into words.
//!
//! The rule is the reference's: longer tokens first, over the whole text; among equally long ones the lower id. So a token that
//! starts inside a shorter one's match wins, which no left-to-right matcher does. Two passes keep it fast: the first notes which
//! tokens occur at all (usually none), the second cuts for those alone.

use super::vocab::{TokenKind, Vocab};

/// A stretch of the text, or a special token that stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// The special tokens of a vocabulary.
pub(super) struct SpecialTokens {
    /// Ids sorted by text: a trie without nodes.
    sorted: Vec<u32>,
    /// Which bytes begin one.
    first: [bool; 256],
}

impl SpecialTokens {
    pub(super) fn new(vocab: &Vocab) -> Self {
        let is_special =
            |id: u32, text: &[u8]| vocab.kind(id).is_special() && !text.is_empty() && std::str::from_utf8(text).is_ok();
        let mut sorted: Vec<u32> = vocab.texts().filter(|(id, text)| is_special(*id, text)).map(|(id, _)| id).collect();
        sorted.sort_by(|a, b| vocab.text(*a).cmp(vocab.text(*b)).then(a.cmp(b)));
        // Of equal texts the first id stays, as in the vocabulary.
        sorted.dedup_by(|b, a| vocab.text(*a) == vocab.text(*b));
        let mut first = [false; 256];
        for id in &sorted {
            first[usize::from(vocab.text(*id)[0])] = true;
        }
        Self { sorted, first }
    }

    /// The ids, sorted by text.
    pub(super) fn ids(&self) -> &[u32] {
        &self.sorted
    }

    /// Cuts `text` at the tokens for which `wanted` says yes.
    pub(super) fn split<'t>(
        &self,
        vocab: &Vocab,
        text: &'t str,
        wanted: impl Fn(u32, TokenKind) -> bool,
    ) -> Vec<Fragment<'t>> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut fragments = vec![Fragment::Text(text)];
        let mut found = self.occurring(vocab, text.as_bytes());
        found.retain(|id| wanted(*id, vocab.kind(*id)));
        found.sort_by_key(|id| (std::cmp::Reverse(vocab.text(*id).len()), *id));
        for id in found {
            // Holds: texts that are not UTF-8 were left out.
            let Ok(needle) = std::str::from_utf8(vocab.text(id)) else { continue };
            let is_in = |fragment: &Fragment<'_>| matches!(fragment, Fragment::Text(text) if text.contains(needle));
            if fragments.iter().any(is_in) {
                fragments = cut(fragments, needle, id);
            }
        }
        fragments
    }

    /// Which tokens occur anywhere in `text`, each once.
    fn occurring(&self, vocab: &Vocab, text: &[u8]) -> Vec<u32> {
        let mut seen = vec![false; self.sorted.len()];
        for (at, byte) in text.iter().enumerate() {
            if self.first[usize::from(*byte)] {
                self.matches_at(vocab, &text[at..], |index| seen[index] = true);
            }
        }
        self.sorted.iter().zip(seen).filter_map(|(id, seen)| seen.then_some(*id)).collect()
    }

    /// Calls `found` with the index of every token that `text` starts with.
    fn matches_at(&self, vocab: &Vocab, text: &[u8], mut found: impl FnMut(usize)) {
        let byte_of = |id: &u32, depth: usize| vocab.text(*id).get(depth).copied();
        let (mut low, mut high) = (0, self.sorted.len());
        for (depth, byte) in text.iter().enumerate() {
            // Those in low..high share text[..depth]; the one that ends here comes first.
            let tokens = &self.sorted[low..high];
            let from = tokens.partition_point(|id| byte_of(id, depth) < Some(*byte));
            let to = tokens.partition_point(|id| byte_of(id, depth) <= Some(*byte));
            (low, high) = (low + from, low + to);
            if low == high {
                return;
            }
            if vocab.text(self.sorted[low]).len() == depth + 1 {
                found(low);
            }
        }
    }
}

/// Replaces every `needle` in the texts by the token.
fn cut<'t>(fragments: Vec<Fragment<'t>>, needle: &str, id: u32) -> Vec<Fragment<'t>> {
    let mut out = Vec::with_capacity(fragments.len() + 2);
    for fragment in fragments {
        let Fragment::Text(text) = fragment else {
            out.push(fragment);
            continue;
        };
        let mut from = 0;
        for (at, _) in text.match_indices(needle) {
            if from < at {
                out.push(Fragment::Text(&text[from..at]));
            }
            out.push(Fragment::Token(id));
            from = at + needle.len();
        }
        if from < text.len() {
            out.push(Fragment::Text(&text[from..]));
        }
    }
    out
}

/// Every proper ending of every control token's text, sorted: which texts could complete a token begun before them.
pub(crate) struct ControlIndex {
    /// (token, where the ending starts in its text).
    endings: Vec<(u32, u32)>,
}

impl ControlIndex {
    pub(super) fn new<'v>(vocab: &'v Vocab, control: impl Iterator<Item = (u32, &'v str)>) -> Self {
        let starts = |text: &'v str| text.char_indices().skip(1).map(|(at, _)| at as u32);
        let mut endings: Vec<_> = control.flat_map(|(id, text)| starts(text).map(move |at| (id, at))).collect();
        endings.sort_by(|a, b| ending(vocab, *a).cmp(ending(vocab, *b)));
        endings.dedup_by(|b, a| ending(vocab, *a) == ending(vocab, *b));
        Self { endings }
    }

    /// Whether some ending begins with `text`, or `text` begins with some ending.
    pub(super) fn begins_inside(&self, vocab: &Vocab, text: &[u8]) -> bool {
        let mut candidates = &self.endings[..];
        for (depth, byte) in text.iter().enumerate() {
            let byte_of = |of: &(u32, u32)| ending(vocab, *of).get(depth).copied();
            let from = candidates.partition_point(|of| byte_of(of) < Some(*byte));
            let to = candidates.partition_point(|of| byte_of(of) <= Some(*byte));
            candidates = &candidates[from..to];
            match candidates.first() {
                None => return false,
                Some(first) if ending(vocab, *first).len() == depth + 1 => return true,
                Some(_) => {}
            }
        }
        !text.is_empty()
    }
}

fn ending(vocab: &Vocab, (id, at): (u32, u32)) -> &[u8] {
    vocab.text(id).get(at as usize..).unwrap_or(&[])
}
