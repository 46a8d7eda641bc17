//! How a text is cut into words before merges: one row for each `tokenizer.ggml.pre` this build knows.
//!
//! A kind is a sequence of stages; each cuts the pieces of the one before at its matches, and what lies between two matches is a
//! piece too. The expressions are facts of the models (their `tokenizer.json`), written with one change: the only thing in them
//! that needs a look-ahead is the tail `\s+(?!\S)|\s+`, "spaces, but leave the last one to the word that follows". It is done by
//! hand in [`PreTokenizer::split`], so that an automaton that never backtracks does the rest: time is linear in the text
//! whatever the text is, where a backtracking engine fails on a run of a million spaces.

use regex_automata::meta::Regex;
use std::ops::Range;
use std::sync::OnceLock;

/// One cut. Alternatives are tried in order, the first that matches at the leftmost place wins.
struct Stage {
    patterns: &'static [&'static str],
    /// Whether `\s+` comes last and gives its last space back to a word that follows.
    spaces: bool,
}

const fn stage(patterns: &'static [&'static str]) -> Stage {
    Stage { patterns, spaces: false }
}

const fn stage_with_spaces(patterns: &'static [&'static str]) -> Stage {
    Stage { patterns, spaces: true }
}

/// A kind of pre-tokenizer.
pub(super) struct PreKind {
    /// Values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    stages: &'static [Stage],
    /// Whether a word that is a token is taken whole, without merges.
    pub(super) ignore_merges: bool,
    /// Whether a prompt begins with BOS when the file does not say.
    pub(super) add_bos: bool,
    compiled: OnceLock<Box<[Regex]>>,
}

const fn kind(names: &'static [&'static str], stages: &'static [Stage]) -> PreKind {
    PreKind { names, stages, ignore_merges: false, add_bos: false, compiled: OnceLock::new() }
}

