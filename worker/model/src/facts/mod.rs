//! What a model is and how many bytes each of its parts takes, from the header alone.
//!
//! The daemon plans with these before anything is loaded, so they are values: no file, no tensor data. What this build does not
//! compute is refused here by name, so that no model runs silently wrong.

mod bytes;
mod error;
mod keys;
mod read;
mod refuse;
mod tensors;

pub use bytes::KvType;
pub use error::FactsError;

use crate::gguf::TensorType;

/// Architectures this build computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Llama and its kin: dense, or experts as in Mixtral.
    Llama,
    /// Gemma 3: sliding windows, two RoPE bases, QK-norm, post-norms.
    Gemma3,
    /// Qwen 2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen 3: QK-norm.
    Qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe,
}

impl Arch {
    /// Every architecture, for messages and tests.
    pub const ALL: [Self; 5] = [Self::Llama, Self::Gemma3, Self::Qwen2, Self::Qwen3, Self::Qwen3Moe];

    /// The value of `general.architecture`, and the prefix of the model's keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Gemma3 => "gemma3",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
        }
    }
}

/// How positions are stretched beyond the training context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Angles divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// YaRN: low frequencies divided, high ones kept, in between blended.
    Yarn {
        /// The factor.
        factor: f64,
        /// Context the model was trained with before stretching, in tokens.
        original_context_tokens: u32,
        /// Further factor on the magnitude; 1 if the file has none.
        attn_factor: f64,
        /// Rotations above which a dimension is kept; 32 if the file has none.
        beta_fast: f64,
        /// Rotations below which a dimension is divided; 1 if the file has none.
        beta_slow: f64,
    },
}

/// Rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeFacts {
    /// Elements of a head that turn.
    pub dim: u32,
    /// Base of layers that see everything; see [`LayerFacts::rope_base`] for each layer's own.
    pub base: f64,
    /// Stretching; layers with a window have none.
    pub scaling: RopeScaling,
    /// Whether the file holds `rope_freqs.weight`: a divisor for each frequency (Llama 3.1 and later).
    pub has_freq_factors: bool,
}

/// Experts of a layer, the same in all layers that have some.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertFacts {
    /// Experts in a layer.
    pub n_experts: u32,
    /// Experts used for a token.
    pub top_k: u32,
    /// Width of one expert's feed-forward.
    pub n_ff: u32,
    /// Whether the chosen experts' weights are made to sum to 1.
    pub normalise_weights: bool,
}

/// One of the three matrices of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertMatrix {
    /// Storage type.
    pub ty: TensorType,
    /// Bytes for one expert.
    pub n_bytes: u64,
}

/// The three matrices of each expert of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertMatrices {
    /// `[n_ff × n_embd]`.
    pub gate: ExpertMatrix,
    /// `[n_ff × n_embd]`.
    pub up: ExpertMatrix,
    /// `[n_embd × n_ff]`.
    pub down: ExpertMatrix,
}

impl ExpertMatrices {
    /// Bytes of one expert.
    pub fn n_bytes(&self) -> u64 {
        self.gate.n_bytes + self.up.n_bytes + self.down.n_bytes
    }
}

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerFacts {
    /// Query heads.
    pub n_heads: u32,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: u32,
    /// Elements of a key (and query) head.
    pub k_dim: u32,
    /// Elements of a value head.
    pub v_dim: u32,
    /// Sliding window in tokens: position p sees (p − window, p]. `None` sees all.
    pub window: Option<u32>,
    /// Base of the rotary positions.
    pub rope_base: f64,
    /// Whether [`RopeFacts::scaling`] applies to this layer.
    pub rope_scaled: bool,
    /// Width of the dense feed-forward; 0 where there are experts instead.
    pub n_ff: u32,
    /// The experts' matrices, where there are some.
    pub experts: Option<ExpertMatrices>,
    /// Bytes of everything in this layer that is not an expert.
    pub dense_bytes: u64,
}

impl LayerFacts {
    /// Bytes of one expert of this layer; 0 where there is none.
    pub fn expert_bytes(&self) -> u64 {
        self.experts.map_or(0, |experts| experts.n_bytes())
    }
}

/// The model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// Architecture.
    pub arch: Arch,
    /// `general.name`.
    pub name: Option<String>,
    /// `general.size_label`, such as `135M`.
    pub size_label: Option<String>,
    /// `general.file_type`: the mix of storage types by ggml's number. See [`ModelFacts::file_type_name`].
    pub file_type: Option<u32>,
    /// Layers.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Context the model was trained for, in tokens.
    pub n_ctx_train: u32,
    /// Rows of the embedding.
    pub n_vocab: u32,
    /// Each layer.
    pub layers: Vec<LayerFacts>,
    /// Rotary positions.
    pub rope: RopeFacts,
    /// Factor on q·k.
    pub attention_scale: f32,
    /// Added under the root of every RMS norm.
    pub rms_eps: f32,
    /// Factor on the embedding: √n_embd for Gemma, else 1.
    pub embedding_scale: f32,
    /// Experts, if the model has some.
    pub experts: Option<ExpertFacts>,
    /// Whether the head is the embedding (no `output.weight`).
    pub tied_head: bool,
    /// Whether the file brings a chat template.
    pub has_chat_template: bool,
    /// Bytes of all weights that are not experts.
    pub dense_weight_bytes: u64,
    /// Bytes of all experts.
    pub expert_weight_bytes: u64,
    /// Bytes of experts that one token uses: the sum over layers of top-k × expert bytes. A cache below it never hits.
    pub token_cycle_bytes: u64,
    /// Parameters: elements of all tensors.
    pub n_parameters: u64,
}
