//! The offline commands as scripts see them: one line of JSON on stdout, sentences on stderr, exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::tiny_path;
use plimsoll_tests::fixture::tiny::Tiny;
use plimsoll_tests::places::{Model, repository_root};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll-worker")).args(args).output().unwrap()
}

/// The one line of JSON that a command writes.
fn json_of(args: &[&str]) -> Value {
    let output = run(args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && err.is_empty(), "{args:?}: {} {err}", output.status);
    assert_eq!(out.matches('\n').count(), 1, "one line: {out:?}");
    serde_json::from_str(&out).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn tokenize_gives_ids() {
    let (smollm2, gemma3) = (Model::SmolLm2.path(), Model::Gemma3.path());
    let ids = |model: &Path, more: &[&str]| {
        json_of(&[&["tokenize", "--model", text(model), "--json"], more].concat())["ids"].clone()
    };
    assert_eq!(ids(&smollm2, &["--text", "Hello, world!"]), json!([19556, 28, 905, 17]));
    assert_eq!(ids(&smollm2, &["--text", "<|im_start|>user\nhi<|im_end|>"]), json!([1, 4093, 198, 6004, 2]));
    assert_eq!(ids(&smollm2, &["--text", "Hello", "--add-special"]), json!([19556]), "this model asks for no BOS");
    assert_eq!(ids(&smollm2, &["--text", ""]), json!([]));
    let with_bos = ids(&gemma3, &["--text", "Hello", "--add-special"]);
    assert_eq!(with_bos[0], json!(2));
    assert_eq!(with_bos.as_array().unwrap()[1..], *ids(&gemma3, &["--text", "Hello"]).as_array().unwrap());
}

#[test]
fn generate_continues_raw_text() {
    let model = Model::SmolLm2.path();
    let run = |more: &[&str]| {
        let args = ["generate", "--model", text(&model), "--prompt", "The capital of France is", "-n", "4", "--json"];
        json_of(&[&args, more].concat())
    };
    let greedy = run(&[]);
    assert_eq!(greedy, json!({"ids": [7042, 30, 198, 198], "text": " Paris.\n\n", "finish": "length"}));
    let top = run(&["--top", "2"]);
    assert_eq!(top["top"].as_array().unwrap().len(), 4);
    assert_eq!(top["top"][0][0][0], json!(7042));
    // Neither threads, chunk nor kernels change a token.
    assert_eq!(run(&["--threads", "1", "--chunk", "1"]), greedy);
    let warm = run(&["--temp", "1.2", "--seed", "3"]);
    assert_eq!(run(&["--temp", "1.2", "--seed", "3", "--chunk", "3"]), warm);
    assert_ne!(run(&["--temp", "1.2", "--seed", "4"])["ids"], warm["ids"]);
}

#[test]
fn generate_stops_at_the_models_end_unless_told_not_to() {
    let model = Model::SmolLm2.path();
    let prompt = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n";
    let args = ["generate", "--model", text(&model), "--prompt", prompt, "-n", "60", "--json"];
    let stopped = json_of(&args);
    assert_eq!(stopped["finish"], json!("stop"));
    assert!(!stopped["text"].as_str().unwrap().contains("<|im_end|>"));
    let on = json_of(&[&args[..], &["--ignore-eos"]].concat());
    assert_eq!((on["ids"].as_array().unwrap().len(), &on["finish"]), (60, &json!("length")));
}

#[test]
fn bench_gives_the_spread_of_both_speeds() {
    let model = tiny_path(Tiny::LlamaMoe);
    let args = ["bench", "--model", text(&model), "--threads", "1", "-p", "32", "-n", "8", "-r", "3", "--json"];
    let bench = json_of(&args);
    for speed in ["prefill_tok_s", "decode_tok_s"] {
        let figure = |name: &str| bench[speed][name].as_f64().unwrap();
        assert!(0.0 < figure("min") && figure("min") <= figure("median") && figure("median") <= figure("max"));
    }
    assert!(bench["peak_rss_bytes"].as_u64().unwrap() > 1 << 20, "{bench}");
}

/// Weights are mapped, not copied; logits and activations are sized by the chunk.
#[test]
fn memory_is_the_model_and_little_more() {
    for (model, more_mib) in [(Model::SmolLm2.path(), 64), (Model::Gemma3.path(), 128)] {
        let bench =
            json_of(&["bench", "--model", text(&model), "-t", "2", "-p", "128", "-n", "2", "-r", "1", "--json"]);
        let peak_bytes = bench["peak_rss_bytes"].as_u64().unwrap();
        let file_bytes = std::fs::metadata(&model).unwrap().len();
        assert!(peak_bytes < file_bytes + (more_mib << 20), "{}: {peak_bytes} for {file_bytes}", model.display());
    }
}

/// Reference values: llama.cpp on the same text (the licence), context 512, second half of each window.
#[test]
fn perplexity_of_smollm2() {
    check_perplexity(&Model::SmolLm2.path(), 15.9411);
}

#[test]
fn perplexity_of_gemma3() {
    check_perplexity(&Model::Gemma3.path(), 10.1496);
}

fn check_perplexity(model: &Path, reference: f64) {
    let file = repository_root().join("LICENSE");
    let found = json_of(&["perplexity", "--model", text(model), "--file", text(&file), "--ctx", "512", "--json"]);
    assert_eq!(found["tokens"], json!(1020));
    let off = found["ppl"].as_f64().unwrap() / reference - 1.0;
    assert!(off.abs() < 0.005, "{found} is {:.2} % off the reference's {reference}", 100.0 * off);
}

#[test]
fn mistakes_have_a_sentence_and_a_code() {
    let junk = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(junk.path(), b"not a model").unwrap();
    let tiny = tiny_path(Tiny::Llama);
    let rows: [(&[&str], i32, &str); 11] = [
        (&["generate"], 2, "--model"),
        (&["dance"], 2, "dance"),
        (&["tokenize", "--model", "/no/such.gguf", "--text", "a"], 66, "/no/such.gguf"),
        (&["generate", "--model", "/proc/self/mem", "--prompt", "a"], 66, "is not a regular file"),
        (&["generate", "--model", "/proc", "--prompt", "a"], 66, "is not a regular file"),
        (&["tokenize", "--model", text(junk.path()), "--text", "a"], 6, text(junk.path())),
        (&["generate", "--model", text(&tiny), "--prompt", "a", "--kv-type", "q2"], 2, "f16, q8_0 or q4_0"),
        (&["generate", "--model", text(&tiny), "--prompt", "a", "--top-p", "7"], 2, "top_p is 7"),
        (&["generate", "--model", text(&tiny), "--prompt", "a", "-n", "999999"], 2, "was trained for"),
        (&["perplexity", "--model", text(&tiny), "--file", "/no/such.txt"], 1, "/no/such.txt"),
        (&["bench", "--model", text(&tiny), "--threads", "0"], 2, "--threads"),
    ];
    for (args, code, words) in rows {
        let output = run(args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(words) && output.stdout.is_empty(), "{args:?}: {err}");
    }
}
