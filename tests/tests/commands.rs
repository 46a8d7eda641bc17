//! The offline commands as a user has them, on the real models: token ids, and the same bits however computed.

use plimsoll_tests::fixture::cache;
use plimsoll_tests::fixture::tiny::{Tiny, Weights};
use plimsoll_tests::places::{Model, repository_root};
use plimsoll_tests::process::{plimsoll, run};
use serde_json::Value;
use std::path::Path;

/// The one line of JSON that a command says.
fn said(command: &str, model: &Path, arguments: &[&str]) -> Value {
    let model = model.to_str().expect("a plain path");
    let output = run(&plimsoll(), [&[command, "--model", model, "--json"], arguments].concat());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command} {arguments:?}: {:?}\n{stderr}", output.status);
    assert_eq!(stdout.lines().count(), 1, "one line and nothing else: {stdout}");
    serde_json::from_str(&stdout).expect("JSON")
}

#[test]
fn tokenize_says_the_reference_s_ids() {
    for (model, name) in [(Model::SmolLm2, "smollm2-135m-instruct-q4_1"), (Model::Gemma3, "gemma-3-270m-q4_k_m")] {
        let path = repository_root().join(format!("tests/data/golden/{name}.json"));
        let golden: Value = serde_json::from_slice(&std::fs::read(path).expect("a golden file")).expect("JSON");
        for case in golden["tokenize"].as_array().expect("cases") {
            let text = case["text"].as_str().expect("a text");
            assert_eq!(said("tokenize", &model.path(), &["--text", text])["ids"], case["ids"], "{name}: {text:?}");
        }
    }
}

const LONG_PROMPT: &str = "The Plimsoll line is a mark on a ship's hull that shows how deep she may lie in the water. \
     It has several lines, for salt and fresh water, for summer and winter. A ship that is loaded deeper is in danger:";

/// Ids and log-probabilities of every step must not depend on chunks, threads or instruction sets.
fn check_same_bits(model: &Path, prompt: &str, n: &str) {
    let of = |knobs: &[&str]| {
        let arguments = [&["--prompt", prompt, "-n", n, "--temp", "0.8", "--seed", "7", "--top", "5"], knobs].concat();
        said("generate", model, &arguments)
    };
    let expected = of(&["--threads", "1", "--chunk", "1"]);
    let ways: [&[&str]; 4] = [
        &["--threads", "2", "--chunk", "512"],
        &["--threads", "2", "--chunk", "7"],
        &["--threads", "3", "--chunk", "64"],
        &["--threads", "2", "--chunk", "33", "--simd", "portable"],
    ];
    for way in ways {
        assert_eq!(of(way), expected, "{way:?}");
    }
}

#[test]
fn chunks_threads_and_instruction_sets_change_no_bit_of_tiny_models() {
    for tiny in Tiny::ALL {
        check_same_bits(&cache::tiny(tiny, Weights::Mixed, 1).expect("a fixture"), LONG_PROMPT, "24");
    }
}

#[test]
fn chunks_and_threads_change_no_bit_of_a_real_model() {
    // Without the portable kernels: they take minutes here, and the tiny models cover them.
    let of = |threads: &str, chunk: &str| {
        let arguments = ["--prompt", LONG_PROMPT, "-n", "16", "--threads", threads, "--chunk", chunk, "--top", "5"];
        said("generate", &Model::SmolLm2.path(), &arguments)
    };
    let expected = of("1", "1");
    assert_eq!(of("2", "512"), expected);
    assert_eq!(of("2", "7"), expected);
}

#[test]
fn bench_says_what_it_measured() {
    let arguments = ["-p", "32", "-n", "8", "--reps", "2", "--threads", "2"];
    let said = said("bench", &cache::tiny(Tiny::Llama, Weights::Mixed, 1).expect("a fixture"), &arguments);
    for figure in ["prefill_tok_s", "decode_tok_s"] {
        let of = |part: &str| said[figure][part].as_f64().unwrap_or_else(|| panic!("{figure}.{part} in {said}"));
        assert!(0.0 < of("min") && of("min") <= of("median") && of("median") <= of("max"), "{said}");
    }
    assert!(said["peak_rss_bytes"].as_u64().expect("bytes") > 1 << 20, "{said}");
}
