//! Keeping a message's text from becoming structure.
//!
//! A template writes control tokens as text (`<|im_start|>`), and a message may hold the same text. After rendering the two look
//! alike, so the message is marked before: a noncharacter, which no text of the request holds, goes behind every character
//! that begins some control token. What the template then does to the text (trim, split, join, upper case, JSON) can't
//! bring a control token's characters together, because the mark travels inside. After the rendered text was cut at control
//! tokens, the marks are taken out.
//!
//! Two refinements. A mark also goes before a text that could *finish* a token whose beginning the template wrote (`<|` before
//! `im_end|>`). And tags that the template itself names and that are no control token (`</think>`, `<tool_response>`) stay
//! unmarked, so that templates which look for them in a message still find them.

use crate::tokenizer::Tokenizer;
use minijinja::Value;
use serde_json::Value as Json;

/// Roles that clients use. They stay unmarked: some templates build a token from them (`<|user|>`).
static ROLES: [&str; 9] =
    ["system", "user", "assistant", "tool", "developer", "function", "model", "ipython", "environment"];

/// Longest tag, most tags, and most places to look for one in a template. Published ones have a dozen short ones.
const MAX_TAG_BYTES: usize = 64;
const MAX_TAGS: usize = 64;
const MAX_TAG_PLACES: usize = 1024;

/// What can't be a control token of a rendered prompt: one of a single character could not be broken by a mark.
fn is_recognised(text: &str) -> bool {
    text.chars().nth(1).is_some()
}

/// What marking needs to know.
pub(super) struct Marks<'a> {
    tokenizer: &'a Tokenizer,
    mark: char,
    /// Characters that begin a control token.
    first: Vec<char>,
    /// Tags that the template names, such as `</think>`, and that have nothing to do with a control token.
    tags: Vec<&'a str>,
}

impl<'a> Marks<'a> {
    /// `texts` are all texts of the request: the mark is a noncharacter that none of them holds.
    pub(super) fn new<'t>(tokenizer: &'a Tokenizer, source: &'a str, texts: impl Iterator<Item = &'t str>) -> Self {
        let mut used = [false; 32];
        let mut note = |text: &str| {
            // All of U+FDD0 to U+FDEF begin with these two bytes.
            if text.as_bytes().windows(2).any(|bytes| bytes == [0xEF, 0xB7]) {
                text.chars().filter_map(noncharacter_index).for_each(|i| used[i] = true);
            }
        };
        note(source);
        texts.for_each(note);
        let free = used.iter().position(|used| !used).unwrap_or(0);
        // Cannot fail: U+FDD0 to U+FDEF are characters to Rust.
        let mark = char::from_u32(0xFDD0 + free as u32).unwrap_or('\u{FDD0}');
        let mut first: Vec<char> = tokenizer
            .control_tokens()
            .filter(|(_, text)| is_recognised(text))
            .filter_map(|(_, t)| t.chars().next())
            .collect();
        first.sort_unstable();
        first.dedup();
        let tags = tags(tokenizer, source, &first);
        Self { tokenizer, mark, first, tags }
    }

    /// A role: as it is when it is a usual one, else marked.
    pub(super) fn role(&self, role: &str) -> Value {
        if ROLES.contains(&role) { role.into() } else { self.text(role).into() }
    }

    /// `text` with marks.
    pub(super) fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 8);
        let start = text.len() - text.trim_start().len();
        for (at, c) in text.char_indices() {
            if at == start && self.tokenizer.could_finish_a_control_token(text[at..].trim_end()) {
                out.push(self.mark);
            }
            // Only when all 32 noncharacters are in use.
            out.push(if c == self.mark { '\u{FFFD}' } else { c });
            if self.first.binary_search(&c).is_ok() && !self.tags.iter().any(|tag| text[at..].starts_with(tag)) {
                out.push(self.mark);
            }
        }
        out
    }

    /// A JSON value with marks in every string and key; the order of keys is kept.
    pub(super) fn json(&self, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(v) => Value::from(*v),
            Json::Number(v) => number(v),
            Json::String(text) => Value::from(self.text(text)),
            Json::Array(items) => Value::from_iter(items.iter().map(|item| self.json(item))),
            Json::Object(map) => Value::from_pairs(map.iter().map(|(key, value)| (self.text(key), self.json(value)))),
        }
    }

    /// `text` without marks.
    pub(super) fn strip(&self, text: &str) -> String {
        text.replace(self.mark, "")
    }

    /// Whether a control token of this text is recognised in a rendered prompt.
    pub(super) fn recognises(&self, id: u32) -> bool {
        std::str::from_utf8(self.tokenizer.piece(id)).is_ok_and(is_recognised)
    }
}

/// The tags in a template's source that a message may hold unmarked.
fn tags<'s>(tokenizer: &Tokenizer, source: &'s str, first: &[char]) -> Vec<&'s str> {
    let mut tags = Vec::new();
    for (at, _) in source.char_indices().filter(|(_, c)| first.binary_search(c).is_ok()).take(MAX_TAG_PLACES) {
        let rest = &source[at..];
        let near = rest.char_indices().take_while(|(at, _)| *at < MAX_TAG_BYTES);
        let Some((end, c)) = near.into_iter().find(|(_, c)| matches!(c, '>' | ']' | '}')) else { continue };
        let tag = &rest[..end + c.len_utf8()];
        if tags.contains(&tag) || tokenizer.control_tokens().any(|(_, t)| t.starts_with(tag) || tag.contains(t)) {
            continue;
        }
        tags.push(tag);
        if tags.len() == MAX_TAGS {
            break;
        }
    }
    tags
}

fn number(number: &serde_json::Number) -> Value {
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(v), _, _) => v.into(),
        (None, Some(v), _) => v.into(),
        (None, None, Some(v)) => v.into(),
        (None, None, None) => ().into(),
    }
}

fn noncharacter_index(c: char) -> Option<usize> {
    ('\u{FDD0}'..='\u{FDEF}').contains(&c).then(|| c as usize - 0xFDD0)
}

/// Calls `visit` with every string and key of a JSON value.
pub(super) fn for_each_text<'j>(json: &'j Json, visit: &mut dyn FnMut(&'j str)) {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
        Json::String(text) => visit(text),
        Json::Array(items) => items.iter().for_each(|item| for_each_text(item, visit)),
        Json::Object(map) => map.iter().for_each(|(key, value)| {
            visit(key);
            for_each_text(value, visit);
        }),
    }
}
