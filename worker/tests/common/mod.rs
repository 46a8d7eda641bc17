//! What several of this crate's tests share: models, engines, logits by different routes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses a part")]

use plimsoll_kernels::backend::KvType;
use plimsoll_kernels::cpu::{Cpu, Simd};
use plimsoll_tests::fixture::cache;
use plimsoll_tests::fixture::tiny::{Tiny, Weights};
use plimsoll_worker::engine::{Engine, Flow, Segment};
use plimsoll_worker::sampler::Params;
use plimsoll_worker::session::Session;
use plimsoll_worker::start::{self, OpenModel, Plan};
use std::path::{Path, PathBuf};

/// A plan for tests: small, but with room for chunks of any size used here.
pub(crate) fn plan(path: &Path) -> Plan {
    Plan {
        model_path: path.to_owned(),
        n_ctx_tokens: 256,
        max_sessions: 4,
        kv_type: KvType::F16,
        n_threads: 2,
        prefill_chunk_tokens: 128,
        simd: Simd::Auto,
    }
}

pub(crate) fn engine(plan: &Plan) -> Engine<Cpu> {
    let model = OpenModel::open(&plan.model_path).unwrap();
    start::load_engine(&model, plan, &mut |_, _| Flow::Continue).unwrap()
}

pub(crate) fn tiny_path(tiny: Tiny) -> PathBuf {
    cache::tiny(tiny, Weights::Mixed, 1).unwrap()
}

/// `n` ids spread over the vocabulary, none of them special.
pub(crate) fn some_ids(n: usize, n_vocab: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| (((i + 3) * (7919 + 2 * seed) + i * i) % (n_vocab - 10) + 5) as u32).collect()
}

pub(crate) fn session(engine: &mut Engine<Cpu>, ids: &[u32]) -> Session<Cpu> {
    let mut session = engine.session(Params::greedy()).unwrap();
    session.extend(ids);
    session
}

/// The bits of every row's logits, hashed (FNV-1a), when `ids` are computed in chunks of `chunk`.
pub(crate) fn rows_by_chunk(engine: &mut Engine<Cpu>, ids: &[u32], chunk: usize) -> Vec<u64> {
    let mut session = session(engine, ids);
    let mut rows = Vec::new();
    while !session.pending().is_empty() {
        let n_tokens = session.pending().len().min(chunk);
        let segment = Segment { session: &mut session, n_tokens, logits: 0..n_tokens };
        engine.forward(&mut [segment], &mut |_| Flow::Continue, &mut |l| rows.push(hash(l.values))).unwrap();
    }
    rows
}

/// The logits after the last of `ids`.
pub(crate) fn last_logits(engine: &mut Engine<Cpu>, session: &mut Session<Cpu>) -> Vec<f32> {
    let mut last = Vec::new();
    while !session.pending().is_empty() {
        let n_tokens = session.pending().len().min(128);
        engine
            .forward(&mut [Segment::next(session, n_tokens)], &mut |_| Flow::Continue, &mut |l| {
                last = l.values.to_vec();
            })
            .unwrap();
    }
    last
}

pub(crate) fn hash(values: &[f32]) -> u64 {
    values
        .iter()
        .flat_map(|v| v.to_bits().to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
