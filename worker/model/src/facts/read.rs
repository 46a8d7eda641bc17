//! From a header to [`ModelFacts`].

use super::keys::Keys;
use super::tensors::Tensors;
use super::{Arch, ExpertFacts, FactsError, LayerFacts, ModelFacts, RopeFacts, RopeScaling, refuse};
use crate::gguf::Header;
use plimsoll_config::limits::{MAX_MODEL_EXPERTS, MAX_MODEL_LAYERS, MAX_MODEL_WIDTH, MAX_VOCAB_TOKENS};

/// Base of rotary positions when the file has none: the value of the first paper and of every converter.
const DEFAULT_ROPE_BASE: f64 = 10_000.0;
/// Gemma 3: base of the layers with a window; the file only holds the other one.
const GEMMA3_LOCAL_ROPE_BASE: f64 = 10_000.0;
/// Gemma 3: every sixth layer sees everything.
const GEMMA3_WINDOW_PATTERN: u32 = 6;
/// Gemma 3 27B, told by its layers, scales q·k by its width per head instead of the head dimension.
const GEMMA3_27B_LAYERS: u32 = 62;

/// What attention looks like, layer by layer.
struct Heads {
    n_heads: Vec<u32>,
    n_kv_heads: Vec<u32>,
    k_dim: u32,
    v_dim: u32,
}

impl ModelFacts {
    /// Reads a header. Data is not needed.
    ///
    /// # Errors
    /// A [`FactsError`] that names the key or tensor.
    pub fn from_header(header: &Header) -> Result<Self, FactsError> {
        let metadata = &header.metadata;
        let keys = Keys { metadata, arch: arch(header)? };
        refuse::check(&keys)?;
        let n_layers = keys.count("block_count", MAX_MODEL_LAYERS)?;
        let n_embd = keys.count("embedding_length", MAX_MODEL_WIDTH)?;
        let n_ctx_train = keys.count("context_length", u32::MAX)?;
        let n_ff = keys.per_layer(
            "feed_forward_length",
            n_layers,
            MAX_MODEL_WIDTH,
            moe_ff_default(&keys, n_layers)?.as_deref(),
        )?;
        let heads = heads(&keys, n_layers, n_embd)?;
        let experts = experts(&keys, n_ff.iter().copied().max().unwrap_or(0))?;
        let tensors = Tensors { header, arch: keys.arch };
        let n_vocab = n_vocab(&tensors, header, n_embd)?;
        let rope = rope(&keys, &heads, header)?;
        let mut facts = Self {
            arch: keys.arch,
            name: metadata.opt_str("general.name")?.map(Into::into),
            size_label: metadata.opt_str("general.size_label")?.map(Into::into),
            file_type: metadata.opt_u32("general.file_type")?,
            n_layers,
            n_embd,
            n_ctx_train,
            n_vocab,
            layers: layers(&keys, &heads, &n_ff, experts.is_some(), rope.base)?,
            rope,
            attention_scale: attention_scale(&keys, &heads, n_layers, n_embd)?,
            rms_eps: rms_eps(&keys)?,
            embedding_scale: if keys.arch == Arch::Gemma3 { (n_embd as f32).sqrt() } else { 1.0 },
            experts,
            tied_head: header.tensor("output.weight").is_none(),
            has_chat_template: metadata.opt_str("tokenizer.chat_template")?.is_some(),
            dense_weight_bytes: 0,
            expert_weight_bytes: 0,
            token_cycle_bytes: 0,
            n_parameters: 0,
        };
        tensors.fill(&mut facts)?;
        Ok(facts)
    }
}

fn arch(header: &Header) -> Result<Arch, FactsError> {
    let found = header.metadata.str("general.architecture")?;
    Arch::ALL
        .into_iter()
        .find(|arch| arch.name() == found)
        .ok_or_else(|| FactsError::UnknownArch { found: found.escape_debug().to_string() })
}

/// A model with experts everywhere may leave the dense width out.
fn moe_ff_default(keys: &Keys<'_>, n_layers: u32) -> Result<Option<Vec<u32>>, FactsError> {
    Ok(keys.opt_count("expert_feed_forward_length", MAX_MODEL_WIDTH)?.map(|_| vec![0; n_layers as usize]))
}

