//! The blocks that architectures are made of: attention, the gated feed-forward, the mixture of experts, the head.
//!
//! A block owns its weights and computes on the buffers of [`Work`]: it reads `h` (the normalised input) and writes `y`.
//! The residual stream `x`, and the norms around a block, are the architecture's own. In shapes, n is the number of tokens
//! in the step.

use crate::engine::{Point, Step, Stopped};
use crate::load::{LoadError, Loader};
use crate::router;
use crate::work::Work;
use plimsoll_kernels::backend::{Activation, Attention, Backend, RopePairs};
use plimsoll_kernels::rope::RopeTable;

/// Attention with grouped key/value heads.
pub struct AttentionBlock<B: Backend> {
    /// `[n_heads·k_dim × n_embd]`
    q: B::Weight,
    /// `[n_kv_heads·k_dim × n_embd]`
    k: B::Weight,
    /// `[n_kv_heads·v_dim × n_embd]`
    v: B::Weight,
    /// `[n_embd × n_heads·v_dim]`
    output: B::Weight,
    bias: Option<QkvBias<B>>,
    norm: Option<QkNorm<B>>,
    spec: Attention,
    k_dim: usize,
    eps: f32,
    pairs: RopePairs,
}

/// Biases of the three projections (Qwen2).
struct QkvBias<B: Backend> {
    q: B::Weight,
    k: B::Weight,
    v: B::Weight,
}

/// RMS norms of each query and key head, before the rotation (Qwen3, Gemma 3). `[k_dim]` each.
struct QkNorm<B: Backend> {
    q: B::Weight,
    k: B::Weight,
}

impl<B: Backend> AttentionBlock<B> {
    /// The four projections of layer `i`.
    pub fn load(loader: &mut Loader<'_, B>, i: usize, pairs: RopePairs) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let layer = &facts.layers[i];
        let (n_embd, k_dim, v_dim) = (facts.n_embd as usize, layer.k_dim as usize, layer.v_dim as usize);
        let (n_heads, n_kv_heads) = (layer.n_heads as usize, layer.n_kv_heads as usize);
        Ok(Self {
            q: loader.matrix(&format!("blk.{i}.attn_q.weight"), n_heads * k_dim, n_embd)?,
            k: loader.matrix(&format!("blk.{i}.attn_k.weight"), n_kv_heads * k_dim, n_embd)?,
            v: loader.matrix(&format!("blk.{i}.attn_v.weight"), n_kv_heads * v_dim, n_embd)?,
            output: loader.matrix(&format!("blk.{i}.attn_output.weight"), n_embd, n_heads * v_dim)?,
            bias: None,
            norm: None,
            spec: Attention { layer: i, n_heads, scale: facts.attention_scale },
            k_dim,
            eps: facts.rms_eps,
            pairs,
        })
    }

    /// With biases on q, k and v.
    pub fn with_bias(mut self, loader: &mut Loader<'_, B>) -> Result<Self, LoadError> {
        let i = self.spec.layer;
        let layer = &loader.facts().layers[i];
        let n_kv_heads = layer.n_kv_heads as usize;
        let (q_width, k_width, v_width) =
            (layer.n_heads as usize * self.k_dim, n_kv_heads * self.k_dim, n_kv_heads * layer.v_dim as usize);
        self.bias = Some(QkvBias {
            q: loader.vector(&format!("blk.{i}.attn_q.bias"), q_width)?,
            k: loader.vector(&format!("blk.{i}.attn_k.bias"), k_width)?,
            v: loader.vector(&format!("blk.{i}.attn_v.bias"), v_width)?,
        });
        Ok(self)
    }

    /// With a norm on each head of q and k.
    pub fn with_qk_norm(mut self, loader: &mut Loader<'_, B>) -> Result<Self, LoadError> {
        let i = self.spec.layer;
        self.norm = Some(QkNorm {
            q: loader.vector(&format!("blk.{i}.attn_q_norm.weight"), self.k_dim)?,
            k: loader.vector(&format!("blk.{i}.attn_k_norm.weight"), self.k_dim)?,
        });
        Ok(self)
    }

