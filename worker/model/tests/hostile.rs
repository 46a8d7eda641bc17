//! Hostile headers: cut short, with flipped bits, with absurd counts, lengths, types, dimensions and alignments. Each must give an
//! error or a header that works, never a panic, and must not take more memory than a small multiple of its own bytes.
//!
//! One test function: the allocator that watches counts for the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::models::{ARCHS, bpe, spm, tiny};
use common::writer::{Gguf, T, V};
use peak_alloc::PeakAlloc;
use plimsoll_model::facts::{KvType, ModelFacts};
use plimsoll_model::gguf::Header;
use plimsoll_model::template::{ChatMessage, ChatTemplate, RenderOptions};
use plimsoll_model::tokenizer::Tokenizer;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The bound: eight times the file and one MiB, for all that is made from a header together.
fn limit_bytes(file_bytes: usize) -> usize {
    8 * file_bytes + (1 << 20)
}

/// Counts of what became of the cases.
#[derive(Debug, Default)]
struct Tally {
    n_cases: usize,
    n_refused: usize,
    n_whole: usize,
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Everything that is built from a header, and used a little. `true` when all of it worked.
fn build(bytes: &[u8]) -> Result<(Header, Option<Tokenizer>), String> {
    let header = Header::parse(bytes).map_err(|e| e.to_string())?;
    let _ = header.check_data(bytes.len() as u64);
    if let Ok(facts) = ModelFacts::from_header(&header) {
        let _ = facts.kv_bytes(KvType::F16, u32::MAX) + facts.kv_bytes_paged(KvType::Q4_0, u32::MAX);
        let _ = facts.activation_bytes(u32::MAX, u32::MAX);
    }
    let tokenizer = Tokenizer::from_header(&header);
    Ok((header, tokenizer.ok()))
}

fn use_it(header: &Header, tokenizer: &Tokenizer) {
    let text = "hello the <|im_end|> <b>\n\n ab ab ähm 🙂 </think>";
    for parse_special in [false, true] {
        let ids = tokenizer.encode_prompt(text, parse_special, true);
        let _ = tokenizer.decode(&ids);
    }
    let _ = tokenizer.decode(&(0..300).chain([u32::MAX]).collect::<Vec<_>>());
    if let Ok(template) = ChatTemplate::from_header(header) {
        let _ = template.prompt_ids(tokenizer, &[ChatMessage::new("user", text)], &RenderOptions::default());
    }
}

fn check(tally: &mut Tally, label: &str, bytes: &[u8]) {
    tally.n_cases += 1;
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let built = catch_unwind(AssertUnwindSafe(|| build(bytes)));
    let used = ALLOCATOR.peak_usage().saturating_sub(before);
    let limit = limit_bytes(bytes.len());
    assert!(used <= limit, "{label}: {used} bytes of memory for a file of {} (limit {limit})", bytes.len());
    match built.unwrap_or_else(|_| panic!("{label}: panicked")) {
        Err(sentence) => {
            assert!(sentence.len() > 20, "{label}: {sentence}");
            tally.n_refused += 1;
        }
        Ok((header, tokenizer)) => {
            if let Some(tokenizer) = tokenizer {
                catch_unwind(AssertUnwindSafe(|| use_it(&header, &tokenizer)))
                    .unwrap_or_else(|_| panic!("{label}: panicked in use"));
                tally.n_whole += 1;
            }
        }
    }
}

fn with_template(gguf: Gguf) -> Gguf {
    gguf.str(
        "tokenizer.chat_template",
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}",
    )
}

fn cuts(tally: &mut Tally) {
    // Every byte of two headers, one of each kind of tokenizer.
    for name in ["llama", "gemma3"] {
        let gguf = with_template(tiny(name));
        let header = gguf.header_bytes();
        for n in 0..header.len() {
            check(tally, &format!("{name} cut at {n}"), &header[..n]);
        }
        check(tally, &format!("{name} without data"), &header);
    }
}

fn flips(tally: &mut Tally) {
    for seed in 0..1500_u64 {
        let mut rng = Rng(seed);
        let name = ARCHS[rng.below(ARCHS.len())];
        let mut bytes = with_template(tiny(name)).header_bytes();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        check(tally, &format!("flips, seed {seed}, {name}"), &bytes);
    }
}

/// Absurd 32- and 64-bit numbers written over random places.
fn absurd_numbers(tally: &mut Tally) {
    let numbers = [
        0,
        1,
        2,
        u64::MAX,
        1 << 63,
        (1 << 63) - 1,
        1 << 62,
        1 << 60,
        1 << 48,
        1 << 40,
        1 << 33,
        1 << 32,
        1 << 31,
        65_536,
    ];
    for seed in 0..1500_u64 {
        let mut rng = Rng(seed ^ 0xABBA);
        let name = ARCHS[rng.below(ARCHS.len())];
        let mut bytes = with_template(tiny(name)).header_bytes();
        let number = numbers[rng.below(numbers.len())];
        let n_bytes = if rng.below(2) == 0 { 4 } else { 8 };
        let at = rng.below(bytes.len() - 8);
        bytes[at..at + n_bytes].copy_from_slice(&number.to_le_bytes()[..n_bytes]);
        check(tally, &format!("number {number:#x} at {at}, seed {seed}, {name}"), &bytes);
    }
}

