//! The sizes of a model, as its header alone gives them. Every figure is exact unless it says that it is an estimate.

use plimsoll_config::config::KvType;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};

/// The sizes of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSizes {
    /// Its files, all parts together.
    pub file_bytes: Bytes,
    /// Weights that every token uses: the layers' own, the two below, and what belongs to none of them.
    pub dense_weights: Bytes,
    /// The table of token embeddings. It stays in host memory: a token reads one row of it.
    pub token_embedding: Bytes,
    /// The output matrix as a card would hold it. Where it is tied to the embeddings these are the same bytes again, and
    /// `dense_weights` counts them once.
    pub output: Bytes,
    /// Its layers, in order.
    pub layers: Vec<LayerSizes>,
    /// What is common to its layers of experts; `None` for a dense model.
    pub experts: Option<Experts>,
    /// The context it was trained for.
    pub n_ctx_train: Tokens,
    /// Work buffers of the largest step in host memory. An estimate.
    pub activations: Bytes,
    /// What a prompt's first chunk allocates on a card, after the expert cache is sized. An estimate.
    pub prompt_path: Bytes,
    /// The image encoder, where the model and this build have one. Not among `dense_weights`: no token reads it.
    pub image_encoder: Option<Bytes>,
    /// Speculation, where the model and this build have it.
    pub speculation: Option<Speculation>,
}

/// One layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerSizes {
    /// Weights that every token uses.
    pub dense: Bytes,
    /// Keys and values.
    pub kv: KvLayer,
    /// One expert, all its matrices; `None` for a layer without experts.
    pub expert: Option<Bytes>,
}

/// The experts of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// In each layer that has any.
    pub per_layer: u32,
    /// Of them, used for a token.
    pub top_k: u32,
    /// Slots of the cache that one chunk of a prompt borrows.
    pub loan_slots: u32,
}

/// Keys and values of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayer {
    /// Bytes for one token as `f16`.
    pub f16: Bytes,
    /// As `q8_0`; `None` where a head is not made of whole blocks of 32.
    pub q8_0: Option<Bytes>,
    /// As `q4_0`; likewise.
    pub q4_0: Option<Bytes>,
    /// Tokens that the layer looks back; `None`: all.
    pub window: Option<Tokens>,
}

/// Drafting and verifying several tokens at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speculation {
    /// Buffers of a verify window.
    pub verify_arena: Bytes,
    /// The drafting layer's head and logits, over the whole vocabulary.
    pub draft_head: Bytes,
    /// The same over the small vocabulary; `None`: there is none.
    pub small_draft_head: Option<Bytes>,
}

impl KvLayer {
    /// Bytes for `capacity` tokens that `max_sessions` share: a window bounds each session's part.
    pub fn bytes(&self, kv_type: KvType, capacity: u64, max_sessions: u32) -> Option<Bytes> {
        let per_token = match kv_type {
            KvType::F16 => Some(self.f16),
            KvType::Q8_0 => self.q8_0,
            KvType::Q4_0 => self.q4_0,
        };
        let n_tokens =
            self.window.map_or(capacity, |window| capacity.min(u64::from(window.0) * u64::from(max_sessions)));
        per_token.map(|bytes| bytes.saturating_mul(n_tokens))
    }
}

impl ModelSizes {
    /// Keys and values of one session of `n_ctx` tokens: the sum over layers of min(window, tokens) × bytes per token.
    /// `None` where a layer can't be stored in that type.
    pub fn kv_bytes(&self, kv_type: KvType, n_ctx: Tokens) -> Option<Bytes> {
        self.layers.iter().map(|layer| layer.kv.bytes(kv_type, u64::from(n_ctx.0), 1)).sum()
    }

    /// The layers that have experts: their place among all layers and the size of one expert.
    pub fn expert_layers(&self) -> impl Iterator<Item = (usize, Bytes)> {
        let has_experts = self.experts.is_some();
        let layers = self.layers.iter().enumerate().filter(move |_| has_experts);
        layers.filter_map(|(place, layer)| layer.expert.map(|bytes| (place, bytes)))
    }

    /// (layer, expert) pairs; 0 for a dense model.
    pub fn n_experts(&self) -> u64 {
        let per_layer = self.experts.map_or(0, |experts| u64::from(experts.per_layer));
        self.expert_layers().count() as u64 * per_layer
    }

    /// All experts of all layers.
    pub fn expert_bytes(&self) -> Bytes {
        let per_layer = self.experts.map_or(0, |experts| u64::from(experts.per_layer));
        self.expert_layers().map(|(_, bytes)| bytes.saturating_mul(per_layer)).sum()
    }

    /// The largest expert: the size of a slot that takes any of them.
    pub fn largest_expert(&self) -> Bytes {
        self.expert_layers().map(|(_, bytes)| bytes).max().unwrap_or_default()
    }

    /// What one token uses of the experts: the sum over layers of top-k × expert bytes. A cache below it hits nothing.
    pub fn token_cycle(&self) -> Bytes {
        let top_k = self.experts.map_or(0, |experts| u64::from(experts.top_k));
        self.expert_layers().map(|(_, bytes)| bytes.saturating_mul(top_k)).sum()
    }

    /// The smallest expert cache that works: a prompt chunk's loan and a minimum beside it, in slots of the largest expert;
    /// all experts where they are less. In slots and in bytes.
    pub fn cache_floor(&self) -> (u64, Bytes) {
        let loan_slots = self.experts.map_or(0, |experts| u64::from(experts.loan_slots));
        let n_slots = (loan_slots + limits::MIN_CACHE_SLOTS).min(self.n_experts());
        (n_slots, self.largest_expert().saturating_mul(n_slots).min(self.expert_bytes()))
    }

    /// The usual rough table: weights + keys and values + 0.2 GiB for each session, + 15 % for the runtime. Shown beside a
    /// plan, never used for one.
    pub fn rough_rule(&self, kv: Bytes, max_sessions: u32) -> Bytes {
        let sessions = limits::ROUGH_SESSION.saturating_mul(u64::from(max_sessions));
        let images = self.image_encoder.unwrap_or_default();
        let all: Bytes = [self.dense_weights, images, self.expert_bytes(), kv, sessions].into_iter().sum();
        all.saturating_add(Bytes(all.0 / 100 * limits::ROUGH_RUNTIME_PERCENT))
    }
}
