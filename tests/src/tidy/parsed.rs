//! A Rust file as the rules see it: syntax tree, flat tokens with lines, and which lines are test code.

use super::sources::Source;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One token: an identifier, a literal, a sign or a bracket.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

pub(super) struct Parsed<'a> {
    pub(super) source: &'a Source,
    pub(super) syntax: syn::File,
    pub(super) tokens: Vec<Token>,
    /// Lines of items under `#[cfg(test)]` or `#[test]`.
    pub(super) test_lines: Vec<RangeInclusive<usize>>,
}

impl<'a> Parsed<'a> {
    pub(super) fn new(source: &'a Source) -> syn::Result<Self> {
        let syntax = syn::parse_file(&source.text)?;
        let stream: TokenStream = source.text.parse().map_err(syn::Error::from)?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut finder = TestItems::default();
        finder.visit_file(&syntax);
        Ok(Self { source, syntax, tokens, test_lines: finder.lines })
    }

    /// Whether the line is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.source.is_test_file() || self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Lines at which the sequence of tokens stands.
    pub(super) fn find(&self, sequence: &[&str]) -> impl Iterator<Item = usize> {
        self.tokens
            .windows(sequence.len())
            .filter(move |window| window.iter().zip(sequence).all(|(token, text)| token.text == *text))
            .map(|window| window[0].line)
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_owned(), line });
                let end = group.span_close().start().line;
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line: end });
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
                tokens.push(Token { text: tree.to_string(), line });
            }
        }
    }
}

/// Whether an item is compiled only for tests.
pub(super) fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.clone().into_iter().any(|tree| names_test(&tree))
        }
        syn::Meta::NameValue(_) => false,
    })
}

/// `test` in `cfg(test)` or `cfg(all(test, …))`, but not in `cfg(not(test))`.
fn names_test(tree: &TokenTree) -> bool {
    match tree {
        TokenTree::Ident(ident) => ident == "test",
        TokenTree::Group(group) => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            inner.iter().any(names_test)
        }
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    }
}

#[derive(Default)]
struct TestItems {
    lines: Vec<RangeInclusive<usize>>,
}

impl TestItems {
    fn take(&mut self, attributes: &[syn::Attribute], item: &impl Spanned) {
        if is_test_only(attributes) {
            self.lines.push(item.span().start().line..=item.span().end().line);
        }
    }
}

impl<'ast> Visit<'ast> for TestItems {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.take(&item.attrs, item);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.take(&item.attrs, item);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.take(&item.attrs, item);
        visit::visit_item_impl(self, item);
    }
}
