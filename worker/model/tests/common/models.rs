//! Tiny models, one for each architecture, whole in every key and tensor.

use super::writer::{Gguf, V};

/// n_embd 64, 2 layers, 4 heads of 16, 2 key/value heads, feed-forward 96, vocabulary of [`bpe`].
pub const N_EMBD: u64 = 64;
pub const N_LAYERS: u32 = 2;

pub const ARCHS: [&str; 6] = ["llama", "mixtral", "gemma3", "qwen2", "qwen3", "qwen3moe"];

/// The model called `name`: an architecture, or `mixtral` for llama with experts.
pub fn tiny(name: &str) -> Gguf {
    let arch = if name == "mixtral" { "llama" } else { name };
    let gguf = Gguf::default().str("general.architecture", arch).str("general.name", name);
    let key = |suffix: &str| format!("{arch}.{suffix}");
    let mut gguf = gguf
        .u32(&key("block_count"), N_LAYERS)
        .u32(&key("context_length"), 256)
        .u32(&key("embedding_length"), N_EMBD as u32)
        .u32(&key("attention.head_count"), 4)
        .u32(&key("attention.head_count_kv"), 2)
        .set(&key("attention.layer_norm_rms_epsilon"), V::F32(1e-5));
    let has_experts = matches!(name, "mixtral" | "qwen3moe");
    if has_experts {
        gguf = gguf.u32(&key("expert_count"), 4).u32(&key("expert_used_count"), 2);
    }
    if name == "qwen3moe" {
        gguf = gguf.u32(&key("expert_feed_forward_length"), 32);
    }
    if name != "qwen3moe" {
        gguf = gguf.u32(&key("feed_forward_length"), 96);
    }
    if arch == "gemma3" {
        gguf = gguf.u32(&key("attention.sliding_window"), 32).set(&key("rope.freq_base"), V::F32(1e6));
    }
    let gguf = if arch == "gemma3" { spm(gguf) } else { bpe(gguf, "smollm") };
    tensors(gguf, name, has_experts)
}

fn tensors(mut gguf: Gguf, name: &str, has_experts: bool) -> Gguf {
    let n_vocab = n_tokens(&gguf) as u64;
    gguf = gguf.tensor("token_embd.weight", &[N_EMBD, n_vocab]).tensor("output_norm.weight", &[N_EMBD]);
    let n_ff = if name == "qwen3moe" { 32 } else { 96 };
    for layer in 0..N_LAYERS {
        let t = |suffix: &str| format!("blk.{layer}.{suffix}");
        gguf = gguf
            .tensor(&t("attn_norm.weight"), &[N_EMBD])
            .tensor(&t("attn_q.weight"), &[N_EMBD, 64])
            .tensor(&t("attn_k.weight"), &[N_EMBD, 32])
            .tensor(&t("attn_v.weight"), &[N_EMBD, 32])
            .tensor(&t("attn_output.weight"), &[64, N_EMBD])
            .tensor(&t("ffn_norm.weight"), &[N_EMBD]);
        if name == "qwen2" {
            gguf =
                gguf.tensor(&t("attn_q.bias"), &[64]).tensor(&t("attn_k.bias"), &[32]).tensor(&t("attn_v.bias"), &[32]);
        }
        if matches!(name, "qwen3" | "qwen3moe" | "gemma3") {
            gguf = gguf.tensor(&t("attn_q_norm.weight"), &[16]).tensor(&t("attn_k_norm.weight"), &[16]);
        }
        if name == "gemma3" {
            gguf =
                gguf.tensor(&t("post_attention_norm.weight"), &[N_EMBD]).tensor(&t("post_ffw_norm.weight"), &[N_EMBD]);
        }
        gguf = if has_experts {
            // Down in Q8_0: rows of whole blocks.
            gguf.tensor(&t("ffn_gate_inp.weight"), &[N_EMBD, 4])
                .tensor(&t("ffn_gate_exps.weight"), &[N_EMBD, n_ff, 4])
                .tensor(&t("ffn_up_exps.weight"), &[N_EMBD, n_ff, 4])
                .tensor_of(&t("ffn_down_exps.weight"), &[n_ff, N_EMBD, 4], 8, n_ff / 32 * 34 * N_EMBD * 4)
        } else {
            gguf.tensor(&t("ffn_gate.weight"), &[N_EMBD, n_ff])
                .tensor(&t("ffn_up.weight"), &[N_EMBD, n_ff])
                .tensor(&t("ffn_down.weight"), &[n_ff, N_EMBD])
        };
    }
    gguf
}

