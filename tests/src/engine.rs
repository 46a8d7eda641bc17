//! The engine in the test's own process: logits of given ids.

use plimsoll_kernels::backend::{Backend, KvType};
use plimsoll_kernels::cpu::{Cpu, CpuOptions, Simd};
use plimsoll_model::tokenizer::Tokenizer;
use plimsoll_worker::Engine;
use plimsoll_worker::engine::{EngineOptions, Flow, Segment};
use plimsoll_worker::sampler::Params;
use plimsoll_worker::start::OpenModel;
use std::path::Path;

/// Most prompt tokens in one step.
const CHUNK: usize = 64;

/// Opens a model.
///
/// # Panics
/// When it can't be opened.
#[must_use]
pub fn open(path: &Path) -> OpenModel {
    OpenModel::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The model's tokenizer.
///
/// # Panics
/// When the file has none that is understood.
#[must_use]
pub fn tokenizer(model: &OpenModel) -> Tokenizer {
    model.tokenizer().unwrap_or_else(|error| panic!("{error}"))
}

/// A CPU with two threads and the best kernels that it has.
#[must_use]
pub fn cpu() -> Cpu {
    Cpu::new(CpuOptions { n_threads: 2, simd: Simd::Auto })
}

/// The model on a device, for sessions of up to `n_ctx_tokens`.
///
/// # Panics
/// When it can't be loaded.
#[must_use]
pub fn load<B: Backend>(device: B, model: &OpenModel, n_ctx_tokens: usize) -> Engine<B> {
    let options = EngineOptions { n_ctx_tokens: n_ctx_tokens as u32, max_step_tokens: CHUNK, kv_type: KvType::F16 };
    let loaded = Engine::load(device, &model.file, &model.facts, options, &mut |_, _| Flow::Continue);
    loaded.unwrap_or_else(|error| panic!("{error}"))
}

/// Logits after each of the ids from the one at `first` on: `[n_ids − first][n_vocab]`.
///
/// # Panics
/// When a step fails.
#[must_use]
pub fn logits_from<B: Backend>(engine: &mut Engine<B>, ids: &[u32], first: usize) -> Vec<Vec<f32>> {
    let mut session = engine.session(Params::greedy()).unwrap_or_else(|error| panic!("{error}"));
    session.extend(ids);
    let mut rows = Vec::new();
    while !session.pending().is_empty() {
        let n_tokens = session.pending().len().min(CHUNK);
        let wanted = first.saturating_sub(session.n_cached()).min(n_tokens)..n_tokens;
        let mut segments = [Segment { session: &mut session, n_tokens, logits: wanted }];
        let step =
            engine.forward(&mut segments, &mut |_| Flow::Continue, &mut |logits| rows.push(logits.values.to_vec()));
        step.unwrap_or_else(|error| panic!("{error}"));
    }
    rows
}

/// The likeliest id; the lower one of two equal ones.
#[must_use]
pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (id, x)| if *x > best.1 { (id, *x) } else { best });
    best.0 as u32
}
