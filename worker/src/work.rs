//! The buffers of a step, made once for the most rows that a step can have. A step allocates no activations.

use plimsoll_kernels::backend::{Backend, BackendError};
use plimsoll_model::facts::ModelFacts;

/// Activations between the operations of a step; n is the number of tokens in it.
pub struct Work<B: Backend> {
    /// The residual stream, `[n × n_embd]`.
    pub x: B::Tensor,
    /// A block's normalised input, `[n × n_embd]`.
    pub h: B::Tensor,
    /// `h`, prepared.
    pub h_acts: B::Acts,
    /// A block's output, `[n × n_embd]`.
    pub y: B::Tensor,
    /// `[n × n_heads·k_dim]`
    pub q: B::Tensor,
    /// `[n × n_kv_heads·k_dim]`
    pub k: B::Tensor,
    /// `[n × n_kv_heads·v_dim]`
    pub v: B::Tensor,
    /// `[n × n_heads·v_dim]`
    pub attn: B::Tensor,
    /// `attn`, prepared.
    pub attn_acts: B::Acts,
    /// `[n × n_ff]`, or `[uses × n_ff_expert]` of one expert.
    pub gate: B::Tensor,
    /// As `gate`.
    pub up: B::Tensor,
    /// act(gate) · up, as `gate`.
    pub glu: B::Tensor,
    /// `glu`, prepared.
    pub glu_acts: B::Acts,
    /// Buffers of the experts; one row each in a model without.
    pub moe: MoeWork<B>,
    /// Buffers of the head.
    pub head: HeadWork<B>,
    /// Bytes of all of these (f32 values and their 8-bit blocks).
    pub n_bytes: u64,
}

/// Buffers of a mixture of experts.
pub struct MoeWork<B: Backend> {
    /// The router's scores, `[n × n_experts]`.
    pub scores: B::Tensor,
    /// One expert's inputs, `[uses × n_embd]`, prepared.
    pub h_acts: B::Acts,
    /// One expert's outputs, `[uses × n_embd]`.
    pub out: B::Tensor,
    /// Every token's expert outputs by rank, `[n·top_k × n_embd]`.
    pub parts: B::Tensor,
}

/// Buffers of the last norm and the projection to the vocabulary, for a few rows.
pub struct HeadWork<B: Backend> {
    /// `[rows × n_embd]`
    pub x: B::Tensor,
    /// `[rows × n_embd]`, normalised.
    pub h: B::Tensor,
    /// `h`, prepared.
    pub h_acts: B::Acts,
    /// `[rows × n_vocab]`
    pub logits: B::Tensor,
}

/// Makes buffers and counts their bytes.
struct Maker<'a, B: Backend> {
    device: &'a mut B,
    n_bytes: u64,
}

impl<B: Backend> Maker<'_, B> {
    fn tensor(&mut self, max_rows: usize, width: usize) -> Result<B::Tensor, BackendError> {
        self.n_bytes += (max_rows * width * size_of::<f32>()) as u64;
        self.device.tensor(max_rows, width)
    }

    fn acts(&mut self, max_rows: usize, width: usize) -> Result<B::Acts, BackendError> {
        // f32, one i8 each, and per block of 32 a scale and two sums.
        self.n_bytes += (max_rows * (width * 5 + width.div_ceil(32) * 12)) as u64;
        self.device.acts(max_rows, width)
    }
}

impl<B: Backend> Work<B> {
    /// Buffers for steps of up to `n` rows and `head_rows` rows of logits at a time.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`].
    pub fn new(device: &mut B, facts: &ModelFacts, n: usize, head_rows: usize) -> Result<Self, BackendError> {
        let n_embd = facts.n_embd as usize;
        let layer = &facts.layers[0];
        let (n_heads, n_kv_heads) = (layer.n_heads as usize, layer.n_kv_heads as usize);
        let (k_dim, v_dim) = (layer.k_dim as usize, layer.v_dim as usize);
        let (n_ff, moe_rows, n_experts, top_k) = match &facts.experts {
            Some(e) => (e.n_ff as usize, n, e.n_experts as usize, e.top_k as usize),
            None => (layer.n_ff as usize, 1, 1, 1),
        };
        let mut make = Maker { device, n_bytes: 0 };
        Ok(Self {
            x: make.tensor(n, n_embd)?,
            h: make.tensor(n, n_embd)?,
            h_acts: make.acts(n, n_embd)?,
            y: make.tensor(n, n_embd)?,
            q: make.tensor(n, n_heads * k_dim)?,
            k: make.tensor(n, n_kv_heads * k_dim)?,
            v: make.tensor(n, n_kv_heads * v_dim)?,
            attn: make.tensor(n, n_heads * v_dim)?,
            attn_acts: make.acts(n, n_heads * v_dim)?,
            gate: make.tensor(n, n_ff)?,
            up: make.tensor(n, n_ff)?,
            glu: make.tensor(n, n_ff)?,
            glu_acts: make.acts(n, n_ff)?,
            moe: MoeWork {
                scores: make.tensor(moe_rows, n_experts)?,
                h_acts: make.acts(moe_rows, n_embd)?,
                out: make.tensor(moe_rows, n_embd)?,
                parts: make.tensor(moe_rows * top_k, n_embd)?,
            },
            head: HeadWork {
                x: make.tensor(head_rows, n_embd)?,
                h: make.tensor(head_rows, n_embd)?,
                h_acts: make.acts(head_rows, n_embd)?,
                logits: make.tensor(head_rows, facts.n_vocab as usize)?,
            },
            n_bytes: make.n_bytes,
        })
    }
}