const GPT2: Stage = stage_with_spaces(&[r"'s|'t|'re|'ve|'m|'ll|'d", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+"]);

const LLAMA3: Stage = stage_with_spaces(&[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
]);

const QWEN2: Stage = stage_with_spaces(&[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
]);

const O200K: Stage = stage_with_spaces(&[
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
]);

const TEKKEN: Stage = stage_with_spaces(&[
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
]);

const DEEPSEEK_V3: Stage = stage_with_spaces(&[
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    r"\s*[\r\n]+",
]);

/// Letters of DeepSeek LLM: the cased ones of the Unicode version its authors used, as ranges.
const DEEPSEEK_LLM_LETTERS: &str = concat!(
    r"\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}",
    r"\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}",
    r"\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}",
    r"\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}",
    r"\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}",
    r"\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}",
    r"\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}",
    r"\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}",
    r"\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}",
    r"\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}",
    r"\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}",
    r"\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+"
);
/// Han, and what a range from U+0800 to 一 takes with it: the models' own oddity.
const DEEPSEEK_CJK: &str = r"[\u{4E00}-\u{9FA5}\u{0800}-\u{4E00}\u{AC00}-\u{D7FF}]+";

static KINDS: [PreKind; 10] = [
    kind(&["smollm", "starcoder", "refact", "command-r", "codeshell"], &[stage(&[r"\p{N}"]), GPT2]),
    PreKind {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        stages: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
        compiled: OnceLock::new(),
    },
    PreKind { names: &["tekken"], stages: &[TEKKEN], ignore_merges: true, add_bos: true, compiled: OnceLock::new() },
    kind(&["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"], &[QWEN2]),
    kind(&["gpt-4o", "o200k", "llama4"], &[O200K]),
    kind(
        &["deepseek-llm"],
        &[
            stage(&[r"[\r\n]"]),
            stage(&[DEEPSEEK_LLM_LETTERS]),
            stage(&[r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+"]),
            stage(&[r"\s+$"]),
            stage(&[DEEPSEEK_CJK]),
            stage(&[r"\p{N}+"]),
        ],
    ),
    kind(
        &["deepseek-coder"],
        &[
            stage(&[r"[\r\n]"]),
            stage(&[r"\s?\p{L}+"]),
            stage(&[r"\s?\p{P}+"]),
            stage(&[DEEPSEEK_CJK]),
            stage(&[r"\p{N}"]),
        ],
    ),
    kind(
        &["deepseek-v3", "hunyuan-dense"],
        &[stage(&[r"\p{N}{1,3}"]), stage(&[r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+"]), DEEPSEEK_V3],
    ),
    kind(&["gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat"], &[GPT2]),
    kind(&["default"], &[stage(&[r"[\p{P}$+<=>^~|]+"]), GPT2, stage(&[r"\p{N}+"]), stage(&[r"[0-9][0-9][0-9]"])]),
];

/// Every known value of `tokenizer.ggml.pre`.
pub(super) fn known_names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| kind.names.iter().copied())
}

/// Cuts texts into words.
#[derive(Clone, Copy)]
pub(super) struct PreTokenizer {
    pub(super) kind: &'static PreKind,
    stages: &'static [Regex],
}

impl PreTokenizer {
    /// The pre-tokenizer with a name, or `None` when it is not known.
    pub(super) fn named(name: &str) -> Option<Self> {
        let kind = KINDS.iter().find(|kind| kind.names.contains(&name))?;
        let compile = |stage: &Stage| {
            let mut patterns = stage.patterns.to_vec();
            if stage.spaces {
                patterns.push(r"\s+");
            }
            // Cannot fail: the patterns are constants, and a test compiles each.
            Regex::new_many(&patterns).expect("a constant pattern compiles")
        };
        let stages = kind.compiled.get_or_init(|| kind.stages.iter().map(compile).collect());
        Some(Self { kind, stages })
    }

    /// Calls `word` with each word of `text`, in order; together they are the text.
    pub(super) fn split<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        let whole = 0..text.len();
        let mut pieces = vec![whole];
        for (regex, stage) in self.stages.iter().zip(self.kind.stages) {
            let mut next = Vec::with_capacity(pieces.len());
            for piece in pieces {
                let start = piece.start;
                let keep = |cut: Range<usize>| next.push(start + cut.start..start + cut.end);
                split_piece(regex, stage, &text[piece], keep);
            }
            pieces = next;
        }
        pieces.into_iter().for_each(|piece| word(&text[piece]));
    }
}

fn split_piece(regex: &Regex, stage: &Stage, piece: &str, mut keep: impl FnMut(Range<usize>)) {
    let mut at = 0;
    while at < piece.len() {
        let input = regex_automata::Input::new(piece).range(at..);
        let Some(found) = regex.search(&input) else { break };
        let mut end = found.end();
        if stage.spaces && found.pattern().as_usize() == stage.patterns.len() && end < piece.len() {
            // `\s+` before something that is no space: the last one belongs to what follows, unless it is the only one.
            let last = piece[found.start()..end].char_indices().next_back().map_or(0, |(i, _)| i);
            if last > 0 {
                end = found.start() + last;
            }
        }
        if at < found.start() {
            keep(at..found.start());
        }
        keep(found.start()..end);
        at = end;
    }
    if at < piece.len() {
        keep(at..piece.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Lengths, in characters, of the words of a text.
    fn lengths(pre: PreTokenizer, text: &str) -> Vec<usize> {
        let mut lengths = Vec::new();
        let mut all = String::new();
        pre.split(text, |word| {
            lengths.push(word.chars().count());
            all.push_str(word);
        });
        assert_eq!(all, text, "words must add up to the text");
        lengths
    }

    /// The words of 140 texts in many scripts, as an engine that knows look-ahead cuts them by the original expressions.
    #[test]
    fn every_kind_cuts_as_the_original_expressions_do() {
        let data: Value = serde_json::from_str(include_str!("../../tests/data/pre-splits.json")).unwrap();
        let texts = data["texts"].as_array().unwrap();
        for kind in &KINDS {
            let name = kind.names[0];
            let pre = PreTokenizer::named(name).unwrap();
            let rows = data["splits"][name].as_array().unwrap_or_else(|| panic!("no expected words for {name}"));
            let mut wrong = Vec::new();
            for (text, row) in texts.iter().zip(rows) {
                let text = text.as_str().unwrap();
                let expect: Vec<usize> = serde_json::from_value(row.clone()).unwrap();
                let got = lengths(pre, text);
                if got != expect {
                    wrong.push(format!("{text:?}\n got {got:?}\n exp {expect:?}"));
                }
            }
            assert!(
                wrong.is_empty(),
                "{name}: {} of {}:\n{}",
                wrong.len(),
                texts.len(),
                wrong[..wrong.len().min(3)].join("\n")
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = known_names().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(PreTokenizer::named("no-such-kind").is_none());
    }

    #[test]
    fn a_long_run_of_spaces_is_cut_in_linear_time() {
        let text = format!("{}x", " ".repeat(1_000_000));
        for kind in &KINDS {
            let pre = PreTokenizer::named(kind.names[0]).unwrap();
            assert_eq!(lengths(pre, &text).iter().sum::<usize>(), 1_000_001, "{}", kind.names[0]);
        }
    }
}
