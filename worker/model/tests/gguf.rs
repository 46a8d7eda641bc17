//! The reader: what it reads, what it says, and models in one file or several.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::models::tiny;
use common::writer::{Gguf, V, string};
use plimsoll_model::facts::ModelFacts;
use plimsoll_model::file::{ModelFile, OpenError};
use plimsoll_model::gguf::{GgufError, Header, TensorType};
use plimsoll_tests::places::Model;
use std::path::Path;

#[test]
fn the_first_bytes_decide_what_is_said() {
    let said = |bytes: &[u8]| Header::parse(bytes).unwrap_err().to_string();
    assert!(said(b"").contains("magic number"));
    assert!(said(b"PK\x03\x04 a zip file").contains("PK\\x03\\x04"));
    assert!(said(&Gguf { version: 1, ..tiny("llama") }.bytes()).contains("version 1 is too old"));
    assert!(said(&Gguf { version: 0x0300_0000, ..tiny("llama") }.bytes()).contains("big-endian"));
    assert!(said(&Gguf { version: 9, ..tiny("llama") }.bytes()).contains("version 9"));
    let mut two = Gguf { version: 2, ..tiny("llama") }.bytes();
    assert_eq!(Header::parse(&two).unwrap().version, 2);
    two.truncate(100);
    let sentence = said(&two);
    assert!(sentence.contains("at byte") && sentence.contains("bytes wanted"), "{sentence}");
    // The writer's own helper, so that a change of it is seen here.
    let mut out = Vec::new();
    string(&mut out, b"ab");
    assert_eq!(out, [2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
}

/// The same header with a second of something: the error must name it and point at it.
#[test]
fn errors_name_the_field_and_its_offset() {
    let at = |gguf: &Gguf, needle: &[u8]| {
        let bytes = gguf.header_bytes();
        let last = bytes.windows(needle.len()).rposition(|window| window == needle).unwrap();
        (Header::parse(&bytes).unwrap_err(), last as u64 - 8)
    };
    let mut twice = tiny("llama");
    twice.kv.push(("llama.block_count".into(), V::U32(2)));
    let (error, offset) = at(&twice, b"llama.block_count");
    let GgufError::Invalid { field, offset_bytes, why } = error else { panic!("{error}") };
    assert_eq!((field.as_str(), offset_bytes), ("metadata \"llama.block_count\": key", offset));
    assert!(why.contains("twice"));

    let mut twice = tiny("llama");
    twice.tensors.push(twice.tensors[4].clone());
    let (error, offset) = at(&twice, b"blk.0.attn_k.weight");
    let GgufError::Invalid { field, offset_bytes, .. } = error else { panic!("{error}") };
    assert_eq!((field.as_str(), offset_bytes), ("tensor \"blk.0.attn_k.weight\": name", offset));

    let mut over = tiny("llama");
    over.tensors[4].offset = Some(32);
    let (error, offset) = at(&over, b"blk.0.attn_k.weight");
    let GgufError::Invalid { field, offset_bytes, why } = error else { panic!("{error}") };
    assert_eq!((field.as_str(), offset_bytes), ("tensor \"blk.0.attn_k.weight\": offset", offset));
    assert!(why.contains("token_embd.weight"), "{why}");

    let (error, offset) = at(&tiny("llama").tensor_of("x", &[33], 8, 34), b"x");
    let GgufError::Invalid { field, offset_bytes, why } = error else { panic!("{error}") };
    // After the name: its length is 8 bytes, itself 1.
    assert_eq!((field.as_str(), offset_bytes), ("tensor \"x\": dimensions", offset + 8 + 1));
    assert!(why.contains("whole blocks of 32"), "{why}");

    let bytes = tiny("llama").bytes();
    let error = Header::parse(&bytes[..200]).unwrap_err();
    assert!(matches!(error, GgufError::Truncated { offset_bytes, .. } if offset_bytes <= 200), "{error:?}");
}

#[test]
fn the_real_files_are_read_as_the_reference_reads_them() {
    let header = ModelFile::open(&Model::SmolLm2.path()).unwrap().header().clone();
    assert_eq!((header.version, header.metadata.len(), header.tensors.len()), (3, 33, 272));
    assert_eq!(header.data_offset_bytes, 1_785_664);
    let down = header.tensor("blk.0.ffn_down.weight").unwrap();
    assert_eq!(
        (down.ty, &down.dims[..], down.offset_bytes),
        (TensorType::Q4_1, &[1536, 576][..], 31_868_992 - 1_785_664)
    );
    let file = ModelFile::open(&Model::Gemma3.path()).unwrap();
    let header = file.header();
    assert_eq!((header.metadata.len(), header.tensors.len(), header.data_offset_bytes), (33, 236, 6_525_120));
    let tensor = file.tensor("blk.0.ffn_down.weight").unwrap();
    assert_eq!((tensor.info.ty, tensor.part, tensor.range.start), (TensorType::Q6_K, 0, 185_896_128));
    assert_eq!(file.tensor_bytes(&tensor), &(*file.part_bytes(0)).as_ref()[tensor.range.clone()]);
    assert!(file.tensor("nothing").is_none());
    assert!((*file.part_bytes(7)).as_ref().is_empty());
}

/// Writes `gguf` in `n_parts` parts, tensors dealt in turn; returns the path of part 1.
fn write_parts(folder: &Path, gguf: &Gguf, n_parts: usize, change: impl Fn(usize, Gguf) -> Gguf) -> std::path::PathBuf {
    let path = |i: usize| folder.join(format!("m-{:05}-of-{n_parts:05}.gguf", i + 1));
    for i in 0..n_parts {
        let mut part = if i == 0 { Gguf { tensors: vec![], ..gguf.clone() } } else { Gguf::default() };
        part.tensors = gguf.tensors.iter().skip(i).step_by(n_parts).cloned().collect();
        let part = part
            .set("split.no", V::U32(i as u32))
            .set("split.count", V::U32(n_parts as u32))
            .set("split.tensors.count", V::I32(gguf.tensors.len() as i32));
        std::fs::write(path(i), change(i, part).bytes()).unwrap();
    }
    path(0)
}

#[test]
fn a_split_model_opens_by_any_part_and_has_the_same_facts() {
    let folder = tempfile::tempdir().unwrap();
    let whole = tiny("qwen3moe");
    let first = write_parts(folder.path(), &whole, 3, |_, part| part);
    let facts = ModelFacts::from_header(&Header::parse(&whole.bytes()).unwrap()).unwrap();
    for path in [first, folder.path().join("m-00003-of-00003.gguf")] {
        let file = ModelFile::open(&path).unwrap();
        assert_eq!(ModelFacts::from_header(file.header()).unwrap(), facts);
        assert_eq!(ModelFacts::from_header(ModelFile::open_header(&path).unwrap().header()).unwrap(), facts);
        assert_eq!(file.parts().len(), 3);
        for tensor in &file.header().tensors {
            let found = file.tensor(&tensor.name).unwrap();
            let bytes = file.tensor_bytes(&found);
            assert_eq!(bytes.len() as u64, tensor.n_bytes);
            // The writer's data counts up from the start of each part's data section.
            assert_eq!(u64::from(bytes[0]), tensor.offset_bytes % 251, "{}", tensor.name);
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let check = |change: fn(usize, Gguf) -> Gguf, words: &[&str]| {
        let first = write_parts(folder.path(), &tiny("llama"), 3, change);
        let error = ModelFile::open(&first).unwrap_err();
        let sentence = error.to_string();
        assert!(matches!(error, OpenError::Parts { .. }), "{sentence}");
        assert!(words.iter().all(|word| sentence.contains(word)), "{words:?} in {sentence:?}");
    };
    check(|_, part| part.u32("split.count", 4), &["4 parts", "its name says 3"]);
    check(|i, part| part.u32("split.no", (i as u32 + 1) % 3), &["says it is part 2, its name says 1"]);
    check(|_, part| part.u32("split.tensors.count", 99), &["99 should be there"]);
    check(
        |i, part| if i == 2 { part.tensor("token_embd.weight", &[1]) } else { part },
        &["token_embd.weight", "earlier part"],
    );
    check(|_, part| part.u32("split.count", 1_000_000), &["1000000", "limit"]);

    let first = write_parts(folder.path(), &tiny("llama"), 3, |_, part| part);
    std::fs::remove_file(folder.path().join("m-00002-of-00003.gguf")).unwrap();
    let sentence = ModelFile::open(&first).unwrap_err().to_string();
    assert!(sentence.contains("m-00002-of-00003.gguf"), "{sentence}");

    let renamed = folder.path().join("renamed.gguf");
    std::fs::rename(&first, &renamed).unwrap();
    let sentence = ModelFile::open(&renamed).unwrap_err().to_string();
    assert!(sentence.contains("-00001-of-00003.gguf"), "{sentence}");
}

#[test]
fn what_is_missing_is_said_with_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other.gguf"), tiny("llama").bytes()).unwrap();
    for open in [|p: &Path| ModelFile::open(p).map(drop), |p: &Path| ModelFile::open_header(p).map(drop)] {
        let error = open(&folder.path().join("model.gguf")).unwrap_err();
        assert!(matches!(error, OpenError::Missing { .. }), "{error}");
        let sentence = error.to_string();
        assert!(sentence.contains("model.gguf") && sentence.contains("other.gguf"), "{sentence}");
        let sentence = open(folder.path()).unwrap_err().to_string();
        assert!(sentence.contains("is not a regular file") && sentence.contains("other.gguf"), "{sentence}");
        let sentence = open(&folder.path().join("no/model.gguf")).unwrap_err().to_string();
        assert!(sentence.contains("its folder does not exist"), "{sentence}");
        let empty = folder.path().join("empty.gguf");
        std::fs::write(&empty, b"").unwrap();
        assert!(matches!(open(&empty).unwrap_err(), OpenError::Gguf { .. }));
    }
}

/// A pipe without a writer would make an open wait for ever; files of /proc say that they are regular.
#[test]
fn what_is_not_a_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, link) = (folder.path().join("pipe.gguf"), folder.path().join("link.gguf"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    let odd = ["/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/maps", "/proc"].map(Path::new);
    for path in odd.into_iter().chain([&*pipe, &*link, folder.path()]) {
        for open in [|p: &Path| ModelFile::open(p).map(drop), |p: &Path| ModelFile::open_header(p).map(drop)] {
            let error = open(path).unwrap_err();
            assert!(matches!(error, OpenError::Missing { .. }), "{error}");
            assert!(error.to_string().contains("is not a regular file"), "{error}");
        }
    }
    // A link to a model is the model.
    let (model, link) = (folder.path().join("model.gguf"), folder.path().join("to-model.gguf"));
    std::fs::write(&model, tiny("llama").bytes()).unwrap();
    std::os::unix::fs::symlink(&model, &link).unwrap();
    ModelFile::open(&link).unwrap();
}

#[test]
fn planning_needs_the_header_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.gguf");
    let gguf = tiny("gemma3");
    std::fs::write(&path, gguf.header_bytes()).unwrap();
    ModelFacts::from_header(ModelFile::open_header(&path).unwrap().header()).unwrap();
    let error = ModelFile::open(&path).unwrap_err().to_string();
    assert!(error.contains("the file ends at byte") && error.contains("fetch it again"), "{error}");
    // One byte of the last tensor is missing.
    let bytes = gguf.bytes();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(ModelFile::open(&path).is_err());
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(ModelFile::open(&path).unwrap().file_bytes(), bytes.len() as u64);
}

/// A header longer than the first read: 300,000 tokens of 40 bytes.
#[test]
fn a_long_header_is_read_in_more_than_one_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    let tokens = (0..300_000).map(|i| format!("{i:040}")).collect();
    let bytes = tiny("llama").set("tokenizer.ggml.tokens", V::Strs(tokens)).bytes();
    assert!(bytes.len() > 12 << 20);
    std::fs::write(&path, &bytes).unwrap();
    let file = ModelFile::open_header(&path).unwrap();
    assert_eq!(file.header().metadata.strings("tokenizer.ggml.tokens").unwrap().get(299_999).unwrap().len(), 40);
    std::fs::write(&path, &bytes[..10 << 20]).unwrap();
    assert!(ModelFile::open_header(&path).unwrap_err().to_string().contains("the file ends inside"));
}
