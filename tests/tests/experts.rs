//! Mixture-of-Experts models made of SmolLM2: what they must have in common with the dense model, and what not.

use plimsoll_model::file::TensorRef;
use plimsoll_tests::digest::Hashing;
use plimsoll_tests::engine::{argmax, cpu, load, logits_from, open, tokenizer};
use plimsoll_tests::fixture::cache;
use plimsoll_tests::fixture::experts::{Experts, Kind};
use plimsoll_tests::fixture::router;
use plimsoll_tests::fixture::source::Source;
use plimsoll_tests::fixture::tiny::{Tiny, Weights};
use plimsoll_tests::places::Model;
use plimsoll_tests::process::{plimsoll, run};
use plimsoll_tests::recorder::Recorder;
use plimsoll_worker::sampler::log_sum_exp;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fn source() -> Source {
    Source::open(&Model::SmolLm2.path()).expect("a dense llama model")
}

/// The licence of this project: text of another kind than the sample that routers are made with.
const LICENCE: &str = include_str!("../../LICENSE");

/// Permuted copies, used by a Zipf law.
fn copies(n_experts: usize, top_k: usize, exponent: f32) -> PathBuf {
    let made = cache::made_once(&format!("copies-{n_experts}-top{top_k}-zipf{exponent}"), |out| {
        let routers = router::zipf(&Model::SmolLm2.path(), n_experts, top_k, exponent, 1);
        let experts = Experts { kind: Kind::Copies, n_experts, top_k, seed: 1, routers };
        experts.write(&source(), out).map_err(std::io::Error::other)
    });
    made.expect("a fixture")
}

/// 8 slices, with equal scores or random ones.
fn slices(top_k: usize, is_random: bool) -> PathBuf {
    let name = if is_random { "random" } else { "zero" };
    let made = cache::made_once(&format!("slices-8-top{top_k}-{name}"), |out| {
        let source = source();
        let routers = match is_random {
            true => router::random(source.n_layers, 8, source.n_embd, 1),
            false => router::zero(source.n_layers, 8, source.n_embd),
        };
        let experts = Experts { kind: Kind::Slices, n_experts: 8, top_k, seed: 1, routers };
        experts.write(&source, out).map_err(std::io::Error::other)
    });
    made.expect("a fixture")
}

/// Prompts whose continuation is clear: additions in another order and roundings that tip over change log-probabilities by
/// about 0.1 nats, so that other texts part at a near tie sooner or later.
const PROMPTS: [&str; 6] = [
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "<html><head><title>Ships</title></head>",
    "The first ten prime numbers are 2, 3, 5,",
    "The alphabet: A, B, C, D,",
    "{\"a\": 1, \"b\": 2, \"c\": 3,",
    "for i in range(10):\n    print(i)\n\nfor i in range(20):\n",
];
const N_TOKENS: u32 = 48;

