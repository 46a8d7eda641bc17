//! From a model's facts to the sizes that a plan is made of. From the header alone; no tensor is read.

use plimsoll_config::limits::DEFAULT_PREFILL_CHUNK;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::plan::{Experts, KvLayer, LayerSizes, ModelSizes};
use plimsoll_model::facts::{self, LayerFacts, ModelFacts};
use plimsoll_model::gguf::Header;

/// The sizes of a model whose files have `file_bytes` together.
pub fn sizes(header: &Header, facts: &ModelFacts, file_bytes: u64) -> ModelSizes {
    let tensor = |name: &str| {
        let found = header.tensors.iter().find(|tensor| tensor.name == name);
        Bytes(found.map_or(0, |tensor| tensor.n_bytes))
    };
    let token_embedding = tensor("token_embd.weight");
    let layer = |layer: &LayerFacts| LayerSizes {
        dense: Bytes(layer.dense_bytes),
        kv: kv_layer(facts, layer),
        expert: layer.experts.map(|experts| Bytes(experts.n_bytes())),
    };
    ModelSizes {
        file_bytes: Bytes(file_bytes),
        dense_weights: Bytes(facts.dense_weight_bytes),
        token_embedding,
        output: if facts.tied_head { token_embedding } else { tensor("output.weight") },
        layers: facts.layers.iter().map(layer).collect(),
        // No card yet: a prompt's chunk borrows no slots and allocates nothing there.
        experts: facts.experts.map(|e| Experts { per_layer: e.n_experts, top_k: e.top_k, loan_slots: 0 }),
        n_ctx_train: Tokens(facts.n_ctx_train),
        activations: Bytes(facts.activation_bytes(DEFAULT_PREFILL_CHUNK, 1)),
        prompt_path: Bytes::ZERO,
        image_encoder: None,
        speculation: None,
    }
}

/// Block types exist only where every head is made of whole blocks.
fn kv_layer(facts: &ModelFacts, layer: &LayerFacts) -> KvLayer {
    let of = |kv_type| facts.kv_type_fits(kv_type).then(|| Bytes(layer.kv_bytes_per_token(kv_type)));
    KvLayer {
        f16: Bytes(layer.kv_bytes_per_token(facts::KvType::F16)),
        q8_0: of(facts::KvType::Q8_0),
        q4_0: of(facts::KvType::Q4_0),
        window: layer.window.map(Tokens),
    }
}
