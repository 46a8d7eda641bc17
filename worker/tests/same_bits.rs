//! Placement never changes a token: the same logit bits for every chunk size, batch, thread count and kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{engine, hash, plan, rows_by_chunk, session, some_ids, tiny_path};
use plimsoll_kernels::backend::KvType;
use plimsoll_kernels::cpu::{Cpu, Simd};
use plimsoll_tests::fixture::tiny::Tiny;
use plimsoll_tests::places::Model;
use plimsoll_worker::engine::{Engine, Flow, ForwardError, Segment};
use plimsoll_worker::start::Plan;
use std::path::Path;

/// 150 tokens cross two page borders and, in the tiny Gemma, many windows.
const N_TOKENS: usize = 150;
const CHUNKS: [usize; 3] = [7, 64, 128];

fn check_chunks_and_threads(plan: &Plan, n_tokens: usize) {
    let mut engine = engine(plan);
    let ids = some_ids(n_tokens, engine.n_vocab(), 0);
    let decoded = rows_by_chunk(&mut engine, &ids, 1);
    assert_eq!(decoded.len(), n_tokens);
    for chunk in CHUNKS {
        let rows = rows_by_chunk(&mut engine, &ids, chunk);
        let first = rows.iter().zip(&decoded).position(|(a, b)| a != b);
        assert_eq!(first, None, "{}: row with other bits in chunks of {chunk}", plan.model_path.display());
    }
    let mut alone = self::engine(&Plan { n_threads: 1, ..plan.clone() });
    assert_eq!(rows_by_chunk(&mut alone, &ids, 64), decoded, "{}: 1 thread", plan.model_path.display());
}

/// Four sessions in one step, with segments that never begin or end together, against each alone.
fn check_batches(path: &Path, n_tokens: usize) {
    let mut engine = engine(&plan(path));
    let prompts: Vec<Vec<u32>> = (1..=4).map(|s| some_ids(n_tokens + 3 * s, engine.n_vocab(), s)).collect();
    let expect: Vec<Vec<u64>> = prompts.iter().map(|ids| rows_by_chunk(&mut engine, ids, 64)).collect();
    assert_eq!(rows_together(&mut engine, &prompts), expect, "{}", path.display());
}

fn rows_together(engine: &mut Engine<Cpu>, prompts: &[Vec<u32>]) -> Vec<Vec<u64>> {
    let mut sessions: Vec<_> = prompts.iter().map(|ids| session(engine, ids)).collect();
    let mut rows = vec![Vec::new(); prompts.len()];
    for step in 0.. {
        let mut whose = Vec::new();
        let mut segments = Vec::new();
        for (i, session) in sessions.iter_mut().enumerate() {
            let n_pending = session.pending().len();
            if n_pending > 0 {
                let n_tokens = [1, 5, 17, 30][(i + step) % 4].min(n_pending);
                whose.push(i);
                segments.push(Segment { session, n_tokens, logits: 0..n_tokens });
            }
        }
        if segments.is_empty() {
            break;
        }
        engine
            .forward(&mut segments, &mut |_| Flow::Continue, &mut |l| rows[whose[l.segment]].push(hash(l.values)))
            .unwrap();
    }
    rows
}

#[test]
fn chunks_and_threads_in_every_architecture() {
    for tiny in Tiny::ALL {
        check_chunks_and_threads(&plan(&tiny_path(tiny)), N_TOKENS);
    }
}

#[test]
fn chunks_and_threads_with_quantised_k_and_v() {
    for kv_type in [KvType::Q8_0, KvType::Q4_0] {
        for tiny in [Tiny::Llama, Tiny::Gemma3] {
            check_chunks_and_threads(&Plan { kv_type, ..plan(&tiny_path(tiny)) }, N_TOKENS);
        }
    }
}

#[test]
fn batches_in_every_architecture() {
    for tiny in Tiny::ALL {
        check_batches(&tiny_path(tiny), 60);
    }
}

#[test]
fn portable_kernels_give_the_same_bits() {
    for tiny in Tiny::ALL {
        let path = tiny_path(tiny);
        let mut fast = engine(&plan(&path));
        let mut portable = engine(&Plan { simd: Simd::Portable, ..plan(&path) });
        let ids = some_ids(40, fast.n_vocab(), 0);
        assert_eq!(rows_by_chunk(&mut fast, &ids, 13), rows_by_chunk(&mut portable, &ids, 13), "{}", tiny.name());
    }
}

#[test]
fn chunks_threads_and_batches_in_a_real_model() {
    let path = Model::SmolLm2.path();
    check_chunks_and_threads(&plan(&path), N_TOKENS);
    check_batches(&path, 20);
}

#[test]
fn portable_kernels_give_the_same_bits_in_a_real_model() {
    let path = Model::SmolLm2.path();
    let mut fast = engine(&plan(&path));
    let mut portable = engine(&Plan { simd: Simd::Portable, ..plan(&path) });
    let ids = some_ids(9, fast.n_vocab(), 0);
    assert_eq!(rows_by_chunk(&mut fast, &ids, 8), rows_by_chunk(&mut portable, &ids, 8));
}

#[test]
fn a_stopped_step_leaves_no_trace() {
    for tiny in Tiny::ALL {
        let mut engine = engine(&plan(&tiny_path(tiny)));
        let ids = some_ids(100, engine.n_vocab(), 0);
        let expect = rows_by_chunk(&mut engine, &ids, 50);
        let mut session = session(&mut engine, &ids);
        let mut rows = Vec::new();
        while !session.pending().is_empty() {
            // Twice in vain, at a first and at a late hand-over, then for good.
            for stop_at in [0, 3, usize::MAX] {
                let mut n_points = 0;
                let mut hook = |_| {
                    n_points += 1;
                    if n_points > stop_at { Flow::Stop } else { Flow::Continue }
                };
                let n_tokens = session.pending().len().min(50);
                let segment = Segment { session: &mut session, n_tokens, logits: 0..n_tokens };
                let mut step_rows = Vec::new();
                let outcome = engine.forward(&mut [segment], &mut hook, &mut |l| step_rows.push(hash(l.values)));
                match outcome {
                    Ok(()) => rows.extend(step_rows),
                    Err(error) => assert_eq!(error, ForwardError::Stopped),
                }
            }
        }
        assert_eq!(rows, expect, "{}", tiny.name());
    }
}

#[test]
fn impossible_steps_are_refused_by_name() {
    let mut engine = engine(&plan(&tiny_path(Tiny::Llama)));
    let n_vocab = engine.n_vocab();
    let mut refuse = |ids: &[u32], n_tokens: usize| {
        let mut session = session(&mut engine, ids);
        let segment = Segment { session: &mut session, n_tokens, logits: 0..0 };
        engine.forward(&mut [segment], &mut |_| Flow::Continue, &mut |_| {}).unwrap_err()
    };
    assert_eq!(refuse(&[5], 0), ForwardError::StepShape { n_rows: 0, max_rows: 132 });
    assert_eq!(refuse(&[5], 2), ForwardError::StepShape { n_rows: 2, max_rows: 1 });
    assert_eq!(refuse(&[5; 200], 133), ForwardError::StepShape { n_rows: 133, max_rows: 132 });
    let id = n_vocab as u32;
    assert_eq!(refuse(&[5, id], 2), ForwardError::UnknownToken { id, n_vocab });
}