    /// `y = attention(h)`, and K and V of the step's tokens are stored.
    pub fn forward(&self, device: &mut B, rope: &RopeTable, step: &mut Step<'_, B>, w: &mut Work<B>) {
        device.prepare(&w.h, &mut w.h_acts);
        device.matmul(&self.q, &w.h_acts, &mut w.q); // q: [n × n_heads·k_dim]
        device.matmul(&self.k, &w.h_acts, &mut w.k); // k: [n × n_kv_heads·k_dim]
        device.matmul(&self.v, &w.h_acts, &mut w.v); // v: [n × n_kv_heads·v_dim]
        if let Some(bias) = &self.bias {
            device.add_bias(&mut w.q, &bias.q);
            device.add_bias(&mut w.k, &bias.k);
            device.add_bias(&mut w.v, &bias.v);
        }
        if let Some(norm) = &self.norm {
            device.rms_norm_heads(&mut w.q, &norm.q, self.eps);
            device.rms_norm_heads(&mut w.k, &norm.k, self.eps);
        }
        device.rope(&mut w.q, self.k_dim, rope, self.pairs);
        device.rope(&mut w.k, self.k_dim, rope, self.pairs);
        device.set_rows(&mut w.attn, step.ids.len());
        for run in &mut step.runs {
            device.kv_append(run.kv, self.spec.layer, &w.k, &w.v, run.rows.clone(), run.pos);
            device.attention(&self.spec, run.kv, &w.q, run.rows.clone(), run.pos, &mut w.attn);
        }
        device.prepare(&w.attn, &mut w.attn_acts); // attn: [n × n_heads·v_dim]
        device.matmul(&self.output, &w.attn_acts, &mut w.y); // y: [n × n_embd]
    }
}

/// A gated feed-forward: `down(act(gate(h)) · up(h))`.
pub struct FeedForward<B: Backend> {
    /// `[n_ff × n_embd]`
    gate: B::Weight,
    /// `[n_ff × n_embd]`
    up: B::Weight,
    /// `[n_embd × n_ff]`
    down: B::Weight,
    activation: Activation,
}

impl<B: Backend> FeedForward<B> {
    /// The three projections of layer `i`.
    pub fn load(loader: &mut Loader<'_, B>, i: usize, activation: Activation) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let (n_embd, n_ff) = (facts.n_embd as usize, facts.layers[i].n_ff as usize);
        Ok(Self {
            gate: loader.matrix(&format!("blk.{i}.ffn_gate.weight"), n_ff, n_embd)?,
            up: loader.matrix(&format!("blk.{i}.ffn_up.weight"), n_ff, n_embd)?,
            down: loader.matrix(&format!("blk.{i}.ffn_down.weight"), n_embd, n_ff)?,
            activation,
        })
    }

    /// `y = ffn(h)`.
    pub fn forward(&self, device: &mut B, w: &mut Work<B>) {
        device.prepare(&w.h, &mut w.h_acts);
        device.matmul(&self.gate, &w.h_acts, &mut w.gate); // gate, up, glu: [n × n_ff]
        device.matmul(&self.up, &w.h_acts, &mut w.up);
        device.glu(self.activation, &w.gate, &w.up, &mut w.glu);
        device.prepare(&w.glu, &mut w.glu_acts);
        device.matmul(&self.down, &w.glu_acts, &mut w.y); // y: [n × n_embd]
    }
}

/// A feed-forward split into experts, of which each token uses `top_k`.
pub struct MixtureOfExperts<B: Backend> {
    /// `[n_experts × n_embd]`, f32: top-k is a discontinuity, so its order of additions is that of floats everywhere.
    router: B::Weight,
    experts: Vec<FeedForward<B>>,
    top_k: usize,
    normalise: bool,
}

