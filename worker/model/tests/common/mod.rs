//! What the tests of this crate share: data, models of every shape, and a writer of small GGUF files.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod models;
pub mod writer;

use std::path::PathBuf;

/// A file under tests/data.
pub fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