fn heads(keys: &Keys<'_>, n_layers: u32, n_embd: u32) -> Result<Heads, FactsError> {
    let n_heads = keys.per_layer("attention.head_count", n_layers, MAX_MODEL_WIDTH, None)?;
    let n_kv_heads = keys.per_layer("attention.head_count_kv", n_layers, MAX_MODEL_WIDTH, Some(&n_heads))?;
    for (q, kv) in n_heads.iter().zip(&n_kv_heads) {
        if *q == 0 || *kv == 0 || q % kv != 0 {
            let why = format!("gives {kv} key/value heads for {q} heads; they must divide");
            return Err(FactsError::Invalid { key: keys.key("attention.head_count_kv"), why });
        }
    }
    let default_dim = n_embd / n_heads.first().copied().unwrap_or(1).max(1);
    let dim = |suffix: &str| match keys.opt_count(suffix, MAX_MODEL_WIDTH)? {
        Some(dim) => Ok(dim),
        None if default_dim > 0 => Ok(default_dim),
        None => {
            Err(FactsError::Invalid { key: keys.key("attention.head_count"), why: "is over the model's width".into() })
        }
    };
    let (k_dim, v_dim) = (dim("attention.key_length")?, dim("attention.value_length")?);
    Ok(Heads { n_heads, n_kv_heads, k_dim, v_dim })
}

fn experts(keys: &Keys<'_>, dense_ff: u32) -> Result<Option<ExpertFacts>, FactsError> {
    let n_experts = keys.metadata.opt_u32(&keys.key("expert_count"))?.unwrap_or(0);
    match (n_experts, keys.arch) {
        (0, Arch::Qwen3Moe) => {
            let why = "is 0 or absent in a model of experts".into();
            return Err(FactsError::Invalid { key: keys.key("expert_count"), why });
        }
        (0, Arch::Llama | Arch::Gemma3 | Arch::Qwen2 | Arch::Qwen3) => return Ok(None),
        (_, Arch::Llama | Arch::Qwen3Moe) => {}
        (_, Arch::Gemma3 | Arch::Qwen2 | Arch::Qwen3) => {
            let why = format!("asks for {n_experts} experts in \"{}\"", keys.arch.name());
            return Err(FactsError::Unsupported { key: keys.key("expert_count"), why });
        }
    }
    let n_experts = keys.count("expert_count", MAX_MODEL_EXPERTS)?;
    let top_k = keys.count("expert_used_count", n_experts)?;
    let n_ff = match keys.opt_count("expert_feed_forward_length", MAX_MODEL_WIDTH)? {
        Some(n_ff) => n_ff,
        None if dense_ff > 0 => dense_ff,
        None => keys.count("feed_forward_length", MAX_MODEL_WIDTH)?,
    };
    let normalise_weights = keys.metadata.opt_bool(&keys.key("expert_weights_norm"))?.unwrap_or(true);
    Ok(Some(ExpertFacts { n_experts, top_k, n_ff, normalise_weights }))
}

fn n_vocab(tensors: &Tensors<'_>, header: &Header, n_embd: u32) -> Result<u32, FactsError> {
    let embedding = tensors.need("token_embd.weight")?;
    let n_rows = embedding.n_rows();
    if embedding.n_cols() != u64::from(n_embd) || n_rows == 0 || n_rows > MAX_VOCAB_TOKENS as u64 {
        let why =
            format!("is {} × {n_rows}; width {n_embd} and 1 to {MAX_VOCAB_TOKENS} rows are needed", embedding.n_cols());
        return Err(FactsError::Tensor { name: embedding.name.clone(), why });
    }
    if let Some(tokens) = header.metadata.opt_strings("tokenizer.ggml.tokens")?
        && tokens.len() as u64 > n_rows
    {
        let why = format!("has {n_rows} rows for {} tokens", tokens.len());
        return Err(FactsError::Tensor { name: embedding.name.clone(), why });
    }
    // Fits: at most MAX_VOCAB_TOKENS.
    Ok(n_rows as u32)
}

fn rope(keys: &Keys<'_>, heads: &Heads, header: &Header) -> Result<RopeFacts, FactsError> {
    let dim = keys.opt_count("rope.dimension_count", MAX_MODEL_WIDTH)?.unwrap_or(heads.k_dim);
    if dim > heads.k_dim || dim % 2 != 0 {
        let why = format!("is {dim}; an even number up to the head dimension {} is needed", heads.k_dim);
        return Err(FactsError::Invalid { key: keys.key("rope.dimension_count"), why });
    }
    Ok(RopeFacts {
        dim,
        base: keys.opt_positive("rope.freq_base")?.unwrap_or(DEFAULT_ROPE_BASE),
        scaling: rope_scaling(keys)?,
        has_freq_factors: header.tensor("rope_freqs.weight").is_some(),
    })
}

