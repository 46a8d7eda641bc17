//! The architectures: one file each, written like the paper, over the blocks of [`crate::block`].
//!
//! A file says which tensors a model of its kind has and what is computed with them, up to the residual stream after the
//! last layer. The engine does the rest, which is the same for all: sessions, the head's rows, hand-overs.

pub mod llama;

pub mod qwen2;
pub mod qwen3;

pub mod qwen3moe;

pub mod gemma3;

use crate::block::Head;
use crate::engine::{Step, Stopped};
use crate::load::{LoadError, Loader};
use crate::work::Work;
use plimsoll_kernels::backend::Backend;
use plimsoll_model::facts::Arch;

/// A loaded model: the weights of one of the known architectures.
pub enum Model<B: Backend> {
    /// Llama, and Mixtral's experts in it.
    Llama(llama::Llama<B>),
    /// Gemma 3 (text).
    Gemma3(gemma3::Gemma3<B>),
    /// Qwen 2 and 2.5.
    Qwen2(qwen2::Qwen2<B>),
    /// Qwen 3, dense.
    Qwen3(qwen3::Qwen3<B>),
    /// Qwen 3 with experts.
    Qwen3Moe(qwen3moe::Qwen3Moe<B>),
}

impl<B: Backend> Model<B> {
    /// Takes all tensors of the file.
    ///
    /// # Errors
    /// [`LoadError`], naming the first tensor that is missing, has the wrong shape or format, or is unknown.
    pub fn load(mut loader: Loader<'_, B>) -> Result<Self, LoadError> {
        let model = match loader.facts().arch {
            Arch::Llama => Self::Llama(llama::Llama::load(&mut loader)?),
            Arch::Gemma3 => Self::Gemma3(gemma3::Gemma3::load(&mut loader)?),
            Arch::Qwen2 => Self::Qwen2(qwen2::Qwen2::load(&mut loader)?),
            Arch::Qwen3 => Self::Qwen3(qwen3::Qwen3::load(&mut loader)?),
            Arch::Qwen3Moe => Self::Qwen3Moe(qwen3moe::Qwen3Moe::load(&mut loader)?),
        };
        loader.finish()?;
        Ok(model)
    }

    /// Embeds the step's ids and runs all layers: the residual stream is in `w.x`, `[n × n_embd]`.
    ///
    /// # Errors
    /// [`Stopped`] when a hand-over says so.
    pub fn forward(&self, device: &mut B, step: &mut Step<'_, B>, w: &mut Work<B>) -> Result<(), Stopped> {
        match self {
            Self::Llama(m) => m.forward(device, step, w),
            Self::Gemma3(m) => m.forward(device, step, w),
            Self::Qwen2(m) => m.forward(device, step, w),
            Self::Qwen3(m) => m.forward(device, step, w),
            Self::Qwen3Moe(m) => m.forward(device, step, w),
        }
    }

    /// The last norm and the projection to the vocabulary.
    pub fn head(&self) -> &Head<B> {
        match self {
            Self::Llama(m) => &m.head,
            Self::Gemma3(m) => &m.head,
            Self::Qwen2(m) => &m.head,
            Self::Qwen3(m) => &m.head,
            Self::Qwen3Moe(m) => &m.head,
        }
    }
}
