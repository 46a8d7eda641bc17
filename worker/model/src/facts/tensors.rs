//! The tensors an architecture has: which must be there, their shapes, and the bytes they add up to.

use super::{Arch, ExpertMatrices, ExpertMatrix, FactsError, LayerFacts, ModelFacts};
use crate::gguf::{Header, TensorInfo, TensorType};

/// A size along one dimension, by the model's own words.
#[derive(Clone, Copy)]
enum Size {
    Embd,
    Vocab,
    /// Query heads × key dimension.
    Q,
    /// Key heads × key dimension.
    K,
    /// Value heads × value dimension.
    V,
    /// Query heads × value dimension.
    AttnOut,
    KDim,
    Ff,
    ExpertFf,
    Experts,
    HalfRope,
    One,
}

/// Whether a tensor must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    Dense,
    Experts,
    Optional,
}

/// One row: name (after `blk.N.` for a layer's), dimensions with the fastest first, and where it belongs.
struct Row {
    name: &'static str,
    dims: [Size; 3],
    need: Need,
    archs: &'static [Arch],
}

const ALL: &[Arch] = &Arch::ALL;
const QK_NORM: &[Arch] = &[Arch::Gemma3, Arch::Qwen3, Arch::Qwen3Moe];
const GEMMA: &[Arch] = &[Arch::Gemma3];
const QWEN2: &[Arch] = &[Arch::Qwen2];
const DENSE: &[Arch] = &[Arch::Llama, Arch::Gemma3, Arch::Qwen2, Arch::Qwen3];
const MOE: &[Arch] = &[Arch::Llama, Arch::Qwen3Moe];

const fn row(name: &'static str, dims: [Size; 3], need: Need, archs: &'static [Arch]) -> Row {
    Row { name, dims, need, archs }
}

static MODEL: [Row; 4] = [
    row("token_embd.weight", [Size::Embd, Size::Vocab, Size::One], Need::Always, ALL),
    row("output_norm.weight", [Size::Embd, Size::One, Size::One], Need::Always, ALL),
    row("output.weight", [Size::Embd, Size::Vocab, Size::One], Need::Optional, ALL),
    row("rope_freqs.weight", [Size::HalfRope, Size::One, Size::One], Need::Optional, ALL),
];

static LAYER: [Row; 21] = [
    row("attn_norm.weight", [Size::Embd, Size::One, Size::One], Need::Always, ALL),
    row("attn_q.weight", [Size::Embd, Size::Q, Size::One], Need::Always, ALL),
    row("attn_k.weight", [Size::Embd, Size::K, Size::One], Need::Always, ALL),
    row("attn_v.weight", [Size::Embd, Size::V, Size::One], Need::Always, ALL),
    row("attn_output.weight", [Size::AttnOut, Size::Embd, Size::One], Need::Always, ALL),
    row("attn_q.bias", [Size::Q, Size::One, Size::One], Need::Always, QWEN2),
    row("attn_k.bias", [Size::K, Size::One, Size::One], Need::Always, QWEN2),
    row("attn_v.bias", [Size::V, Size::One, Size::One], Need::Always, QWEN2),
    row("attn_q_norm.weight", [Size::KDim, Size::One, Size::One], Need::Always, QK_NORM),
    row("attn_k_norm.weight", [Size::KDim, Size::One, Size::One], Need::Always, QK_NORM),
    row("post_attention_norm.weight", [Size::Embd, Size::One, Size::One], Need::Always, GEMMA),
    row("ffn_norm.weight", [Size::Embd, Size::One, Size::One], Need::Always, ALL),
    row("ffn_gate.weight", [Size::Embd, Size::Ff, Size::One], Need::Dense, DENSE),
    row("ffn_up.weight", [Size::Embd, Size::Ff, Size::One], Need::Dense, DENSE),
    row("ffn_down.weight", [Size::Ff, Size::Embd, Size::One], Need::Dense, DENSE),
    row("post_ffw_norm.weight", [Size::Embd, Size::One, Size::One], Need::Always, GEMMA),
    row("ffn_gate_inp.weight", [Size::Embd, Size::Experts, Size::One], Need::Experts, MOE),
    row("ffn_gate_exps.weight", [Size::Embd, Size::ExpertFf, Size::Experts], Need::Experts, MOE),
    row("ffn_up_exps.weight", [Size::Embd, Size::ExpertFf, Size::Experts], Need::Experts, MOE),
    row("ffn_down_exps.weight", [Size::ExpertFf, Size::Embd, Size::Experts], Need::Experts, MOE),
    // Written by some converters beside the model's own; each layer's copy is the same.
    row("rope_freqs.weight", [Size::HalfRope, Size::One, Size::One], Need::Optional, ALL),
];

