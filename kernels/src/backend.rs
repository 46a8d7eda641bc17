//! What an engine asks of the place that computes: one trait, written so that a forward pass reads like the paper.
//!
//! The worker's engine is generic over [`Backend`]; `cpu::Cpu` implements it, a GPU will. Every operation has one defined
//! order of additions (see the crate's `README.md`), so two backends give the same bits and an operation may run on either.
//!
//! Shapes: a tensor is a row-major f32 matrix `[n_rows × width]`, one row per token of the step. `n_rows` is the number of
//! tokens in the current step; capacity is fixed when the tensor is made, so a step allocates nothing.

use crate::format::Format;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that live at least as long as somebody reads them: a mapped file, a pool slab, a vector.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A weight matrix in host memory, as the file stores it: `n_rows` rows of `n_cols` elements, each row whole blocks of `format`.
#[derive(Clone)]
pub struct HostMatrix {
    /// Who keeps the bytes alive.
    pub owner: SharedBytes,
    /// Where in the owner's bytes the first row begins, and where the last one ends.
    pub range: Range<usize>,
    /// Storage format of every row.
    pub format: Format,
    /// Output features of a product (rows of the stored matrix).
    pub n_rows: usize,
    /// Input features of a product: K, the contracted dimension (columns).
    pub n_cols: usize,
}

/// The place of an activation function in a gated feed-forward: `out = act(gate) * up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x), as in Llama and Qwen.
    Silu,
    /// GELU with the tanh approximation, as in Gemma.
    GeluTanh,
}

/// Which two elements of a head a rotation turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// (2i, 2i+1): GGUF's `llama` files.
    Adjacent,
    /// (i, i + dim/2): GPT-NeoX style; Qwen, Gemma.
    Halves,
}

/// How K and V are stored. Widened exactly to f32 when read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Half precision, rounded to nearest even.
    F16,
    /// Blocks of 32 int8 with one f16 scale. Needs head dimensions that are multiples of 32.
    Q8_0,
    /// Blocks of 32 4-bit values with one f16 scale. Needs head dimensions that are multiples of 32.
    Q4_0,
}

/// Shape of one layer's K and V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Key/value heads.
    pub n_kv_heads: usize,
    /// Elements of one key head.
    pub k_dim: usize,
    /// Elements of one value head.
    pub v_dim: usize,
    /// Sliding window in tokens: position p sees (p − window, p]. `None` sees all.
    pub window: Option<u32>,
}

/// One layer's attention for a run of consecutive positions of one session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Layer index, for the cache.
    pub layer: usize,
    /// Query heads; a multiple of the layer's key/value heads.
    pub n_heads: usize,
    /// Factor on q·k, usually 1/√head_dim.
    pub scale: f32,
}

/// Why a backend could not do what was asked. All are values to handle: none ends the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendError {
    /// The matrix's bytes, format and shape do not fit one another.
    Shape(String),
    /// Memory for this many bytes could not be had.
    OutOfMemory {
        /// Bytes asked for.
        wanted_bytes: u64,
    },
}

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shape(why) => write!(f, "a weight does not fit its shape: {why}"),
            Self::OutOfMemory { wanted_bytes } => write!(f, "no memory for {wanted_bytes} more bytes"),
        }
    }
}

impl std::error::Error for BackendError {}

/// A place that computes. Methods take outputs last; none reads what it writes unless it says so.
pub trait Backend {
    /// Activations `[n_rows × width]`, f32.
    type Tensor;
    /// Activations prepared once for several products: f32 beside their 8-bit blocks.
    type Acts;
    /// A weight this backend can multiply with. Cheap to clone.
    type Weight: Clone;
    /// K and V of one session, all layers, in pages of [`crate::KV_PAGE_TOKENS`] absolute positions.
    type Kv;

    /// A sentence for a person: device, instruction set, threads.
    fn describe(&self) -> String;

    /// Takes a weight over; on the CPU nothing is copied.
    fn weight(&mut self, host: HostMatrix) -> Result<Self::Weight, BackendError>;
    /// A tensor that can hold up to `max_rows` rows.
    fn tensor(&mut self, max_rows: usize, width: usize) -> Result<Self::Tensor, BackendError>;
    /// Prepared activations that can hold up to `max_rows` rows.
    fn acts(&mut self, max_rows: usize, width: usize) -> Result<Self::Acts, BackendError>;
    /// An empty cache for one session.
    fn kv(&mut self, layers: &[KvLayer], kv_type: KvType) -> Result<Self::Kv, BackendError>;

