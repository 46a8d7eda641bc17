//! Keys that change what a model computes in a way this build does not know: refused by name rather than ignored.

use super::keys::Keys;
use super::{Arch, FactsError};
use crate::gguf::{Scalar, Value};

/// The values of a key that mean "not used".
#[derive(Clone, Copy)]
enum Harmless {
    /// 0 or false.
    Zero,
    /// 0 or 1: a factor that is absent or changes nothing.
    ZeroOrOne,
    /// true.
    True,
    /// 0, or a window that the context never leaves.
    ZeroOrWholeContext,
}

/// One row: the key's suffix, what is harmless, what it would need, and the architectures where it is computed.
struct Row {
    suffix: &'static str,
    harmless: Harmless,
    needs: &'static str,
    known_in: &'static [Arch],
}

const fn row(suffix: &'static str, harmless: Harmless, needs: &'static str) -> Row {
    Row { suffix, harmless, needs, known_in: &[] }
}

/// Found in converters' lists of keys; everything that touches the forward pass and is not in [`super::read`].
static TABLE: &[Row] = &[
    row("attn_logit_softcapping", Harmless::Zero, "asks for a soft cap on attention"),
    row("final_logit_softcapping", Harmless::Zero, "asks for a soft cap on the logits"),
    row("router_logit_softcapping", Harmless::Zero, "asks for a soft cap on the router"),
    row("attention.clamp_kqv", Harmless::Zero, "asks for clamped q, k and v"),
    row("attention.max_alibi_bias", Harmless::Zero, "asks for ALiBi positions"),
    row("attention.causal", Harmless::True, "asks for attention in both directions"),
    row("attention.temperature_length", Harmless::Zero, "asks for attention scaled by position"),
    row("attention.temperature_scale", Harmless::Zero, "asks for attention scaled by position"),
    row("attention.group_norm_groups", Harmless::Zero, "asks for group norms"),
    row("attention.layer_norm_epsilon", Harmless::Zero, "asks for layer norms"),
    row("attention.q_lora_rank", Harmless::Zero, "asks for latent attention"),
    row("attention.kv_lora_rank", Harmless::Zero, "asks for latent attention"),
    Row {
        known_in: &[Arch::Gemma3],
        ..row("attention.sliding_window", Harmless::ZeroOrWholeContext, "asks for a sliding window")
    },
    row("attention.chunk_size", Harmless::Zero, "asks for attention in chunks"),
    row("attention.shared_kv_layers", Harmless::Zero, "asks for layers that share K and V"),
    row("use_parallel_residual", Harmless::Zero, "asks for parallel residuals"),
    row("swin_norm", Harmless::Zero, "asks for norms after the residual"),
    row("logit_scale", Harmless::ZeroOrOne, "asks for scaled logits"),
    row("residual_scale", Harmless::ZeroOrOne, "asks for scaled residuals"),
    row("embedding_scale", Harmless::ZeroOrOne, "asks for a scaled embedding"),
    row("pooling_type", Harmless::Zero, "asks for an embedding model"),
    row("expert_shared_count", Harmless::Zero, "asks for shared experts"),
    row("expert_shared_feed_forward_length", Harmless::Zero, "asks for shared experts"),
    row("expert_group_count", Harmless::ZeroOrOne, "asks for groups of experts"),
    row("expert_weights_scale", Harmless::ZeroOrOne, "asks for scaled expert weights"),
    row("expert_gating_func", Harmless::ZeroOrOne, "asks for a router that is no softmax"),
    row("leading_dense_block_count", Harmless::Zero, "asks for dense layers before the experts"),
    row("interleave_moe_layer_step", Harmless::ZeroOrOne, "asks for experts in some layers only"),
    row("moe_every_n_layers", Harmless::ZeroOrOne, "asks for experts in some layers only"),
    row("nextn_predict_layers", Harmless::Zero, "asks for layers that draft"),
    row("deepstack_layer_count", Harmless::Zero, "asks for images"),
];

/// Refuses the first key of the table whose value is not harmless.
pub(super) fn check(keys: &Keys<'_>) -> Result<(), FactsError> {
    let n_context = keys.metadata.opt_u32(&keys.key("context_length"))?.unwrap_or(u32::MAX);
    for row in TABLE.iter().filter(|row| !row.known_in.contains(&keys.arch)) {
        let key = keys.key(row.suffix);
        match keys.metadata.get(&key) {
            None => {}
            Some(Value::Scalar(_, scalar)) if is_harmless(*scalar, row.harmless, n_context) => {}
            Some(Value::Scalar(_, scalar)) => {
                return Err(FactsError::Unsupported { key, why: format!("{} ({scalar})", row.needs) });
            }
            Some(Value::Text(_) | Value::Numbers(_) | Value::Strings(_)) => {
                return Err(FactsError::Unsupported { key, why: row.needs.into() });
            }
        }
    }
    Ok(())
}

fn is_harmless(scalar: Scalar, harmless: Harmless, n_context: u32) -> bool {
    let number = match scalar {
        Scalar::Bool(v) => f64::from(u8::from(v)),
        Scalar::Unsigned(v) => v as f64,
        Scalar::Signed(v) => v as f64,
        Scalar::Float(v) => v,
    };
    match harmless {
        Harmless::Zero => number == 0.0,
        Harmless::ZeroOrOne => number == 0.0 || number == 1.0,
        Harmless::True => number == 1.0,
        Harmless::ZeroOrWholeContext => number == 0.0 || number >= f64::from(n_context),
    }
}
