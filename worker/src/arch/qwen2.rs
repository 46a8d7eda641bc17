//! Qwen 2 and 2.5 (Yang et al. 2024): a Llama with biases on q, k and v, and rotary positions on halves.

use crate::block::{AttentionBlock, FeedForward, Head};
use crate::engine::{Point, Step, Stopped};
use crate::load::{LoadError, Loader};
use crate::positions;
use crate::work::Work;
use plimsoll_kernels::backend::{Activation, Backend, RopePairs};
use plimsoll_kernels::rope::{RopeSpec, RopeTable};

/// The weights.
pub struct Qwen2<B: Backend> {
    /// `[n_vocab × n_embd]`
    token_embd: B::Weight,
    layers: Vec<Layer<B>>,
    rope: RopeSpec,
    eps: f32,
    /// The last norm and the projection to the vocabulary.
    pub head: Head<B>,
}

struct Layer<B: Backend> {
    /// `[n_embd]`
    attn_norm: B::Weight,
    attn: AttentionBlock<B>,
    /// `[n_embd]`
    ffn_norm: B::Weight,
    ffn: FeedForward<B>,
}

impl<B: Backend> Qwen2<B> {
    /// Takes the file's tensors.
    pub fn load(loader: &mut Loader<'_, B>) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let n_embd = facts.n_embd as usize;
        let token_embd = loader.matrix("token_embd.weight", facts.n_vocab as usize, n_embd)?;
        let layers = (0..facts.layers.len())
            .map(|i| {
                Ok(Layer {
                    attn_norm: loader.vector(&format!("blk.{i}.attn_norm.weight"), n_embd)?,
                    attn: AttentionBlock::load(loader, i, RopePairs::Halves)?.with_bias(loader)?,
                    ffn_norm: loader.vector(&format!("blk.{i}.ffn_norm.weight"), n_embd)?,
                    ffn: FeedForward::load(loader, i, Activation::Silu)?,
                })
            })
            .collect::<Result<_, LoadError>>()?;
        let rope = positions::rope_spec(loader, 0)?;
        let head = Head::load(loader, &token_embd)?;
        Ok(Self { token_embd, layers, rope, eps: facts.rms_eps, head })
    }

    /// Embeds the step's ids and runs all layers.
    pub fn forward(&self, device: &mut B, step: &mut Step<'_, B>, w: &mut Work<B>) -> Result<(), Stopped> {
        let rope = RopeTable::new(step.positions(), &self.rope);
        device.embed(&self.token_embd, &step.ids, 1.0, &mut w.x); // x: [n × n_embd]
        for (i, layer) in self.layers.iter().enumerate() {
            device.rms_norm(&w.x, &layer.attn_norm, self.eps, &mut w.h);
            layer.attn.forward(device, &rope, step, w); // y = attention(h)
            device.add(&mut w.x, &w.y);

            device.rms_norm(&w.x, &layer.ffn_norm, self.eps, &mut w.h);
            layer.ffn.forward(device, w); // y = ffn(h)
            device.add(&mut w.x, &w.y);
            step.hand_over(Point::Layer(i))?;
        }
        Ok(())
    }
}