    /// Makes room for positions `0..n_tokens` (pages already there stay). All or nothing.
    fn kv_reserve(&mut self, kv: &mut Self::Kv, n_tokens: u32) -> Result<(), BackendError>;
    /// Forgets every position from `n_tokens` on and frees pages that hold none.
    fn kv_truncate(&mut self, kv: &mut Self::Kv, n_tokens: u32);
    /// Whether a session may go on from position `n_tokens` after a truncation: a layer with a window forgets what later
    /// positions cannot see, so going far back may need the start again. Always true for `n_tokens` = 0 after truncating to 0.
    fn kv_can_resume_at(&self, kv: &Self::Kv, n_tokens: u32) -> bool;
    /// Bytes the cache holds now.
    fn kv_bytes(&self, kv: &Self::Kv) -> u64;

    /// Sets the number of rows in use; contents of new rows are unspecified.
    fn set_rows(&mut self, x: &mut Self::Tensor, n_rows: usize);
    /// `out[r] = table[ids[r]] * scale`; sets `out`'s rows to `ids.len()`.
    fn embed(&mut self, table: &Self::Weight, ids: &[u32], scale: f32, out: &mut Self::Tensor);
    /// `out = x / sqrt(mean(x²) + eps) * weight`, row by row. Weight `[1 × width]`, f32.
    fn rms_norm(&mut self, x: &Self::Tensor, weight: &Self::Weight, eps: f32, out: &mut Self::Tensor);
    /// The same in place on each group of `head_dim` elements (QK-norm). Weight `[1 × head_dim]`, f32.
    fn rms_norm_heads(&mut self, x: &mut Self::Tensor, weight: &Self::Weight, eps: f32);
    /// Prepares `x` for [`Backend::matmul`].
    fn prepare(&mut self, x: &Self::Tensor, out: &mut Self::Acts);
    /// The rows `rows` (any order, repeats allowed) of `from`, prepared; sets `out`'s rows.
    fn gather(&mut self, from: &Self::Acts, rows: &[u32], out: &mut Self::Acts);
    /// `out[r] = weight · acts[r]`; `out`'s width is the weight's `n_rows`.
    fn matmul(&mut self, weight: &Self::Weight, acts: &Self::Acts, out: &mut Self::Tensor);
    /// `x[r] += bias`. Bias `[1 × width]`, f32.
    fn add_bias(&mut self, x: &mut Self::Tensor, bias: &Self::Weight);
    /// Turns each head of `x[r]` by the angles of `table` row r; a head has `head_dim` elements, of which the first
    /// `table.dim()` turn.
    fn rope(&mut self, x: &mut Self::Tensor, head_dim: usize, table: &crate::rope::RopeTable, pairs: RopePairs);
    /// Stores rows `rows` of `k` and `v` at positions `pos..`. The positions must be reserved. A layer with a window frees
    /// the pages that no query at `pos` or later can see.
    fn kv_append(
        &mut self,
        kv: &mut Self::Kv,
        layer: usize,
        k: &Self::Tensor,
        v: &Self::Tensor,
        rows: Range<usize>,
        pos: u32,
    );
    /// Causal attention of rows `rows` of `q`, standing at positions `pos..`, over `kv`; writes the same rows of `out`
    /// (`[n_heads × v_dim]` wide), which must be in use. The positions must have been appended.
    fn attention(
        &mut self,
        spec: &Attention,
        kv: &Self::Kv,
        q: &Self::Tensor,
        rows: Range<usize>,
        pos: u32,
        out: &mut Self::Tensor,
    );
    /// `out = act(gate) * up`, element by element.
    fn glu(&mut self, activation: Activation, gate: &Self::Tensor, up: &Self::Tensor, out: &mut Self::Tensor);
    /// `x += y`.
    fn add(&mut self, x: &mut Self::Tensor, y: &Self::Tensor);
    /// Copies row i of `from` to row `rows[i]` of `to`.
    fn scatter(&mut self, from: &Self::Tensor, rows: &[u32], to: &mut Self::Tensor);
    /// `out[t] = Σ_k weights[t·top_k + k] · parts[t·top_k + k]`, by fma in the order of k, from 0.
    fn combine(&mut self, parts: &Self::Tensor, weights: &[f32], top_k: usize, out: &mut Self::Tensor);
    /// Row `row` in host memory.
    fn read_row(&self, x: &Self::Tensor, row: usize) -> Vec<f32>;
    /// Keeps only the rows `rows` of `x`, in that order (the last token of each sequence, before the head).
    fn select_rows(&mut self, x: &Self::Tensor, rows: &[u32], out: &mut Self::Tensor);
}
