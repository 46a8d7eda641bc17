//! Tokenizers beyond golden ids: special tokens, ends, detokenizing, time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::models::{bpe, spm, tiny};
use common::writer::{Gguf, V};
use plimsoll_model::file::ModelFile;
use plimsoll_model::gguf::Header;
use plimsoll_model::tokenizer::{Detokenizer, Stretch, Tokenizer};
use plimsoll_tests::places::Model;
use proptest::prelude::*;
use std::io::Read;
use std::sync::LazyLock;

fn of(gguf: &Gguf) -> Tokenizer {
    Tokenizer::from_header(&Header::parse(&gguf.bytes()).unwrap()).unwrap()
}

fn real(model: Model) -> Tokenizer {
    Tokenizer::from_header(ModelFile::open_header(&model.path()).unwrap().header()).unwrap()
}

static REAL: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| [real(Model::SmolLm2), real(Model::Gemma3)]);

#[test]
fn ends_and_specials_of_the_real_models() {
    let [smollm2, gemma3] = &*REAL;
    assert_eq!((smollm2.n_vocab(), smollm2.bos(), smollm2.eos(), smollm2.adds_bos()), (49152, Some(1), Some(2), false));
    assert_eq!(smollm2.end_of_generation(), [0, 2]);
    assert_eq!((gemma3.n_vocab(), gemma3.bos(), gemma3.eos(), gemma3.adds_bos()), (262_144, Some(2), Some(1), true));
    assert!(gemma3.is_end_of_generation(gemma3.control_token("<end_of_turn>").unwrap()));
    assert!(gemma3.is_end_of_generation(1) && !gemma3.is_end_of_generation(2));
    assert_eq!(smollm2.encode_prompt("hi", true, true), smollm2.encode("hi", true));
    let with_bos = [vec![2], gemma3.encode("hi", true)].concat();
    assert_eq!(gemma3.encode_prompt("hi", true, true), with_bos);
    assert_eq!(gemma3.encode_prompt("<bos>hi", true, true), with_bos, "no second BOS");
    assert_eq!(gemma3.encode_prompt("hi", true, false), with_bos[1..]);
    assert!(smollm2.is_special(1) && smollm2.is_control(1) && !smollm2.is_special(100));
    let table = gemma3.encode("<table>", false);
    assert_eq!((table.len(), gemma3.is_special(table[0]), gemma3.is_control(table[0])), (1, true, false));
    assert_eq!(gemma3.piece(gemma3.encode("<0x41>", false)[0]).len(), 1);
    assert_eq!((smollm2.piece(u32::MAX), gemma3.is_special(u32::MAX)), (&b""[..], false));
}

#[test]
fn a_control_token_in_plain_text_stays_text() {
    for (tokenizer, text) in REAL.iter().zip(["a<|im_end|>b", "a<end_of_turn>b"]) {
        let plain = tokenizer.encode(text, false);
        assert!(plain.iter().all(|id| !tokenizer.is_control(*id)));
        assert_eq!(tokenizer.decode(&plain), text);
        let parsed = tokenizer.encode(text, true);
        assert!(parsed.iter().any(|id| tokenizer.is_control(*id)));
        assert_eq!(tokenizer.decode(&parsed), "ab");
        let pieces = tokenizer.encode_pieces([Stretch::Text(text), Stretch::Token(1)]);
        assert_eq!(pieces, [plain, vec![1]].concat());
    }
}

#[test]
fn longer_special_tokens_win_over_the_whole_text() {
    let mut gguf = spm(Gguf::default());
    let Some((_, V::Strs(tokens))) = gguf.kv.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens") else {
        panic!()
    };
    let n = tokens.len() as u32;
    tokens.extend(["<a>", "a><c", "<a><c>b", "<c"].map(String::from));
    let n_all = tokens.len() as u32;
    let kinds = (0..n_all).map(|id| if id >= n { 4 } else { 1 }).collect();
    let gguf = gguf.set("tokenizer.ggml.token_type", V::I32s(kinds)).unset("tokenizer.ggml.scores");
    let tokenizer = of(&gguf);
    let special = |text: &str| -> Vec<u32> {
        tokenizer.encode(text, true).into_iter().filter(|id| *id >= n).map(|id| id - n).collect()
    };
    assert_eq!(special("<a><c>b"), [2]);
    assert_eq!(special("<a><c"), [1], "the longer one wins though it starts later");
    assert_eq!(special("<a> <c"), [0, 3]);
    assert!(special("<a").is_empty());
}