/// Counts, lengths, types, dimensions and alignments, wrong in one place each.
fn wrong_structure() -> Vec<(String, Vec<u8>)> {
    let mut cases = Vec::new();
    let mut add = |label: String, gguf: Gguf| cases.push((label, gguf.bytes()));
    for n in [1 << 17, 1 << 32, 1 << 60, u64::MAX] {
        add(format!("{n} entries"), Gguf { n_kv: Some(n), ..tiny("llama") });
        add(format!("{n} tensors"), Gguf { n_tensors: Some(n), ..tiny("llama") });
        for ty in 0..14_u32 {
            // An array that claims n elements of each type and has none of them.
            let claim = [ty.to_le_bytes().to_vec(), n.to_le_bytes().to_vec()].concat();
            add(format!("array of {n} of type {ty}"), tiny("llama").set("x", V::Raw(9, claim)));
        }
        add(format!("string of {n}"), tiny("llama").set("x", V::Raw(8, n.to_le_bytes().to_vec())));
        for dims in [vec![n], vec![n, n], vec![32, n], vec![n, 1, 1, n]] {
            add(format!("dims {dims:?}"), tiny("llama").tensor_of("blk.0.attn_q.weight", &dims, 2, 64));
        }
        let mut gguf = tiny("llama");
        gguf.tensors[3].offset = Some(n);
        add(format!("offset {n}"), gguf);
    }
    for ty in (0..64).chain([u32::MAX]) {
        add(format!("tensor type {ty}"), tiny("llama").tensor_of("blk.0.attn_q.weight", &[64, 64], ty, 4096));
        add(format!("value type {ty}"), tiny("llama").set("x", V::Raw(ty, vec![1, 0, 0, 0, 0, 0, 0, 0])));
    }
    for n_dims in [0, 5, 255] {
        let dims = vec![1; n_dims];
        add(format!("{n_dims} dimensions"), tiny("llama").tensor_of("blk.0.attn_q.weight", &dims, 0, 4));
    }
    for alignment in [0, 1, 3, 31, 64, 1 << 21, 1 << 22, u32::MAX] {
        add(format!("alignment {alignment}"), tiny("llama").u32("general.alignment", alignment));
    }
    for version in [0, 1, 4, 0x0300_0000, 0x0200_0000, u32::MAX] {
        add(format!("version {version:#x}"), Gguf { version, ..tiny("llama") });
    }
    cases
}

