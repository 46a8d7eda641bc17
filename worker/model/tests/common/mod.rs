//! What the tests of this crate share: the real models, and a writer of small GGUF files.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod models;
pub mod writer;

use std::path::PathBuf;

/// The path of a real model. Its absence is a failure, never a silent pass.
pub fn model_path(name: &str) -> PathBuf {
    let folder = std::env::var_os("PLIMSOLL_TEST_MODELS").map(PathBuf::from).unwrap_or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        cache.unwrap_or_else(home).join("plimsoll/models")
    });
    let path = folder.join(name);
    assert!(path.exists(), "the test model {} is missing: run `make fetch-test-models`", path.display());
    path
}

pub const SMOLLM2: &str = "smollm2-135m-instruct-q4_1.gguf";
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// A file under tests/data.
pub fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