/// The file asks for a space before every text that follows a special token; pairs from the reference, Gemma's vocabulary with
/// the flag set.
#[test]
fn a_space_prefix_goes_before_texts_and_comes_off_again() {
    // The header alone.
    let mut bytes = vec![0; 6_525_120];
    std::fs::File::open(Model::Gemma3.path()).unwrap().read_exact(&mut bytes).unwrap();
    let key = b"tokenizer.ggml.add_space_prefix";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    bytes[at] = 1;
    let tokenizer = Tokenizer::from_header(&Header::parse(&bytes).unwrap()).unwrap();
    let golden: serde_json::Value =
        serde_json::from_str(&common::data("gemma-3-270m-q4_k_m.space-prefix.json")).unwrap();
    for pair in golden["pairs"].as_array().unwrap() {
        let text = pair["text"].as_str().unwrap();
        let expect: Vec<u32> = serde_json::from_value(pair["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text, true), expect, "{text:?}");
    }
    let ids = tokenizer.encode("Hello there", true);
    assert_eq!(tokenizer.decode(&ids), "Hello there");
    let mut continuing = Detokenizer::continuing();
    assert_eq!(ids.iter().map(|id| continuing.push(&tokenizer, *id)).collect::<String>(), " Hello there");
    assert_eq!(tokenizer.decode(&tokenizer.encode(" x", true)), " x", "one space comes off, not two");
}

#[test]
fn unknown_kinds_are_told_with_what_is_known() {
    let error = |gguf: Gguf| Tokenizer::from_header(&Header::parse(&gguf.bytes()).unwrap()).unwrap_err().to_string();
    let sentence = error(tiny("llama").str("tokenizer.ggml.pre", "klingon"));
    for known in ["klingon", "smollm", "llama-bpe", "qwen2", "gpt-4o", "o200k", "deepseek-v3", "default"] {
        assert!(sentence.contains(known), "{known} in {sentence}");
    }
    let sentence = error(tiny("llama").str("tokenizer.ggml.model", "t5"));
    assert!(sentence.contains("t5") && sentence.contains("gpt2 and llama"), "{sentence}");
    assert!(error(tiny("llama").unset("tokenizer.ggml.merges")).contains("tokenizer.ggml.merges"));
    assert!(error(tiny("llama").u32("tokenizer.ggml.bos_token_id", 9999)).contains("bos_token_id"));
}

#[test]
fn merges_follow_their_rank_and_kinds_their_rules() {
    let tokenizer = of(&bpe(Gguf::default(), "smollm"));
    let shown = |text: &str| -> Vec<String> {
        tokenizer
            .encode(text, false)
            .iter()
            .map(|id| String::from_utf8_lossy(tokenizer.piece(*id)).into_owned())
            .collect()
    };
    assert_eq!(shown("hello the hell"), ["hello", " the", " ", "hell"]);
    assert_eq!(shown("ababab"), ["abab", "ab"]);
    assert_eq!(shown("<think>he</think>"), ["<think>", "he", "</think>"]);
    // Whole words that are tokens are taken as they are by this kind, whatever the merges say.
    let ignoring = bpe(Gguf::default(), "llama-bpe").set("tokenizer.ggml.merges", V::Strs(vec![]));
    let ids = of(&ignoring).encode("hello", false);
    assert_eq!(ids.len(), 1);
    assert!(of(&ignoring).adds_bos() && !tokenizer.adds_bos());
}

/// Bounded time: a quadratic merge of these would take minutes. The limit is the test runner's.
#[test]
fn very_long_words_are_not_quadratic() {
    for tokenizer in &*REAL {
        for unit in ["a", "ab", "é", "的", "🙂", "0", "-", "\n", " ", "<", "<|im_end|>", "</table>", "a b"] {
            let text = unit.repeat(400_000 / unit.len());
            let ids = tokenizer.encode(&text, false);
            assert_eq!(tokenizer.decode(&ids), text, "{unit:?}");
        }
    }
}

/// Bytes for which the vocabulary has a token. SmolLM2's has none for 0x04, 0xF1 and some more: the reference drops them too.
fn known_bytes(tokenizer: &Tokenizer) -> [bool; 256] {
    let mut known = [false; 256];
    for id in 0..tokenizer.n_vocab() as u32 {
        if let [byte] = tokenizer.piece(id) {
            known[usize::from(*byte)] = true;
        }
    }
    known
}

static KNOWN: LazyLock<[[bool; 256]; 2]> = LazyLock::new(|| [known_bytes(&REAL[0]), known_bytes(&REAL[1])]);

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".*",
        "[ -~\\n\\t]{0,200}",
        "[ \\n\\t\\r]{0,80}",
        proptest::collection::vec(any::<char>(), 0..80).prop_map(String::from_iter),
        "(<\\|im_start\\|>|<\\|im_end\\|>|<bos>|<b>|</|\\|>|<|>|a| |\\n){0,30}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_text_survives_encoding(text in any_text()) {
        for (tokenizer, known) in REAL.iter().zip(&*KNOWN) {
            let is_known = |c: &char| c.encode_utf8(&mut [0; 4]).bytes().all(|byte| known[usize::from(byte)]);
            let text: String = text.chars().filter(is_known).collect();
            let ids = tokenizer.encode(&text, false);
            let mut detokenizer = Detokenizer::continuing().show_special(true);
            let mut out: String = ids.iter().map(|id| detokenizer.push(tokenizer, *id)).collect();
            out.push_str(&detokenizer.finish());
            prop_assert_eq!(&out, &text);
            prop_assert!(ids.iter().all(|id| !tokenizer.is_control(*id)));
        }
    }

    /// Any ids at all: what comes out bit by bit is the lossy decoding of all bytes at once.
    #[test]
    fn pushes_add_up_to_the_whole_decoded_at_once(seeds in proptest::collection::vec((0..3_u32, any::<u32>()), 0..60)) {
        for tokenizer in &*REAL {
            // A third of the ids are single bytes, so that characters are cut everywhere.
            let n = tokenizer.n_vocab() as u32;
            let ids: Vec<u32> = seeds.iter().map(|(kind, seed)| match kind {
                0 => tokenizer.encode(&char::from(*seed as u8).to_string(), false).first().copied().unwrap_or(0),
                1 => (0..256).map(|k| (seed.wrapping_add(k)) % n).find(|id| tokenizer.piece(*id).len() == 1).unwrap_or(0),
                _ => seed % n,
            }).collect();
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.piece(*id)).copied().collect();
            let mut detokenizer = Detokenizer::continuing().show_special(true);
            let mut out = String::new();
            for id in &ids {
                out.push_str(&detokenizer.push(tokenizer, *id));
            }
            out.push_str(&detokenizer.finish());
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
            prop_assert_eq!(detokenizer.finish(), "");
        }
    }
}

#[test]
fn a_character_in_several_tokens_comes_out_whole() {
    for tokenizer in &*REAL {
        let mut detokenizer = Detokenizer::new(tokenizer);
        let mut out = String::new();
        for id in tokenizer.encode("a🦭\u{10ffff}é", false) {
            let text = detokenizer.push(tokenizer, id);
            assert!(!text.contains('\u{FFFD}'), "{text:?}");
            out.push_str(&text);
        }
        assert_eq!(out + &detokenizer.finish(), "a🦭\u{10ffff}é");
    }
}
