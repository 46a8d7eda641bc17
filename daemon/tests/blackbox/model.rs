//! A model file that is all header: one token for each byte, three special ones, a small chat template and a tiny layer of
//! zeros. The daemon reads it as any other; the fake worker never opens it.

use std::path::{Path, PathBuf};

/// Context that the model was trained for.
pub(crate) const N_CTX: usize = 512;

/// Ids of the special tokens.
pub(crate) const IM_START: u32 = 256;
pub(crate) const IM_END: u32 = 257;

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const WIDTH: u64 = 32;

/// Writes it into `folder`.
pub(crate) fn write(folder: &Path) -> PathBuf {
    let path = folder.join("tiny.gguf");
    std::fs::write(&path, bytes()).unwrap();
    path
}

/// The bytes of the file.
pub(crate) fn bytes() -> Vec<u8> {
    let mut keys = Keys::default();
    keys.text("general.architecture", "llama");
    keys.text("general.name", "Tiny Test");
    for (key, value) in [
        ("block_count", 1),
        ("context_length", N_CTX as u32),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 1),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", 32),
        ("vocab_size", 259),
    ] {
        keys.number(&format!("llama.{key}"), value);
    }
    keys.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    keys.text("tokenizer.ggml.model", "gpt2");
    keys.text("tokenizer.ggml.pre", "smollm");
    keys.texts("tokenizer.ggml.tokens", &vocabulary());
    keys.numbers("tokenizer.ggml.token_type", &[vec![1; 256], vec![3; 3]].concat());
    keys.texts("tokenizer.ggml.merges", &[]);
    keys.number("tokenizer.ggml.eos_token_id", IM_END);
    keys.number("tokenizer.ggml.bos_token_id", 258);
    keys.text("tokenizer.chat_template", TEMPLATE);

    let tensors = tensors();
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend(keys.count.to_le_bytes());
    file.extend(&keys.bytes);
    let mut offset = 0u64;
    for (name, dims) in &tensors {
        put_text(&mut file, name);
        file.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| file.extend(dim.to_le_bytes()));
        file.extend(0u32.to_le_bytes()); // F32
        file.extend(offset.to_le_bytes());
        offset += (dims.iter().product::<u64>() * 4).next_multiple_of(32);
    }
    let data_start = file.len().next_multiple_of(32);
    file.resize(data_start + offset as usize, 0);
    file
}

fn tensors() -> Vec<(String, Vec<u64>)> {
    let square = vec![WIDTH, WIDTH];
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), vec![WIDTH, 259]),
        ("output_norm.weight".to_owned(), vec![WIDTH]),
        ("blk.0.attn_norm.weight".to_owned(), vec![WIDTH]),
        ("blk.0.ffn_norm.weight".to_owned(), vec![WIDTH]),
    ];
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        tensors.push((format!("blk.0.{name}.weight"), square.clone()));
    }
    tensors
}

/// Bytes as byte-level BPE writes them: printable Latin-1 as itself, the others from U+0100 on; id = byte.
fn vocabulary() -> Vec<String> {
    let is_itself = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut moved = 0x100;
    let mut letter = |b: u32| {
        let code = if is_itself(b) {
            b
        } else {
            moved += 1;
            moved - 1
        };
        char::from_u32(code).unwrap().to_string()
    };
    let mut tokens: Vec<String> = (0..256).map(&mut letter).collect();
    tokens.extend(["<|im_start|>", "<|im_end|>", "<|endoftext|>"].map(str::to_owned));
    tokens
}

#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    count: u64,
}

impl Keys {
    fn key(&mut self, key: &str, kind: u32) {
        put_text(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
        self.count += 1;
    }

    fn number(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn float(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        put_text(&mut self.bytes, value);
    }

    fn texts(&mut self, key: &str, values: &[String]) {
        self.key(key, 9);
        self.bytes.extend(8u32.to_le_bytes());
        self.bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| put_text(&mut self.bytes, value));
    }

    fn numbers(&mut self, key: &str, values: &[i32]) {
        self.key(key, 9);
        self.bytes.extend(5u32.to_le_bytes());
        self.bytes.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}