/// The tensors of a header, seen with an architecture.
pub(super) struct Tensors<'a> {
    pub(super) header: &'a Header,
    pub(super) arch: Arch,
}

impl<'a> Tensors<'a> {
    /// The tensor called `name`.
    pub(super) fn need(&self, name: &str) -> Result<&'a TensorInfo, FactsError> {
        self.header.tensor(name).ok_or_else(|| FactsError::MissingTensor { name: name.into() })
    }

    /// Checks every tensor and fills in the bytes of `facts`.
    pub(super) fn fill(&self, facts: &mut ModelFacts) -> Result<(), FactsError> {
        let mut n_used = 0;
        for row in &MODEL {
            n_used += usize::from(self.check(row, row.name, facts, None)?.is_some());
        }
        for index in 0..facts.layers.len() {
            n_used += self.fill_layer(facts, index)?;
        }
        if n_used != self.header.tensors.len() {
            return Err(self.unused(facts));
        }
        // No overflow: tensors do not overlap and all end below 2^63.
        let all_bytes: u64 = self.header.tensors.iter().map(|tensor| tensor.n_bytes).fold(0, u64::saturating_add);
        let n_experts = facts.experts.map_or(0, |e| u64::from(e.n_experts));
        let top_k = facts.experts.map_or(0, |e| u64::from(e.top_k));
        let one_of_each: u64 = facts.layers.iter().map(LayerFacts::expert_bytes).fold(0, u64::saturating_add);
        facts.expert_weight_bytes = one_of_each.saturating_mul(n_experts);
        facts.token_cycle_bytes = one_of_each.saturating_mul(top_k);
        facts.dense_weight_bytes = all_bytes.saturating_sub(facts.expert_weight_bytes);
        facts.n_parameters =
            self.header.tensors.iter().map(|t| t.dims.iter().product::<u64>()).fold(0, u64::saturating_add);
        Ok(())
    }

    /// Checks one layer, fills in its bytes and counts its tensors.
    fn fill_layer(&self, facts: &mut ModelFacts, index: usize) -> Result<usize, FactsError> {
        let layer = facts.layers[index];
        let (mut n_used, mut dense_bytes) = (0, 0_u64);
        let mut matrices = [None; 3];
        for row in &LAYER {
            let name = format!("blk.{index}.{}", row.name);
            let Some(tensor) = self.check(row, &name, facts, Some(&layer))? else { continue };
            n_used += 1;
            let place = match row.name {
                "ffn_gate_exps.weight" => 0,
                "ffn_up_exps.weight" => 1,
                "ffn_down_exps.weight" => 2,
                _ => {
                    dense_bytes = dense_bytes.saturating_add(tensor.n_bytes);
                    continue;
                }
            };
            let n_experts = facts.experts.map_or(1, |e| u64::from(e.n_experts));
            matrices[place] = Some(ExpertMatrix { ty: tensor.ty, n_bytes: tensor.n_bytes / n_experts });
        }
        let layer = &mut facts.layers[index];
        layer.dense_bytes = dense_bytes;
        if let [Some(gate), Some(up), Some(down)] = matrices {
            layer.experts = Some(ExpertMatrices { gate, up, down });
        }
        Ok(n_used)
    }

    /// The tensor of a row: `None` when it is absent and may be, or has no place in this model.
    fn check(
        &self,
        row: &Row,
        name: &str,
        facts: &ModelFacts,
        layer: Option<&LayerFacts>,
    ) -> Result<Option<&'a TensorInfo>, FactsError> {
        let has_experts = facts.experts.is_some();
        let (wanted, allowed) = match row.need {
            Need::Always => (true, true),
            Need::Dense => (!has_experts, !has_experts),
            Need::Experts => (has_experts, has_experts),
            Need::Optional => (false, true),
        };
        if !row.archs.contains(&self.arch) || !allowed {
            return Ok(None);
        }
        let Some(tensor) = self.header.tensor(name) else {
            return if wanted { Err(self.missing(name)) } else { Ok(None) };
        };
        let mut dims = row.dims.map(|size| size.of(facts, layer)).to_vec();
        // Trailing ones need not be written.
        while dims.len() > 1 && dims.last() == Some(&1) {
            dims.pop();
        }
        let mut found = tensor.dims.clone();
        while found.len() > 1 && found.last() == Some(&1) {
            found.pop();
        }
        if found != dims {
            let why = format!("is {}, the metadata asks for {}", by(&found), by(&dims));
            return Err(FactsError::Tensor { name: name.into(), why });
        }
        self.check_type(tensor)?;
        Ok(Some(tensor))
    }

    /// Vectors are read as they are: norms, biases and frequency factors in f32.
    fn check_type(&self, tensor: &TensorInfo) -> Result<(), FactsError> {
        if tensor.dims.len() == 1 && tensor.ty != TensorType::F32 {
            let why = format!("is stored as {}; vectors must be F32", tensor.ty);
            return Err(FactsError::Tensor { name: tensor.name.clone(), why });
        }
        Ok(())
    }

    fn missing(&self, name: &str) -> FactsError {
        let Some(layer) = name.strip_suffix("_exps.weight") else {
            return FactsError::MissingTensor { name: name.into() };
        };
        // The layout before experts were joined: blk.0.ffn_gate.0.weight.
        let old = format!("{layer}.0.weight");
        if self.header.tensor(&old).is_some() {
            let why = "is the old layout with one tensor for each expert; convert the model again".into();
            return FactsError::Tensor { name: old, why };
        }
        FactsError::MissingTensor { name: name.into() }
    }

    /// The error for the first tensor that no row names.
    fn unused(&self, facts: &ModelFacts) -> FactsError {
        let is_used = |name: &str| {
            let in_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let (rows, name): (&[Row], &str) = match in_layer {
                Some((number, name)) => match number.parse::<usize>() {
                    Ok(n) if n < facts.layers.len() && n.to_string() == number => (&LAYER, name),
                    Ok(_) | Err(_) => return false,
                },
                None => (&MODEL, name),
            };
            let has_experts = facts.experts.is_some();
            rows.iter().any(|row| {
                let allowed = match row.need {
                    Need::Always | Need::Optional => true,
                    Need::Dense => !has_experts,
                    Need::Experts => has_experts,
                };
                row.name == name && allowed && row.archs.contains(&self.arch)
            })
        };
        let name = self.header.tensors.iter().map(|t| &t.name).find(|name| !is_used(name));
        FactsError::UnusedTensor { name: name.cloned().unwrap_or_default(), arch: self.arch }
    }
}

