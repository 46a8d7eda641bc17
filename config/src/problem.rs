//! One thing that is wrong in a configuration file: where, what, and what to write instead.

use std::fmt;

/// A problem and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the user named it.
    pub source_name: String,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// The field: `worker.threads`. Empty where there is none (a syntax error, the whole file).
    pub path: String,
    /// What is wrong and what to write instead.
    pub sentence: String,
    /// The line and a caret under the place; empty if there is no such line.
    pub snippet: String,
}

/// `12g.yaml:4:3: worker.thread: there is no such field …`, then the snippet on lines of its own.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.source_name, self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}", self.sentence)?;
        if !self.snippet.is_empty() {
            write!(f, "\n{}", self.snippet)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
