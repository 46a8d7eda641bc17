//! Bytes of K and V, and of activations.

use super::{LayerFacts, ModelFacts};

/// Positions in one page of K and V; the engine's page size.
const KV_PAGE_TOKENS: u64 = 64;

/// How K and V are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Half precision.
    F16,
    /// Blocks of 32 int8 and one f16: 34 bytes.
    Q8_0,
    /// Blocks of 32 4-bit values and one f16: 18 bytes.
    Q4_0,
}

impl KvType {
    /// Every type, best quality first.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// The name used in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// The type called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// (elements, bytes) of a block.
    fn block(self) -> (u64, u64) {
        match self {
            Self::F16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_0 => (32, 18),
        }
    }

    /// Bytes of `n_elements` of one head; a last block that is not full counts whole.
    fn row_bytes(self, n_elements: u64) -> u64 {
        let (elements, bytes) = self.block();
        n_elements.div_ceil(elements) * bytes
    }
}

impl LayerFacts {
    /// Bytes of K and V for one position.
    pub fn kv_bytes_per_token(&self, kv_type: KvType) -> u64 {
        // No overflow: three factors under 2^20.
        let per_head = kv_type.row_bytes(u64::from(self.k_dim)) + kv_type.row_bytes(u64::from(self.v_dim));
        u64::from(self.n_kv_heads) * per_head
    }

    /// Bytes of K and V for a context of `n_tokens`: those a window lets be seen.
    pub fn kv_bytes(&self, kv_type: KvType, n_tokens: u32) -> u64 {
        let held = self.window.map_or(n_tokens, |window| window.min(n_tokens));
        self.kv_bytes_per_token(kv_type).saturating_mul(u64::from(held))
    }

    /// The same in whole pages of 64 positions. A window may start inside a page, so it can touch one page more than it fills.
    pub fn kv_bytes_paged(&self, kv_type: KvType, n_tokens: u32) -> u64 {
        let pages = u64::from(n_tokens).div_ceil(KV_PAGE_TOKENS);
        let pages = match self.window {
            Some(window) => pages.min(u64::from(window.saturating_sub(1)).div_ceil(KV_PAGE_TOKENS) + 1),
            None => pages,
        };
        self.kv_bytes_per_token(kv_type).saturating_mul(pages * KV_PAGE_TOKENS)
    }
}

impl ModelFacts {
    /// Whether K and V can be stored so: block formats need head dimensions that are whole blocks.
    pub fn kv_type_fits(&self, kv_type: KvType) -> bool {
        let (elements, _) = kv_type.block();
        let whole = |dim: u32| u64::from(dim).is_multiple_of(elements);
        self.layers.iter().all(|layer| whole(layer.k_dim) && whole(layer.v_dim))
    }

    /// Bytes of K and V of each layer for one session of `n_tokens`, with min(window, tokens).
    pub fn kv_bytes_per_layer(&self, kv_type: KvType, n_tokens: u32) -> Vec<u64> {
        self.layers.iter().map(|layer| layer.kv_bytes(kv_type, n_tokens)).collect()
    }

    /// Bytes of K and V of all layers for one session of `n_tokens`, with min(window, tokens).
    pub fn kv_bytes(&self, kv_type: KvType, n_tokens: u32) -> u64 {
        self.layers.iter().map(|layer| layer.kv_bytes(kv_type, n_tokens)).fold(0, u64::saturating_add)
    }

    /// The same in whole pages of 64 positions.
    pub fn kv_bytes_paged(&self, kv_type: KvType, n_tokens: u32) -> u64 {
        self.layers.iter().map(|layer| layer.kv_bytes_paged(kv_type, n_tokens)).fold(0, u64::saturating_add)
    }

    /// Bytes of all weights.
    pub fn weight_bytes(&self) -> u64 {
        self.dense_weight_bytes.saturating_add(self.expert_weight_bytes)
    }

    /// An estimate of the activation buffers of an engine whose steps hold up to `n_tokens`, of which `n_outputs` give logits:
    /// f32 rows for the residual stream and its norm, q, k, v, attention's result, gate, up and their product (for every chosen
    /// expert where there are some), 8-bit copies of what a product reads, and the logits.
    pub fn activation_bytes(&self, n_tokens: u32, n_outputs: u32) -> u64 {
        let n_embd = u64::from(self.n_embd);
        let widest = |width: &dyn Fn(&LayerFacts) -> u64| self.layers.iter().map(width).max().unwrap_or(0);
        let attention = widest(&|l| {
            let (heads, kv_heads) = (u64::from(l.n_heads), u64::from(l.n_kv_heads));
            (heads + kv_heads) * (u64::from(l.k_dim) + u64::from(l.v_dim))
        });
        let experts_ff = self.experts.map_or(0, |e| u64::from(e.top_k) * (3 * u64::from(e.n_ff) + n_embd));
        let feed_forward = (3 * widest(&|l| u64::from(l.n_ff))).max(experts_ff);
        let floats = 4 * n_embd + attention + feed_forward;
        // Half the floats again: 8-bit copies, their scales and their sums.
        let row_bytes = floats * 4 + floats * 2;
        let logits = u64::from(n_outputs).saturating_mul(u64::from(self.n_vocab) * 4);
        u64::from(n_tokens).saturating_mul(row_bytes).saturating_add(logits)
    }

    /// The name of [`ModelFacts::file_type`], such as `Q4_K_M`.
    pub fn file_type_name(&self) -> Option<&'static str> {
        let wanted = self.file_type?;
        FILE_TYPES.iter().find(|(id, _)| *id == wanted).map(|(_, name)| *name)
    }
}

/// ggml's numbers for mixes of storage types.
static FILE_TYPES: [(u32, &str); 34] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4"),
    (39, "NVFP4"),
];
