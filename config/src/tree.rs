//! The YAML text as a tree in which every value knows its place.
//!
//! A derived `Deserialize` stops at the first thing that it does not expect. This tree accepts whatever is YAML, doubled
//! keys included, so that [`crate::raw`] can walk all of it and report everything at once. Only a syntax error ends the
//! reading early: what follows it can't be known.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy, Spanned, UserMessageFormatter};

/// A place in the text, from 1. Line 0 is "nowhere".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Place,
}

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List,
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// What it is, for "expected …, found …".
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("the truth value `{value}`"),
            Value::Integer(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(text) => format!("`{text}`"),
            Value::List => "a list".to_owned(),
            Value::Map(_) => "a group of fields".to_owned(),
        }
    }
}

/// Why the text is not YAML.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: Place,
    pub(crate) sentence: String,
}

/// Reads one YAML document. An empty text is an empty group of fields.
pub(crate) fn read(text: &str) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let syntax_error = |error: serde_saphyr::Error| {
        let at = error.location().map_or(Place { line: 1, column: 1 }, place);
        let message = error.render_with_formatter(&UserMessageFormatter);
        let suffix = format!(" at line {}, column {}", at.line, at.column); // said already, in front
        SyntaxError { at, sentence: message.strip_suffix(&suffix).unwrap_or(&message).to_owned() }
    };
    serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options).map(Node::from).map_err(syntax_error)
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Node {
        Node { at: place(spanned.referenced), value: spanned.value }
    }
}

fn place(location: serde_saphyr::Location) -> Place {
    let clip = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: clip(location.line()), column: clip(location.column()) }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<Value>()?.is_some() {} // no field is a list: its items don't matter
        Ok(Value::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<Value>, Spanned<Value>>()? {
            fields.push((Node::from(key), Node::from(value)));
        }
        Ok(Value::Map(fields))
    }
}
