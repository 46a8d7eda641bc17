//! From a file's text to a [`Config`], or to everything that is wrong with it.
//!
//! The walk goes through the whole tree and never stops at a problem, so that a user corrects a file once.

use crate::config::Config;
use crate::fields::{Field, SECTIONS, Section};
use crate::limits;
use crate::problem::Problem;
use crate::suggest::nearest;
use crate::tree::{self, Node, Place, Value};

impl Config {
    /// Reads a configuration file. What is not written keeps its default; an empty text is [`Config::default`].
    /// `source_name` is the file as the user named it, for the problems.
    ///
    /// # Errors
    /// Every problem of the text, in order of place: unknown and doubled fields, values of the wrong kind or out of range.
    /// A syntax error comes alone, because what follows it can't be known.
    pub fn from_yaml(text: &str, source_name: &str) -> Result<Config, Vec<Problem>> {
        let mut walk = Walk { text, source_name, problems: Vec::new() };
        let mut config = Config::default();
        if text.len() > limits::MAX_CONFIG_BYTES {
            let bound = limits::MAX_CONFIG_BYTES >> 10;
            walk.report(
                Place { line: 1, column: 1 },
                0,
                "",
                format!("the file is longer than {bound} KiB: is it the right one?"),
            );
            return Err(walk.problems);
        }
        match tree::read(text) {
            Ok(root) => walk.root(&root, &mut config),
            Err(error) => walk.report(error.at, 0, "", format!("not YAML: {}", error.sentence)),
        }
        match walk.problems.is_empty() {
            true => Ok(config),
            false => Err(walk.finish()),
        }
    }
}

/// The walk through one file.
struct Walk<'a> {
    text: &'a str,
    source_name: &'a str,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn root(&mut self, root: &Node, config: &mut Config) {
        let Some(entries) = self.group(root, "") else { return };
        let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        self.doubled(entries, "");
        for (key, value) in entries {
            let Some(name) = self.name(key, "") else { continue };
            match SECTIONS.iter().find(|section| section.name == name) {
                Some(section) => self.section(section, value, config),
                None => {
                    let hint = hint(name, &names, "");
                    let sentence = format!("there is no such section{hint}; sections are {}", names.join(", "));
                    self.report_key(key, name, sentence);
                }
            }
        }
    }

    fn section(&mut self, section: &Section, node: &Node, config: &mut Config) {
        let Some(entries) = self.group(node, section.name) else { return };
        let names: Vec<&str> = section.fields.iter().map(|field| field.name).collect();
        self.doubled(entries, section.name);
        for (key, value) in entries {
            let Some(name) = self.name(key, section.name) else { continue };
            let path = format!("{}.{name}", section.name);
            match section.fields.iter().find(|field| field.name == name) {
                Some(field) => self.field(field, &path, value, config),
                None => {
                    let hint = hint(name, &names, section.name);
                    let sentence = format!("there is no such field{hint}; `{}` has {}", section.name, names.join(", "));
                    self.report_key(key, &path, sentence);
                }
            }
        }
    }

    fn field(&mut self, field: &Field, path: &str, node: &Node, config: &mut Config) {
        let outcome = match node.value {
            Value::Null => Err("the value is missing: write one, or delete the line to get the default".to_owned()),
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::List | Value::Map(_) => {
                (field.read)(&node.value, config)
            }
        };
        if let Err(sentence) = outcome {
            self.report(node.at, usize::MAX, path, sentence);
        }
    }

    /// The entries of a group of fields. A group with nothing in it, or with all of it commented out, is empty.
    fn group<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [(Node, Node)]> {
        match &node.value {
            Value::Map(entries) => Some(entries),
            Value::Null => None,
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::List => {
                let names = SECTIONS.iter().find(|section| section.name == path).map_or_else(
                    || SECTIONS.iter().map(|section| section.name).collect::<Vec<_>>(),
                    |section| section.fields.iter().map(|field| field.name).collect(),
                );
                let found = node.value.describe();
                let sentence = format!("expected fields, one on each line ({}), found {found}", names.join(", "));
                self.report(node.at, usize::MAX, path, sentence);
                None
            }
        }
    }

    /// The name of a field, if its key is one.
    fn name<'n>(&mut self, key: &'n Node, path: &str) -> Option<&'n str> {
        match &key.value {
            Value::Text(name) => Some(name),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::List | Value::Map(_) => {
                let found = key.value.describe();
                self.report(key.at, usize::MAX, path, format!("expected the name of a field, found {found}"));
                None
            }
        }
    }

    /// Reports every field that stands twice in one group.
    fn doubled(&mut self, entries: &[(Node, Node)], path: &str) {
        for (at, (key, _)) in entries.iter().enumerate() {
            let Value::Text(name) = &key.value else { continue };
            let is_same = |(earlier, _): &&(Node, Node)| matches!(&earlier.value, Value::Text(other) if other == name);
            if let Some((first, _)) = entries[..at].iter().find(is_same) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let line = first.at.line;
                self.report_key(
                    key,
                    &path,
                    format!("stands here a second time, first on line {line}: keep one of them"),
                );
            }
        }
    }

    fn report_key(&mut self, key: &Node, path: &str, sentence: String) {
        let n_chars = match &key.value {
            Value::Text(name) => name.chars().count(),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::List | Value::Map(_) => 1,
        };
        self.report(key.at, n_chars, path, sentence);
    }

    /// Notes a problem at a place; `n_chars` are underlined, at most to the end of the line's content.
    fn report(&mut self, at: Place, n_chars: usize, path: &str, sentence: String) {
        self.problems.push(Problem {
            source_name: self.source_name.to_owned(),
            line: at.line,
            column: at.column,
            path: path.to_owned(),
            sentence,
            snippet: snippet(self.text, at, n_chars),
        });
    }

    /// All problems in order of place, as many as fit a page.
    fn finish(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        let n_more = self.problems.len().saturating_sub(limits::MAX_CONFIG_PROBLEMS);
        self.problems.truncate(limits::MAX_CONFIG_PROBLEMS);
        if let (Some(last), true) = (self.problems.last(), n_more > 0) {
            let at = Place { line: last.line, column: last.column };
            self.report(at, 0, "", format!("and {n_more} more problems after this one"));
        }
        self.problems
    }
}