impl<B: Backend> MixtureOfExperts<B> {
    /// The router and all experts of layer `i`.
    pub fn load(loader: &mut Loader<'_, B>, i: usize) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let n_embd = facts.n_embd as usize;
        let experts = facts.experts.as_ref().ok_or_else(|| {
            LoadError::Unsupported(format!("layer {i} has a router, but the header's expert_count is missing or 0"))
        })?;
        let (n_experts, n_ff) = (experts.n_experts as usize, experts.n_ff as usize);
        let router = loader.f32_matrix(&format!("blk.{i}.ffn_gate_inp.weight"), n_experts, n_embd)?;
        let gates = loader.experts(&format!("blk.{i}.ffn_gate_exps.weight"), n_experts, n_ff, n_embd)?;
        let ups = loader.experts(&format!("blk.{i}.ffn_up_exps.weight"), n_experts, n_ff, n_embd)?;
        let downs = loader.experts(&format!("blk.{i}.ffn_down_exps.weight"), n_experts, n_embd, n_ff)?;
        let experts_of_layer = (gates.into_iter().zip(ups).zip(downs))
            .map(|((gate, up), down)| FeedForward { gate, up, down, activation: Activation::Silu })
            .collect();
        Ok(Self {
            router,
            experts: experts_of_layer,
            top_k: experts.top_k as usize,
            normalise: experts.normalise_weights,
        })
    }

    /// `y = Σ_k weight_k · expert_k(h)`, the sum in the router's rank order.
    ///
    /// Experts are visited by id, each with all of its tokens; their outputs stay apart in `parts` until all are there.
    ///
    /// # Errors
    /// [`Stopped`] when a hand-over between two experts says so.
    pub fn forward(&self, device: &mut B, step: &mut Step<'_, B>, w: &mut Work<B>) -> Result<(), Stopped> {
        let n = step.ids.len();
        device.prepare(&w.h, &mut w.h_acts);
        device.matmul(&self.router, &w.h_acts, &mut w.moe.scores); // scores: [n × n_experts]
        let scores = (0..n).map(|row| device.read_row(&w.moe.scores, row));
        let routes = router::route(scores, self.experts.len(), self.top_k, self.normalise);
        device.set_rows(&mut w.moe.parts, n * self.top_k); // parts: [n·top_k × n_embd]
        for (expert, uses) in self.experts.iter().zip(&routes.by_expert) {
            if uses.rows.is_empty() {
                continue;
            }
            device.gather(&w.h_acts, &uses.rows, &mut w.moe.h_acts); // [uses × n_embd]
            device.matmul(&expert.gate, &w.moe.h_acts, &mut w.gate); // gate, up, glu: [uses × n_ff_expert]
            device.matmul(&expert.up, &w.moe.h_acts, &mut w.up);
            device.glu(expert.activation, &w.gate, &w.up, &mut w.glu);
            device.prepare(&w.glu, &mut w.glu_acts);
            device.matmul(&expert.down, &w.glu_acts, &mut w.moe.out); // out: [uses × n_embd]
            device.scatter(&w.moe.out, &uses.parts, &mut w.moe.parts);
            step.hand_over(Point::Expert)?;
        }
        device.combine(&w.moe.parts, &routes.weights, self.top_k, &mut w.y); // y: [n × n_embd]
        Ok(())
    }
}

/// The last norm and the projection to the vocabulary.
pub struct Head<B: Backend> {
    /// `[n_embd]`
    pub norm: B::Weight,
    /// `[n_vocab × n_embd]`
    pub output: B::Weight,
    /// Epsilon of the norm.
    pub eps: f32,
}

impl<B: Backend> Head<B> {
    /// `output.weight`, or the token embedding where the file has none (a tied head).
    pub fn load(loader: &mut Loader<'_, B>, token_embd: &B::Weight) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let n_embd = facts.n_embd as usize;
        let norm = loader.vector("output_norm.weight", n_embd)?;
        let output = if loader.has("output.weight") {
            loader.matrix("output.weight", facts.n_vocab as usize, n_embd)?
        } else {
            token_embd.clone()
        };
        Ok(Self { norm, output, eps: facts.rms_eps })
    }
}
