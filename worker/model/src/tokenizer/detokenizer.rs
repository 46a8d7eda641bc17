//! Ids to text, one at a time, never splitting a character.

use super::Tokenizer;

/// Turns the ids of one text into text as they come.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    /// The start of a character whose end has not come; at most 3 bytes between calls.
    pending: Vec<u8>,
    /// Whether the next text is the first, and drops the space the tokenizer put there.
    drop_space: bool,
    show_special: bool,
}

impl Detokenizer {
    /// For a text of its own: a space that the tokenizer puts before every text is dropped.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self { pending: Vec::new(), drop_space: tokenizer.adds_space_prefix(), show_special: false }
    }

    /// For ids that continue an earlier text: nothing is dropped.
    pub fn continuing() -> Self {
        Self { pending: Vec::new(), drop_space: false, show_special: false }
    }

    /// Whether control tokens are written out (`<|im_end|>`) rather than left out, which is the default.
    #[must_use]
    pub fn show_special(mut self, show: bool) -> Self {
        self.show_special = show;
        self
    }

    /// The text that `id` completes: whole characters only, maybe none. Bytes that can't be UTF-8 become U+FFFD.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        if !self.show_special && tokenizer.is_control(id) {
            return String::new();
        }
        let mut bytes = tokenizer.piece(id);
        if self.drop_space && !bytes.is_empty() {
            self.drop_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let (text, n_used) = whole_characters(&self.pending);
        self.pending.drain(..n_used);
        text
    }

    /// The end of the text: U+FFFD when a character was never completed, else nothing. The detokenizer can be used again.
    pub fn finish(&mut self) -> String {
        let is_cut = !self.pending.is_empty();
        self.pending.clear();
        if is_cut { "\u{FFFD}".into() } else { String::new() }
    }
}

/// The text at the start of `bytes` and how many bytes it took; what is left may become a character.
fn whole_characters(bytes: &[u8]) -> (String, usize) {
    let mut text = String::with_capacity(bytes.len());
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, bytes.len());
            }
            Err(error) => {
                let valid_to = at + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[at..valid_to]));
                match error.error_len() {
                    Some(n_bad) => {
                        text.push('\u{FFFD}');
                        at = valid_to + n_bad;
                    }
                    None => return (text, valid_to),
                }
            }
        }
    }
}
