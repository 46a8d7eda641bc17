//! The style rules that a machine can check, as a test rather than a reviewer.
//!
//! [`check`] reads a list of sources and returns every offence at once, with file, line, rule and what to do. It performs no
//! I/O, so that the rules themselves are tested with planted offences; [`sources::read_repository`] gives it the real tree.
//!
//! ```text
//! sources  ─►  parsed (Rust only)  ─►  size · words · code · matches  ─►  offences
//! manifests  ────────────────────────►  crates  ──────────────────────►
//! ```

pub mod sources;

mod code;
mod crates;
mod matches;
mod parsed;
mod size;
mod words;

use sources::Source;

pub use crates::check_dependencies;

/// One place that breaks one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offence {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// Short name of the rule.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub words: String,
}

impl Offence {
    fn new(source: &Source, line: usize, rule: &'static str, words: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, rule, words: words.into() }
    }
}

impl std::fmt::Display for Offence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.words)
    }
}

/// Every offence in `sources`, by path and line. Whether lists of exceptions are stale is told only when
/// `whole_repository`: a single planted file would make every entry look stale.
#[must_use]
pub fn check(sources: &[Source], whole_repository: bool) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut used = Vec::new();
    for source in sources {
        words::check(source, &mut offences);
        if source.path.ends_with("Cargo.toml") {
            crates::check_manifest(source, &mut offences);
        }
        if !source.is_rust() {
            size::check_length(source, source.text.lines().count(), &mut offences);
            continue;
        }
        match parsed::Parsed::new(source) {
            Ok(parsed) => {
                size::check(&parsed, &mut offences, &mut used);
                code::check(&parsed, &mut offences, &mut used);
                matches::check(&parsed, &mut offences);
            }
            Err(error) => {
                offences.push(Offence::new(source, error.span().start().line, "parse", error.to_string()));
            }
        }
    }
    if whole_repository {
        offences.extend(size::stale(&used));
        offences.extend(code::stale(&used));
    }
    offences.sort();
    offences
}
