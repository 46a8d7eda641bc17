//! Gemma 3, text (Gemma Team 2025): five of six layers see only a window and turn with a small base, every sixth sees all;
//! norms before and after each block and on each head of q and k; GELU-gated feed-forward; the embedding is scaled by
//! √n_embd. The norms' weights are used as the file has them: the "1 +" of the paper is already in.

use crate::block::{AttentionBlock, FeedForward, Head};
use crate::engine::{Point, Step, Stopped};
use crate::load::{LoadError, Loader};
use crate::positions;
use crate::work::Work;
use plimsoll_kernels::backend::{Activation, Backend, RopePairs};
use plimsoll_kernels::rope::{RopeSpec, RopeTable};

/// The weights.
pub struct Gemma3<B: Backend> {
    /// `[n_vocab × n_embd]`
    token_embd: B::Weight,
    layers: Vec<Layer<B>>,
    /// Of the layers with a window.
    rope_local: RopeSpec,
    /// Of the layers that see all.
    rope_global: RopeSpec,
    /// √n_embd
    embd_scale: f32,
    eps: f32,
    /// The last norm and the projection to the vocabulary.
    pub head: Head<B>,
}

struct Layer<B: Backend> {
    is_local: bool,
    /// `[n_embd]`, as the other three norms.
    attn_norm: B::Weight,
    attn: AttentionBlock<B>,
    post_attention_norm: B::Weight,
    ffn_norm: B::Weight,
    ffn: FeedForward<B>,
    post_ffw_norm: B::Weight,
}

impl<B: Backend> Gemma3<B> {
    /// Takes the file's tensors.
    pub fn load(loader: &mut Loader<'_, B>) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let n_embd = facts.n_embd as usize;
        let token_embd = loader.matrix("token_embd.weight", facts.n_vocab as usize, n_embd)?;
        let layers = (0..facts.layers.len())
            .map(|i| {
                Ok(Layer {
                    is_local: facts.layers[i].window.is_some(),
                    attn_norm: loader.vector(&format!("blk.{i}.attn_norm.weight"), n_embd)?,
                    attn: AttentionBlock::load(loader, i, RopePairs::Halves)?.with_qk_norm(loader)?,
                    post_attention_norm: loader.vector(&format!("blk.{i}.post_attention_norm.weight"), n_embd)?,
                    ffn_norm: loader.vector(&format!("blk.{i}.ffn_norm.weight"), n_embd)?,
                    ffn: FeedForward::load(loader, i, Activation::GeluTanh)?,
                    post_ffw_norm: loader.vector(&format!("blk.{i}.post_ffw_norm.weight"), n_embd)?,
                })
            })
            .collect::<Result<_, LoadError>>()?;
        let of_kind = |local: bool| facts.layers.iter().position(|l| l.window.is_some() == local).unwrap_or(0);
        let (rope_local, rope_global) =
            (positions::rope_spec(loader, of_kind(true))?, positions::rope_spec(loader, of_kind(false))?);
        let head = Head::load(loader, &token_embd)?;
        let (embd_scale, eps) = (facts.embedding_scale, facts.rms_eps);
        Ok(Self { token_embd, layers, rope_local, rope_global, embd_scale, eps, head })
    }

    /// Embeds the step's ids and runs all layers.
    pub fn forward(&self, device: &mut B, step: &mut Step<'_, B>, w: &mut Work<B>) -> Result<(), Stopped> {
        let local = RopeTable::new(step.positions(), &self.rope_local);
        let global = RopeTable::new(step.positions(), &self.rope_global);
        device.embed(&self.token_embd, &step.ids, self.embd_scale, &mut w.x); // x: [n × n_embd]
        for (i, layer) in self.layers.iter().enumerate() {
            device.rms_norm(&w.x, &layer.attn_norm, self.eps, &mut w.h);
            layer.attn.forward(device, if layer.is_local { &local } else { &global }, step, w); // y = attention(h)
            device.rms_norm(&w.y, &layer.post_attention_norm, self.eps, &mut w.h);
            device.add(&mut w.x, &w.h);

            device.rms_norm(&w.x, &layer.ffn_norm, self.eps, &mut w.h);
            layer.ffn.forward(device, w); // y = ffn(h)
            device.rms_norm(&w.y, &layer.post_ffw_norm, self.eps, &mut w.h);
            device.add(&mut w.x, &w.h);
            step.hand_over(Point::Layer(i))?;
        }
        Ok(())
    }
}
