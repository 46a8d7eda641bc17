//! Facts of the real models, of a tiny one for each architecture, and refusals by name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::models::{ARCHS, tiny};
use common::writer::{Gguf, V};
use plimsoll_model::facts::{Arch, FactsError, KvType, ModelFacts, RopeScaling};
use plimsoll_model::file::ModelFile;
use plimsoll_model::gguf::{Header, TensorType};
use plimsoll_tests::places::Model;

fn facts(gguf: &Gguf) -> Result<ModelFacts, FactsError> {
    ModelFacts::from_header(&Header::parse(&gguf.bytes()).unwrap())
}

fn real(model: Model) -> ModelFacts {
    ModelFacts::from_header(ModelFile::open_header(&model.path()).unwrap().header()).unwrap()
}

#[test]
fn smollm2() {
    let f = real(Model::SmolLm2);
    assert_eq!((f.arch, f.n_layers, f.n_embd, f.n_ctx_train, f.n_vocab), (Arch::Llama, 30, 576, 8192, 49152));
    assert_eq!((f.rope.dim, f.rope.base, f.rope.scaling, f.rope.has_freq_factors), (64, 1e5, RopeScaling::None, false));
    let layer = f.layers[7];
    assert_eq!((layer.n_heads, layer.n_kv_heads, layer.k_dim, layer.v_dim, layer.n_ff), (9, 3, 64, 64, 1536));
    assert_eq!((layer.window, layer.expert_bytes()), (None, 0));
    assert_eq!(f.attention_scale, 0.125);
    assert!(f.tied_head && f.has_chat_template && f.experts.is_none());
    assert_eq!((f.size_label.as_deref(), f.file_type_name()), (Some("135M"), Some("Q4_1")));
    assert_eq!(f.n_parameters, 134_515_008);
    // The data section of the file, less the padding between tensors: all of them are multiples of 32 bytes.
    assert_eq!(f.dense_weight_bytes, 98_362_432 - 1_785_664);
    // 2 × 3 heads × 64 × 2 bytes × 30 layers = 23,040 bytes a token.
    assert_eq!(f.kv_bytes(KvType::F16, 8192), 8192 * 23_040);
    assert_eq!(f.kv_bytes(KvType::Q8_0, 100), 100 * 23_040 * 34 / 64);
    assert_eq!(f.kv_bytes(KvType::Q4_0, 100), 100 * 23_040 * 18 / 64);
    assert_eq!(f.kv_bytes_paged(KvType::F16, 65), 128 * 23_040);
    assert!(KvType::ALL.into_iter().all(|ty| f.kv_type_fits(ty)));
}

#[test]
fn gemma3_has_a_window_on_five_of_six_layers() {
    let f = real(Model::Gemma3);
    assert_eq!((f.arch, f.n_layers, f.n_embd, f.n_ctx_train, f.n_vocab), (Arch::Gemma3, 18, 640, 32768, 262_144));
    let global: Vec<_> = (0..18).filter(|i| f.layers[*i].window.is_none()).collect();
    assert_eq!(global, [5, 11, 17]);
    assert_eq!((f.layers[0].window, f.layers[0].rope_base, f.layers[5].rope_base), (Some(512), 1e4, 1e6));
    assert_eq!((f.attention_scale, f.embedding_scale), (0.0625, 640_f32.sqrt()));
    // 2 × 1 head × 256 × 2 bytes = 1024 bytes a token and layer.
    assert_eq!(f.kv_bytes(KvType::F16, 2048), 1024 * (15 * 512 + 3 * 2048));
    assert_eq!(f.kv_bytes(KvType::F16, 100), 1024 * 18 * 100);
    assert_eq!(f.kv_bytes_per_layer(KvType::F16, 2048)[4..6], [1024 * 512, 1024 * 2048]);
    // A window of 512 that starts inside a page touches nine.
    assert_eq!(f.kv_bytes_paged(KvType::F16, 2048), 1024 * (15 * 576 + 3 * 2048));
    assert_eq!(f.dense_weight_bytes, 253_113_024 - 6_525_120);
    assert!(f.activation_bytes(512, 1) > f.activation_bytes(1, 1));
}

