//! Lengths: what does not fit on a few screens is not read.

use super::Offence;
use super::parsed::Parsed;
use super::sources::Source;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Longest file, in lines. In a Rust file its `#[cfg(test)]` modules are counted apart, with the same bound.
const MAX_FILE_LINES: usize = 500;
/// Longest function, in lines, from `fn` to its closing brace. Test code is free: a table of cases may be long.
const MAX_FUNCTION_LINES: usize = 70;
/// Prose and pinned lists are not code.
const ANY_LENGTH_ENDINGS: [&str; 2] = [".md", ".txt"];

/// Plain tables that are easier to read in one piece: (file, function, reason).
const LONG_FUNCTIONS: [(&str, &str, &str); 0] = [];

pub(super) fn check(parsed: &Parsed<'_>, offences: &mut Vec<Offence>, used: &mut Vec<String>) {
    let n_lines = parsed.source.text.lines().count();
    let n_test_lines = (1..=n_lines).filter(|line| parsed.test_lines.iter().any(|range| range.contains(line))).count();
    check_length(parsed.source, n_lines - n_test_lines, offences);
    if n_test_lines > MAX_FILE_LINES {
        let words = format!(
            "{n_test_lines} lines of test modules, the limit is {MAX_FILE_LINES}: move them to the crate's tests folder"
        );
        offences.push(Offence::new(parsed.source, 0, "file-length", words));
    }
    let mut functions = Functions::default();
    functions.visit_file(&parsed.syntax);
    for (name, first, last) in functions.found {
        let length = last - first + 1;
        if length <= MAX_FUNCTION_LINES || parsed.is_test(first) {
            continue;
        }
        let exempt = LONG_FUNCTIONS.iter().any(|(file, function, _)| *file == parsed.source.path && *function == name);
        if exempt {
            used.push(entry(&parsed.source.path, &name));
        } else {
            let words = format!("`{name}` has {length} lines, the limit is {MAX_FUNCTION_LINES}: give its parts names");
            offences.push(Offence::new(parsed.source, first, "function-length", words));
        }
    }
}

pub(super) fn check_length(source: &Source, n_lines: usize, offences: &mut Vec<Offence>) {
    if n_lines > MAX_FILE_LINES && !ANY_LENGTH_ENDINGS.iter().any(|ending| source.path.ends_with(ending)) {
        let words = format!("{n_lines} lines, the limit is {MAX_FILE_LINES}: split it where its topics part");
        offences.push(Offence::new(source, 0, "file-length", words));
    }
}

/// Entries of [`LONG_FUNCTIONS`] that nothing needs any more.
pub(super) fn stale(used: &[String]) -> Vec<Offence> {
    let unused = LONG_FUNCTIONS.iter().filter(|(file, function, _)| !used.contains(&entry(file, function)));
    unused
        .map(|(file, function, _)| Offence {
            path: (*file).to_owned(),
            line: 0,
            rule: "stale-exception",
            words: format!("`{function}` is short enough (or gone): take it off the list in tests/src/tidy/size.rs"),
        })
        .collect()
}

fn entry(file: &str, function: &str) -> String {
    format!("{file}::{function}")
}

#[derive(Default)]
struct Functions {
    /// Name, first and last line.
    found: Vec<(String, usize, usize)>,
}

impl Functions {
    fn take(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let first = signature.span().start().line;
        self.found.push((signature.ident.to_string(), first, body.span().end().line));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.take(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.take(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.take(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}