/// The greedy continuation, by the command that a user has.
fn generate(path: &Path, prompt: &str) -> (Vec<u32>, String) {
    let n = N_TOKENS.to_string();
    let arguments = ["generate", "--prompt", prompt, "-n", &n, "--temp", "0", "--json", "--model"];
    let output = run(&plimsoll(), arguments.iter().map(OsStr::new).chain([path.as_os_str()]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    let ids = said["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect();
    (ids, said["text"].as_str().expect("a text").to_owned())
}

fn check_same_text(path: &Path) {
    for prompt in PROMPTS {
        assert_eq!(generate(path, prompt), generate(&Model::SmolLm2.path(), prompt), "{prompt:?}");
    }
}

#[test]
fn permuted_copies_write_the_dense_model_s_text() {
    check_same_text(&copies(8, 2, 1.0));
}

#[test]
fn all_slices_together_write_the_dense_model_s_text() {
    check_same_text(&slices(8, false));
}

/// Margin in nats over which a choice is beyond what roundings change.
const CLEAR: f32 = 0.4;

/// Root mean square difference of the log-probabilities of the five likeliest ids, and the share of choices that differ
/// where the first model prefers its own clearly.
fn difference(one: &Path, other: &Path, text: &str) -> (f32, f32) {
    let rows = |path: &Path| {
        let model = open(path);
        let ids = tokenizer(&model).encode(text, false);
        logits_from(&mut load(cpu(), &model, ids.len()), &ids, 0)
    };
    let (mut squares, mut n_clear, mut n_differing) = (Vec::new(), 0, 0);
    for (a, b) in rows(one).iter().zip(rows(other)) {
        let mut order: Vec<usize> = (0..a.len()).collect();
        order.sort_by(|x, y| a[*y].total_cmp(&a[*x]));
        let (z_a, z_b) = (log_sum_exp(a), log_sum_exp(&b));
        squares.extend(order[..5].iter().map(|id| ((a[*id] - z_a) - (b[*id] - z_b)).powi(2)));
        if a[order[0]] - a[order[1]] > CLEAR {
            n_clear += 1;
            n_differing += u32::from(argmax(&b) as usize != order[0]);
        }
    }
    ((squares.iter().sum::<f32>() / squares.len() as f32).sqrt(), n_differing as f32 / n_clear as f32)
}

#[test]
fn copies_and_slices_compute_the_dense_function_on_any_text() {
    let text = &LICENCE[..2_000];
    for path in [copies(8, 2, 1.0), slices(8, false)] {
        let (mean, share) = difference(&Model::SmolLm2.path(), &path, text);
        println!("{}: {mean:.4} nats, {share:.4} of the choices differ", path.display());
        assert!(mean < 0.2 && share < 0.01, "{}: {mean} nats, {share} of the choices differ", path.display());
    }
}

#[test]
fn a_mixed_up_expert_shows_in_the_text() {
    let path = copies(2, 1, 0.0);
    let mut bytes = std::fs::read(&path).expect("the fixture");
    let model = open(&path);
    // Swap the two down matrices of one layer in the middle; gate and up stay.
    let range = model.file.tensor("blk.14.ffn_down_exps.weight").expect("a tensor").range;
    let down = &mut bytes[range];
    down.rotate_left(down.len() / 2);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mixed = folder.path().join("mixed.gguf");
    std::fs::write(&mixed, bytes).expect("room for a file");
    let text = &LICENCE[..2_000];
    let (mean, share) = difference(&path, &mixed, text);
    println!("mixed up: {mean:.4} nats, {share:.4} of the choices differ");
    assert!(mean > 0.5 && share > 0.05, "{mean} nats, {share} of the choices differ");
}

/// Greedy ids of this engine, in full: two slices swapped, or a stale one, would change them. Another engine can't say whether
/// they are right: a model with most of its slices left out is chaotic (0.3 % of noise on the activations makes an f32
/// evaluation write other text). That is what the tiny models with experts are for, in `golden.rs`.
#[test]
fn some_of_the_slices_write_their_own_text() {
    let path = slices(2, true);
    let expected: serde_json::Value =
        serde_json::from_str(include_str!("../data/golden/slices-8-top2-own.json")).expect("JSON");
    for answer in expected.as_array().expect("answers") {
        let prompt = answer["prompt"].as_str().expect("a prompt");
        assert_eq!(serde_json::json!(generate(&path, prompt).0), answer["ids"], "{prompt:?}");
    }
}

/// Rows that each expert of each layer was used for on a text, by the engine's own doing.
fn uses(path: &Path, text: &str, n_experts: usize) -> Vec<Vec<usize>> {
    let model = open(path);
    let ids = tokenizer(&model).encode(text, false);
    let gates: Vec<_> =
        (0..).map_while(|layer| model.file.tensor(&format!("blk.{layer}.ffn_gate_exps.weight"))).collect();
    let starts = |gate: &TensorRef<'_>| {
        let expert_bytes = gate.range.len() / n_experts;
        let first = gate.range.start;
        (0..n_experts).map(move |expert| first + expert * expert_bytes)
    };
    let (device, log) = Recorder::new(cpu(), gates.iter().flat_map(starts));
    drop(logits_from(&mut load(device, &model, ids.len()), &ids, ids.len() - 1));
    let log = log.borrow();
    let used: Vec<Vec<usize>> = gates.iter().map(|gate| starts(gate).map(|at| log[&at].n_rows).collect()).collect();
    assert!(used.iter().all(|layer| layer.iter().sum::<usize>() == ids.len() * 2), "top-2 of each token");
    used
}

/// Slope of ln(use) over ln(rank), least squares.
fn exponent_of(use_by_rank: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> =
        use_by_rank.iter().enumerate().map(|(rank, n)| (((rank + 1) as f64).ln(), n.ln())).collect();
    let n = points.len() as f64;
    let (mean_x, mean_y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let covariance: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    -covariance / points.iter().map(|p| (p.0 - mean_x).powi(2)).sum::<f64>()
}

#[test]
fn experts_are_used_by_the_law_that_was_asked_for() {
    for exponent in [0.0, 1.0] {
        let mut by_rank = vec![0.0; 8];
        for (layer, used) in uses(&copies(8, 2, exponent), &LICENCE[..2_000], 8).iter().enumerate() {
            for (rank, n) in router::ranks(8, 1, layer).into_iter().zip(used) {
                by_rank[rank] += *n as f64;
            }
        }
        let measured = exponent_of(&by_rank);
        println!("asked for {exponent}, measured {measured:.2}: {by_rank:?}");
        assert!(
            (measured - f64::from(exponent)).abs() < 0.25,
            "asked for {exponent}, measured {measured}: {by_rank:?}"
        );
    }
}

#[test]
fn a_seed_decides_every_byte() {
    let digest = |seed: u64| {
        let source = source();
        let routers = router::zipf(&Model::SmolLm2.path(), 2, 1, 0.5, seed);
        let mut out = Hashing::default();
        let experts = Experts { kind: Kind::Copies, n_experts: 2, top_k: 1, seed, routers };
        experts.write(&source, &mut out).expect("a hash takes every byte");
        out.hex()
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn what_can_t_be_made_is_refused_with_the_reason() {
    let source = source();
    let cases = [
        (Kind::Slices, 7, 2, "can't be cut into that many slices of whole blocks of 32: 7 experts"),
        (Kind::Slices, 64, 2, "can't be cut into that many slices"),
        (Kind::Slices, 3, 2, "only a power of two"),
        (Kind::Copies, 8, 9, "top-k 9 of 8 experts is impossible"),
        (Kind::Copies, 8, 0, "top-k 0 of 8 experts is impossible"),
    ];
    for (kind, n_experts, top_k, words) in cases {
        let routers = router::zero(source.n_layers, n_experts, source.n_embd);
        let experts = Experts { kind, n_experts, top_k, seed: 1, routers };
        let error = experts.write(&source, std::io::sink()).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = Source::open(&cache::tiny(Tiny::LlamaMoe, Weights::Mixed, 1).expect("a fixture")).expect_err("experts");
    assert!(error.to_string().contains("a dense llama model is needed"), "{error}");
}