/// Keys and texts, wrong in one place each.
fn wrong_values() -> Vec<(String, Vec<u8>)> {
    let mut cases = Vec::new();
    let mut add = |label: String, gguf: Gguf| cases.push((label, gguf.bytes()));
    for value in [0, 1, 2, 3, 7, 255, 65_536, 1 << 20, 1 << 31, u32::MAX] {
        for key in [
            "block_count",
            "embedding_length",
            "attention.head_count",
            "attention.head_count_kv",
            "feed_forward_length",
            "context_length",
            "attention.key_length",
            "attention.value_length",
            "rope.dimension_count",
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
            "vocab_size",
        ] {
            add(format!("{key} = {value}"), tiny("mixtral").u32(&format!("llama.{key}"), value));
        }
        for key in ["bos_token_id", "eos_token_id", "unknown_token_id", "eot_token_id"] {
            add(format!("{key} = {value}"), tiny("gemma3").u32(&format!("tokenizer.ggml.{key}"), value));
        }
    }
    add("no tokens".into(), tiny("llama").set("tokenizer.ggml.tokens", V::Strs(vec![])));
    add("tokens are numbers".into(), tiny("llama").set("tokenizer.ggml.tokens", V::I32s(vec![1])));
    add("all tokens empty".into(), tiny("gemma3").set("tokenizer.ggml.tokens", V::Strs(vec![String::new(); 279])));
    add("all tokens the same".into(), tiny("gemma3").set("tokenizer.ggml.tokens", V::Strs(vec!["a".into(); 279])));
    add("kinds out of range".into(), tiny("llama").set("tokenizer.ggml.token_type", V::I32s(vec![-1; 271])));
    add("all control".into(), with_template(tiny("llama").set("tokenizer.ggml.token_type", V::I32s(vec![3; 271]))));
    add("scores not numbers".into(), tiny("gemma3").set("tokenizer.ggml.scores", V::F32s(vec![f32::NAN; 279])));
    add("scores infinite".into(), tiny("gemma3").set("tokenizer.ggml.scores", V::F32s(vec![f32::INFINITY; 279])));
    for merge in ["", " ", "a", "a ", " a", "a b c", "zz yy", "  "] {
        add(format!("merge {merge:?}"), tiny("llama").set("tokenizer.ggml.merges", V::Strs(vec![merge.into()])));
    }
    for (key, other) in [
        ("tokenizer.ggml.model", "unigram"),
        ("tokenizer.ggml.pre", "x"),
        ("tokenizer.chat_template", "{% for"),
        ("tokenizer.chat_template", "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}"),
        (
            "tokenizer.chat_template",
            "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        ),
        ("tokenizer.chat_template", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}"),
    ] {
        add(format!("{key} = {other}"), tiny("llama").str(key, other));
    }
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    add("deep template".into(), tiny("llama").str("tokenizer.chat_template", &format!("{{{{ {deep} }}}}")));
    let twice = tiny("llama");
    let first = twice.kv[0].clone();
    let mut kv = twice.kv.clone();
    kv.push(first);
    add("a key twice".into(), Gguf { kv, ..twice });
    let mut twice = tiny("llama");
    twice.tensors.push(twice.tensors[0].clone());
    add("a tensor twice".into(), twice);
    for magic in [*b"GGML", *b"FUGG", [0; 4], *b"gguf"] {
        add(format!("magic {magic:?}"), Gguf { magic, ..tiny("llama") });
    }
    cases
}

/// Files that ask for as much memory per byte as the format allows.
fn dense() -> Vec<(String, Vec<u8>)> {
    let letters = |n: usize, len: usize| -> Vec<String> {
        (0..n).map(|i| format!("{i:0len$x}").chars().rev().take(len).collect()).collect()
    };
    let base = || Gguf::default().str("general.architecture", "llama");
    let tokens = |gguf: Gguf, tokens: Vec<String>| {
        gguf.set("tokenizer.ggml.tokens", V::Strs(tokens)).unset("tokenizer.ggml.token_type")
    };
    let many_entries = (0..60_000).fold(base(), |mut gguf, i| {
        gguf.kv.push((format!("{i:x}"), V::Bool(true)));
        gguf
    });
    let many_tensors = (0..100_000).fold(base(), |mut gguf, i| {
        gguf.tensors.push(T { name: format!("{i:x}"), dims: vec![1], ty: 24, offset: Some(i * 32), n_bytes: 0 });
        gguf
    });
    let mut merges = Vec::new();
    for a in 0..256 {
        merges.extend(
            (0..256).map(|b| format!("{} {}", common::models::byte_char(a as u8), common::models::byte_char(b as u8))),
        );
    }
    let mut pairs: Vec<String> = (0..=255).map(|b| common::models::byte_char(b).to_string()).collect();
    pairs.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    vec![
        ("many entries".into(), many_entries.header_bytes()),
        ("many tensors".into(), many_tensors.header_bytes()),
        (
            "many short tokens, spm".into(),
            tokens(spm(base()), letters(400_000, 3)).unset("tokenizer.ggml.scores").bytes(),
        ),
        (
            "many short tokens, bpe".into(),
            tokens(bpe(base(), "smollm"), letters(400_000, 3)).set("tokenizer.ggml.merges", V::Strs(vec![])).bytes(),
        ),
        (
            "many empty tokens".into(),
            tokens(spm(base()), vec![String::new(); 400_000]).unset("tokenizer.ggml.scores").bytes(),
        ),
        (
            "many merges".into(),
            tokens(bpe(base(), "smollm"), pairs.clone()).set("tokenizer.ggml.merges", V::Strs(merges)).bytes(),
        ),
        (
            "all control".into(),
            tokens(bpe(base(), "smollm"), pairs.clone())
                .set("tokenizer.ggml.token_type", V::I32s(vec![3; pairs.len()]))
                .bytes(),
        ),
    ]
}

#[test]
fn hostile_headers_give_an_error_or_work() {
    // What is compiled once for the process is no header's memory.
    for name in ARCHS {
        let (header, tokenizer) = build(&tiny(name).bytes()).unwrap();
        use_it(&header, &tokenizer.unwrap());
    }
    let mut tally = Tally::default();
    for (label, bytes) in wrong_structure().into_iter().chain(wrong_values()).chain(dense()) {
        check(&mut tally, &label, &bytes);
    }
    let n_structured = tally.n_cases;
    cuts(&mut tally);
    flips(&mut tally);
    absurd_numbers(&mut tally);
    println!("{n_structured} structured, {tally:?}");
    assert!(n_structured >= 250 && tally.n_refused > 1000 && tally.n_whole > 100, "{n_structured} {tally:?}");
}