fn rope_scaling(keys: &Keys<'_>) -> Result<RopeScaling, FactsError> {
    let key = keys.key("rope.scaling.type");
    let factor = match keys.opt_positive("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // Older converters.
        None => keys.opt_positive("rope.scale_linear")?,
    };
    let kind = keys.metadata.opt_str(&key)?;
    match (kind, factor) {
        (Some("none"), _) | (None, None) => Ok(RopeScaling::None),
        (Some("linear") | None, Some(1.0)) => Ok(RopeScaling::None),
        (Some("linear") | None, Some(factor)) => Ok(RopeScaling::Linear { factor }),
        (Some("linear"), None) => Ok(RopeScaling::None),
        (Some("yarn"), factor) => Ok(RopeScaling::Yarn {
            factor: factor.unwrap_or(1.0),
            original_context_tokens: match keys.opt_count("rope.scaling.original_context_length", u32::MAX)? {
                Some(tokens) => tokens,
                None => keys.count("context_length", u32::MAX)?,
            },
            attn_factor: keys.opt_positive("rope.scaling.attn_factor")?.unwrap_or(1.0),
            beta_fast: keys.opt_positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.opt_positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        }),
        (Some(other), _) => {
            let why = format!("asks for positions scaled by \"{}\"", other.escape_debug());
            Err(FactsError::Unsupported { key, why })
        }
    }
}

fn attention_scale(keys: &Keys<'_>, heads: &Heads, n_layers: u32, n_embd: u32) -> Result<f32, FactsError> {
    if let Some(scale) = keys.opt_positive("attention.scale")? {
        return Ok(scale as f32);
    }
    let n_heads = heads.n_heads.first().copied().unwrap_or(1);
    let dim = match keys.arch {
        Arch::Gemma3 if n_layers == GEMMA3_27B_LAYERS => n_embd / n_heads.max(1),
        Arch::Gemma3 | Arch::Llama | Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen3Moe => heads.k_dim,
    };
    Ok(1.0 / (dim.max(1) as f32).sqrt())
}

fn rms_eps(keys: &Keys<'_>) -> Result<f32, FactsError> {
    let key = keys.key("attention.layer_norm_rms_epsilon");
    let eps = keys.metadata.f32(&key)?;
    if (0.0..=1.0).contains(&eps) {
        Ok(eps)
    } else {
        Err(FactsError::Invalid { key, why: format!("is {eps}; 0 to 1 are possible") })
    }
}

/// Layer by layer: `None` where it sees everything.
fn windows(keys: &Keys<'_>, n_layers: u32) -> Result<Vec<Option<u32>>, FactsError> {
    if keys.arch != Arch::Gemma3 {
        return Ok(vec![None; n_layers as usize]);
    }
    let Some(window) = keys.opt_count("attention.sliding_window", u32::MAX)? else {
        return Err(FactsError::Metadata(crate::gguf::MetadataError::Missing {
            key: keys.key("attention.sliding_window"),
        }));
    };
    let pattern =
        keys.opt_count("attention.sliding_window_pattern", MAX_MODEL_LAYERS)?.unwrap_or(GEMMA3_WINDOW_PATTERN);
    Ok((1..=n_layers).map(|number| (number % pattern != 0).then_some(window)).collect())
}

fn layers(
    keys: &Keys<'_>,
    heads: &Heads,
    n_ff: &[u32],
    has_experts: bool,
    rope_base: f64,
) -> Result<Vec<LayerFacts>, FactsError> {
    let windows = windows(keys, heads.n_heads.len() as u32)?;
    let local_base = keys.opt_positive("rope.freq_base_swa")?.unwrap_or(GEMMA3_LOCAL_ROPE_BASE);
    let per_layer = heads.n_heads.iter().zip(&heads.n_kv_heads).zip(n_ff).zip(windows);
    let layers = per_layer.map(|(((n_heads, n_kv_heads), n_ff), window)| LayerFacts {
        n_heads: *n_heads,
        n_kv_heads: *n_kv_heads,
        k_dim: heads.k_dim,
        v_dim: heads.v_dim,
        window,
        rope_base: if window.is_some() { local_base } else { rope_base },
        rope_scaled: window.is_none(),
        n_ff: if has_experts { 0 } else { *n_ff },
        experts: None,
        dense_bytes: 0,
    });
    let layers: Vec<_> = layers.collect();
    if !has_experts && layers.iter().any(|layer| layer.n_ff == 0) {
        let why = "is 0 in a layer without experts".into();
        return Err(FactsError::Invalid { key: keys.key("feed_forward_length"), why });
    }
    Ok(layers)
}