#[test]
fn every_tiny_model_is_whole() {
    for name in ARCHS {
        let gguf = tiny(name);
        let f = facts(&gguf).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(f.layers.len(), 2, "{name}");
        let data: u64 = gguf.tensors.iter().map(|t| t.n_bytes).sum();
        assert_eq!(f.weight_bytes(), data, "{name}");
        let dense: u64 = f.layers.iter().map(|layer| layer.dense_bytes).sum();
        assert!(dense < f.dense_weight_bytes, "{name}");
    }
}

#[test]
fn experts_have_bytes_by_layer_and_type() {
    for (name, n_ff) in [("mixtral", 96), ("qwen3moe", 32)] {
        let f = facts(&tiny(name)).unwrap();
        let e = f.experts.unwrap();
        assert_eq!((e.n_experts, e.top_k, e.n_ff, e.normalise_weights), (4, 2, n_ff, true), "{name}");
        let matrices = f.layers[1].experts.unwrap();
        let n_ff = u64::from(n_ff);
        assert_eq!((matrices.gate.ty, matrices.gate.n_bytes), (TensorType::F32, 64 * n_ff * 4), "{name}");
        assert_eq!((matrices.down.ty, matrices.down.n_bytes), (TensorType::Q8_0, n_ff / 32 * 34 * 64), "{name}");
        let one = f.layers[1].expert_bytes();
        assert_eq!(one, 2 * matrices.up.n_bytes + matrices.down.n_bytes, "{name}");
        assert_eq!((f.expert_weight_bytes, f.token_cycle_bytes), (2 * 4 * one, 2 * 2 * one), "{name}");
    }
}

#[test]
fn defaults_stand_in_for_absent_keys() {
    let f = facts(
        &tiny("llama")
            .unset("llama.attention.head_count_kv")
            .tensor("blk.0.attn_k.weight", &[64, 64])
            .tensor("blk.0.attn_v.weight", &[64, 64])
            .tensor("blk.1.attn_k.weight", &[64, 64])
            .tensor("blk.1.attn_v.weight", &[64, 64]),
    )
    .unwrap();
    assert_eq!((f.layers[0].n_kv_heads, f.layers[0].k_dim, f.rope.dim, f.rope.base), (4, 16, 16, 10_000.0));
    let wide = tiny("llama")
        .set("llama.attention.head_count_kv", V::U32s(vec![2, 4]))
        .tensor("blk.1.attn_k.weight", &[64, 64])
        .tensor("blk.1.attn_v.weight", &[64, 64]);
    let f = facts(&wide).unwrap();
    assert_eq!((f.layers[0].n_kv_heads, f.layers[1].n_kv_heads), (2, 4));
    let f = facts(&tiny("llama").tensor("output.weight", &[64, 271])).unwrap();
    assert!(!f.tied_head);
}