impl Size {
    fn of(self, facts: &ModelFacts, layer: Option<&LayerFacts>) -> u64 {
        let of_layer = |size: &dyn Fn(&LayerFacts) -> u64| layer.map_or(1, size);
        let of_experts = |size: &dyn Fn(&super::ExpertFacts) -> u32| facts.experts.as_ref().map_or(1, size).into();
        // No overflow: every factor is under 2^20.
        match self {
            Self::Embd => facts.n_embd.into(),
            Self::Vocab => facts.n_vocab.into(),
            Self::Q => of_layer(&|l| u64::from(l.n_heads) * u64::from(l.k_dim)),
            Self::K => of_layer(&|l| u64::from(l.n_kv_heads) * u64::from(l.k_dim)),
            Self::V => of_layer(&|l| u64::from(l.n_kv_heads) * u64::from(l.v_dim)),
            Self::AttnOut => of_layer(&|l| u64::from(l.n_heads) * u64::from(l.v_dim)),
            Self::KDim => of_layer(&|l| l.k_dim.into()),
            Self::Ff => of_layer(&|l| l.n_ff.into()),
            Self::ExpertFf => of_experts(&|e| e.n_ff),
            Self::Experts => of_experts(&|e| e.n_experts),
            Self::HalfRope => u64::from(facts.rope.dim / 2),
            Self::One => 1,
        }
    }
}

/// `576 × 1536`.
fn by(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")
}