fn n_tokens(gguf: &Gguf) -> usize {
    gguf.kv
        .iter()
        .find_map(|(key, value)| match value {
            V::Strs(tokens) if key == "tokenizer.ggml.tokens" => Some(tokens.len()),
            _ => None,
        })
        .unwrap_or(0)
}

/// How a byte-level vocabulary writes a byte.
pub fn byte_char(byte: u8) -> char {
    let is_itself = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if is_itself(byte) {
        return byte.into();
    }
    char::from_u32(256 + (0..byte).filter(|b| !is_itself(*b)).count() as u32).expect("below U+0200")
}

/// A byte-level tokenizer: 256 bytes, a few merges, ChatML's control tokens.
pub fn bpe(gguf: Gguf, pre: &str) -> Gguf {
    let mut tokens: Vec<String> = (0..=255).map(|b| byte_char(b).to_string()).collect();
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he", "i n", "e r", "a b", "ab ab"];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let n_plain = tokens.len();
    tokens.extend(["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(String::from));
    let mut kinds = vec![1; n_plain];
    kinds.extend([3, 3, 3]);
    tokens.extend(["<think>", "</think>"].map(String::from));
    kinds.extend([4, 4]);
    gguf.str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", pre)
        .set("tokenizer.ggml.tokens", V::Strs(tokens))
        .set("tokenizer.ggml.token_type", V::I32s(kinds))
        .set("tokenizer.ggml.merges", V::Strs(merges.map(String::from).to_vec()))
        .u32("tokenizer.ggml.bos_token_id", n_plain as u32 + 1)
        .u32("tokenizer.ggml.eos_token_id", n_plain as u32 + 2)
}

/// A SentencePiece-style tokenizer: bytes, some words, Gemma's control tokens.
pub fn spm(gguf: Gguf) -> Gguf {
    let mut tokens: Vec<String> =
        ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"].map(String::from).to_vec();
    let mut kinds = vec![3, 3, 3, 2, 3, 3];
    tokens.extend((0..=255).map(|b: u8| format!("<0x{b:02X}>")));
    kinds.extend([6; 256]);
    for word in
        ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "w", "r", "d", "wo", "▁wo", "\n", "<b>"]
    {
        tokens.push(word.into());
        kinds.push(if word == "<b>" || word == "\n" { 4 } else { 1 });
    }
    let scores = (0..tokens.len()).map(|id| -(id as f32)).collect();
    gguf.str("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", V::Strs(tokens))
        .set("tokenizer.ggml.scores", V::F32s(scores))
        .set("tokenizer.ggml.token_type", V::I32s(kinds))
        .u32("tokenizer.ggml.bos_token_id", 2)
        .u32("tokenizer.ggml.eos_token_id", 1)
        .u32("tokenizer.ggml.unknown_token_id", 3)
        .set("tokenizer.ggml.add_space_prefix", V::Bool(false))
}

/// Adds tokens of a kind (3 control, 4 user-defined) at the end of a vocabulary; those that are there already stay.
pub fn with_tokens(mut gguf: Gguf, texts: &[&str], kind: i32) -> Gguf {
    let mut n_added = 0;
    for (key, value) in &mut gguf.kv {
        if let ("tokenizer.ggml.tokens", V::Strs(tokens)) = (key.as_str(), value) {
            for text in texts.iter().filter(|text| !text.is_empty()) {
                if !tokens.iter().any(|token| token == text) {
                    tokens.push((*text).into());
                    n_added += 1;
                }
            }
        }
    }
    for (key, value) in &mut gguf.kv {
        if let ("tokenizer.ggml.token_type", V::I32s(kinds)) = (key.as_str(), value) {
            kinds.extend(vec![kind; n_added]);
        }
    }
    gguf
}

/// The id of a token.
pub fn id_of(gguf: &Gguf, text: &str) -> u32 {
    let tokens = gguf.kv.iter().find_map(|(key, value)| match value {
        V::Strs(tokens) if key == "tokenizer.ggml.tokens" => Some(tokens),
        _ => None,
    });
    tokens.and_then(|tokens| tokens.iter().position(|token| token == text)).expect("the token is there") as u32
}