#[test]
fn rope_scaling() {
    let with =
        |kind: &str| tiny("llama").str("llama.rope.scaling.type", kind).set("llama.rope.scaling.factor", V::F32(4.0));
    assert_eq!(facts(&with("none")).unwrap().rope.scaling, RopeScaling::None);
    assert_eq!(facts(&with("linear")).unwrap().rope.scaling, RopeScaling::Linear { factor: 4.0 });
    let yarn = with("yarn").u32("llama.rope.scaling.original_context_length", 64);
    let expect = RopeScaling::Yarn {
        factor: 4.0,
        original_context_tokens: 64,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
    assert_eq!(facts(&yarn).unwrap().rope.scaling, expect);
    let error = facts(&with("longrope")).unwrap_err().to_string();
    assert!(error.contains("longrope") && error.contains("rope.scaling.type"), "{error}");
    assert!(facts(&tiny("llama").tensor("rope_freqs.weight", &[8])).unwrap().rope.has_freq_factors);
}

#[test]
fn gemma3_27b_scales_by_its_width_per_head() {
    let mut gguf = tiny("gemma3").u32("gemma3.block_count", 62).u32("gemma3.attention.key_length", 32);
    let layer: Vec<_> = gguf.tensors.iter().filter(|t| t.name.starts_with("blk.0.")).cloned().collect();
    gguf.tensors.retain(|t| !t.name.starts_with("blk."));
    for i in 0..62 {
        for t in &layer {
            let name = t.name.replace("blk.0.", &format!("blk.{i}."));
            let dims: Vec<u64> = match t.name.trim_start_matches("blk.0.") {
                "attn_q.weight" => vec![64, 128],
                "attn_k.weight" => vec![64, 64],
                "attn_q_norm.weight" | "attn_k_norm.weight" => vec![32],
                _ => t.dims.clone(),
            };
            gguf = gguf.tensor(&name, &dims);
        }
    }
    assert_eq!(facts(&gguf).unwrap().attention_scale, 0.25);
}

/// Each must be refused, and the sentence must hold the words.
#[test]
fn what_is_not_computed_is_refused_by_name() {
    let check = |gguf: Gguf, words: &[&str]| {
        let error = facts(&gguf).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {error:?}");
    };
    check(tiny("llama").str("general.architecture", "mamba"), &["mamba", "llama, gemma3, qwen2, qwen3, qwen3moe"]);
    check(tiny("llama").unset("general.architecture"), &["general.architecture"]);
    check(tiny("gemma3").set("gemma3.final_logit_softcapping", V::F32(30.0)), &["final_logit_softcapping", "soft cap"]);
    check(tiny("gemma3").set("gemma3.attn_logit_softcapping", V::F32(50.0)), &["attn_logit_softcapping"]);
    check(tiny("llama").u32("llama.attention.sliding_window", 255), &["sliding_window"]);
    check(tiny("qwen3moe").u32("qwen3moe.expert_shared_count", 1), &["expert_shared_count"]);
    check(tiny("llama").set("llama.attention.causal", V::Bool(false)), &["attention.causal"]);
    check(tiny("llama").set("llama.logit_scale", V::F32(0.5)), &["logit_scale"]);
    check(tiny("gemma3").u32("gemma3.expert_count", 8), &["expert_count"]);
    check(tiny("qwen3moe").unset("qwen3moe.expert_count"), &["expert_count"]);
    check(tiny("mixtral").u32("llama.expert_used_count", 5), &["expert_used_count", "1 to 4"]);
    check(tiny("llama").u32("llama.block_count", 3), &["blk.2.attn_norm.weight"]);
    check(tiny("llama").u32("llama.block_count", 1), &["blk.1.", "no place"]);
    check(tiny("llama").u32("llama.block_count", 0), &["block_count"]);
    check(tiny("llama").u32("llama.block_count", u32::MAX), &["block_count"]);
    check(tiny("llama").u32("llama.attention.head_count", 3), &["head_count_kv"]);
    check(tiny("llama").u32("llama.attention.head_count", 0), &["head_count"]);
    check(tiny("llama").u32("llama.rope.dimension_count", 15), &["rope.dimension_count"]);
    check(tiny("llama").set("llama.attention.layer_norm_rms_epsilon", V::F32(f32::NAN)), &["rms_epsilon"]);
    check(tiny("llama").set("llama.attention.layer_norm_rms_epsilon", V::F32(-1.0)), &["rms_epsilon"]);
    check(tiny("llama").set("llama.rope.freq_base", V::F32(0.0)), &["freq_base"]);
    check(tiny("llama").str("llama.block_count", "two"), &["block_count", "string"]);
    check(tiny("llama").tensor("blk.0.attn_q.bias", &[64]), &["blk.0.attn_q.bias", "no place"]);
    check(tiny("llama").tensor("blk.0.attn_q.weight", &[64, 65]), &["blk.0.attn_q.weight", "64 × 65", "64 × 64"]);
    check(tiny("llama").tensor_of("output_norm.weight", &[64], 1, 128), &["output_norm.weight", "F16"]);
    check(tiny("qwen2").without_tensor("blk.1.attn_k.bias"), &["blk.1.attn_k.bias"]);
    check(tiny("llama").without_tensor("token_embd.weight"), &["token_embd.weight"]);
    check(tiny("llama").tensor("token_embd.weight", &[64, 10]), &["token_embd.weight", "tokens"]);
    let old = tiny("mixtral").without_tensor("blk.0.ffn_gate_exps.weight").tensor("blk.0.ffn_gate.0.weight", &[64, 96]);
    check(old, &["old layout"]);
}

#[test]
fn harmless_values_of_those_keys_pass() {
    for gguf in [
        tiny("llama").set("llama.logit_scale", V::F32(1.0)),
        tiny("llama").set("llama.attention.causal", V::Bool(true)),
        tiny("llama").u32("llama.attention.sliding_window", 0),
        tiny("llama").u32("llama.attention.sliding_window", 256),
        tiny("qwen3moe").u32("qwen3moe.expert_shared_count", 0),
    ] {
        facts(&gguf).unwrap();
    }
}
