//! Exhaustive matches in the pure cores: a new state, event or action must be thought through at every place that reads it.

use super::Offence;
use super::parsed::Parsed;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const EXHAUSTIVE: [&str; 2] = ["daemon/decide/src/", "worker/src/schedule.rs"];

pub(super) fn check(parsed: &Parsed<'_>, offences: &mut Vec<Offence>) {
    if !EXHAUSTIVE.iter().any(|prefix| parsed.source.path.starts_with(prefix)) {
        return;
    }
    let mut arms = CatchAlls::default();
    arms.visit_file(&parsed.syntax);
    for line in arms.lines.into_iter().filter(|line| !parsed.is_test(*line)) {
        let words = "a catch-all arm: name the variants, so that a new one must be thought through";
        offences.push(Offence::new(parsed.source, line, "wildcard-arm", words));
    }
}

#[derive(Default)]
struct CatchAlls {
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for CatchAlls {
    fn visit_expr_match(&mut self, item: &'ast syn::ExprMatch) {
        // Only variants can be listed: beside numbers, strings and constants a catch-all is right.
        let patterns: Vec<&syn::Pat> = item.arms.iter().map(|arm| unguarded(&arm.pat)).collect();
        if patterns.iter().any(|pattern| holds(pattern, &names_variant))
            && !patterns.iter().any(|p| holds(p, &is_value))
        {
            let open = item.arms.iter().filter(|arm| is_catch_all(&arm.pat));
            self.lines.extend(open.map(|arm| arm.span().start().line));
        }
        visit::visit_expr_match(self, item);
    }
}

fn is_catch_all(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        // `other =>`: a name in lower case binds anything.
        syn::Pat::Ident(name) => name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase),
        _ => false,
    }
}

/// The pattern before `if`.
fn unguarded(pattern: &syn::Pat) -> &syn::Pat {
    match pattern {
        syn::Pat::Guard(guard) => &guard.pat,
        other => other,
    }
}

/// Whether the pattern or one inside it is what `wanted` looks for.
fn holds(pattern: &syn::Pat, wanted: &dyn Fn(&syn::Pat) -> bool) -> bool {
    let inside: Vec<&syn::Pat> = match pattern {
        syn::Pat::Or(or) => or.cases.iter().collect(),
        syn::Pat::Tuple(tuple) => tuple.elems.iter().collect(),
        syn::Pat::TupleStruct(tuple) => tuple.elems.iter().collect(),
        syn::Pat::Reference(reference) => vec![&reference.pat],
        syn::Pat::Paren(paren) => vec![&paren.pat],
        _ => Vec::new(),
    };
    wanted(pattern) || inside.into_iter().any(|pattern| holds(pattern, wanted))
}

/// A number, a text, or a constant.
fn is_value(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Lit(_) | syn::Pat::Range(_) => true,
        // `Bytes::ZERO`; a variant of one letter is one all the same.
        syn::Pat::Path(path) => last_name(&path.path).len() > 1 && !last_name(&path.path).contains(char::is_lowercase),
        _ => false,
    }
}

/// A variant of an enum, by its name in camel case.
fn names_variant(pattern: &syn::Pat) -> bool {
    let name = match pattern {
        syn::Pat::Path(path) => last_name(&path.path),
        syn::Pat::TupleStruct(tuple) => last_name(&tuple.path),
        syn::Pat::Struct(fields) => last_name(&fields.path),
        syn::Pat::Ident(name) => name.ident.to_string(),
        _ => return false,
    };
    name.starts_with(char::is_uppercase) && (name.len() == 1 || name.contains(char::is_lowercase))
}

fn last_name(path: &syn::Path) -> String {
    path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}
