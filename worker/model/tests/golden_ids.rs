//! Ids equal to the reference's, for both real vocabularies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::data;
use plimsoll_model::file::ModelFile;
use plimsoll_model::tokenizer::Tokenizer;
use plimsoll_tests::places::Model;

fn check(model: Model, file: &str) {
    let tokenizer = Tokenizer::from_header(ModelFile::open_header(&model.path()).unwrap().header()).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&data(file)).unwrap();
    let pairs = golden["pairs"].as_array().unwrap();
    let mut wrong = Vec::new();
    for pair in pairs {
        let text = pair["text"].as_str().unwrap();
        let expect: Vec<u32> = serde_json::from_value(pair["ids"].clone()).unwrap();
        let ids = tokenizer.encode(text, true);
        if ids != expect {
            wrong.push(format!("{text:?}\n  got    {ids:?}\n  expect {expect:?}"));
        }
        let plain = pair.get("plain").map_or(expect, |plain| serde_json::from_value(plain.clone()).unwrap());
        let ids = tokenizer.encode(text, false);
        if ids != plain {
            wrong.push(format!("{text:?} without special tokens\n  got    {ids:?}\n  expect {plain:?}"));
        }
    }
    assert!(wrong.is_empty(), "{file}: {} of {}:\n{}", wrong.len(), pairs.len(), wrong.join("\n"));
}

#[test]
fn smollm2() {
    check(Model::SmolLm2, "smollm2-135m-instruct-q4_1.ids.json");
}

#[test]
fn gemma3() {
    check(Model::Gemma3, "gemma-3-270m-q4_k_m.ids.json");
}