/// Where a name that is not known here would be right.
fn hint(name: &str, known: &[&str], section: &str) -> String {
    if let Some(near) = nearest(name, known.iter().copied()) {
        return format!(" (did you mean `{near}`?)");
    }
    if let Some((section, field)) = name.split_once('.')
        && SECTIONS.iter().any(|other| other.name == section)
    {
        return format!(" (write `{field}` on a line of its own, indented under `{section}:`)");
    }
    let elsewhere = SECTIONS.iter().filter(|other| other.name != section);
    let mut fields = elsewhere.flat_map(|other| other.fields.iter().map(move |field| (other.name, field.name)));
    match fields.find(|(_, field)| *field == name) {
        Some((other, field)) => format!(" (did you mean `{other}.{field}`?)"),
        None => String::new(),
    }
}

/// The line of a place with a mark under it:
/// ```text
///   4 |   thread: 8
///     |   ^^^^^^
/// ```
fn snippet(text: &str, at: Place, n_chars: usize) -> String {
    const WIDTH: usize = 100; // a terminal, less the number
    let Some(line) = (at.line as usize).checked_sub(1).and_then(|n_before| text.lines().nth(n_before)) else {
        return String::new();
    };
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let from = (at.column as usize).saturating_sub(1);
    let content_end = line.find(" #").map_or(line, |comment| &line[..comment]).trim_end().chars().count();
    let n_chars = n_chars.min(content_end.saturating_sub(from)).clamp(1, WIDTH);
    let n_skipped = if from + n_chars > WIDTH { from.saturating_sub(WIDTH / 4) } else { 0 };
    let shown: String = line.chars().skip(n_skipped).take(WIDTH).map(visible).collect();
    let number = at.line.to_string();
    let margin = " ".repeat(number.len());
    let shift = " ".repeat(from - n_skipped);
    let carets = "^".repeat(n_chars.min(WIDTH.saturating_sub(from - n_skipped)).max(1));
    format!("  {number} | {}\n  {margin} | {shift}{carets}", shown.trim_end())
}
