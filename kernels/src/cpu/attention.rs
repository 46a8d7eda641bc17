//! Causal attention in blocks of 64 absolute positions: the same blocks, the same bits, in decode and in any prefill chunk.
//!
//! Per query head and visible block: scores `s = (q·k) · scale` (dot in 32 chains), their max `m`, `p = exp(s − m)`, then in
//! position order `l = l + p` and per dimension `o = fma(p, v, o)`, both from 0. Blocks merge in order by one formula:
//! ```text
//! M' = max(M, m)   a = exp(M − M')   b = exp(m − M')   L' = fma(L, a, l·b)   O' = fma(O, a, o·b)
//! ```
//! from M = −inf, L = 0, O = 0; the output is O / L. Positions outside the window or after the query are left out of their
//! block, and blocks that hold none but such are skipped.

use super::kv::{CpuKv, PAGE, widen};
use super::{Level, Scratches};
use crate::backend::{Attention, KvType};
use crate::pool::{Disjoint, Pool};
use crate::{math, order};
use std::ops::Range;

/// Query rows that share one widened block of K and V.
const TILE_ROWS: usize = 16;

/// Work memory of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    /// 64 key rows, widened.
    keys: Vec<f32>,
    /// 64 value rows, widened.
    values: Vec<f32>,
    /// One block's output of one head.
    block_out: Vec<f32>,
    /// Per (row, head of the group) of a tile: running maximum and sum.
    states: Vec<State>,
}

/// What a head has seen so far, or of one block; its weighted values stand in the output row.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) max: f32,
    pub(super) sum: f32,
}

impl State {
    /// The larger of the two maxima; a NaN is never it.
    pub(super) fn max_with(self, other: f32) -> f32 {
        if self.max > other { self.max } else { other }
    }
}

const EMPTY: State = State { max: f32::NEG_INFINITY, sum: 0.0 };

/// The queries of one call: rows of all heads, the first at position `pos`.
pub(super) struct Queries<'a> {
    /// `[n_rows × n_heads × k_dim]`.
    pub(super) q: &'a [f32],
    pub(super) pos: u32,
}

/// Attention of consecutive queries over one layer, into `out` (`[n_rows × n_heads × v_dim]`).
pub(super) fn attend(
    pool: &mut Pool,
    scratches: &Scratches,
    level: Level,
    spec: &Attention,
    kv: &CpuKv,
    queries: &Queries<'_>,
    out: &mut [f32],
) {
    let shape = kv.layer(spec.layer).shape;
    assert!(spec.n_heads.is_multiple_of(shape.n_kv_heads), "query heads in whole groups");
    let n_rows = queries.q.len() / (spec.n_heads * shape.k_dim);
    assert_eq!(queries.q.len(), n_rows * spec.n_heads * shape.k_dim, "width of q");
    assert_eq!(out.len(), n_rows * spec.n_heads * shape.v_dim, "width of the output");
    let n_tiles = n_rows.div_ceil(TILE_ROWS);
    let out = Disjoint::new(out);
    pool.run(n_tiles * shape.n_kv_heads, &|part, thread| {
        let (tile, kv_head) = (part / shape.n_kv_heads, part % shape.n_kv_heads);
        let rows = tile * TILE_ROWS..((tile + 1) * TILE_ROWS).min(n_rows);
        let task = Task { level, spec, kv, queries, kv_head, rows };
        scratches.with(thread, |scratch| task.run(&mut scratch.attention, &out));
    });
}

/// One key/value head for a tile of query rows.
struct Task<'a> {
    level: Level,
    spec: &'a Attention,
    kv: &'a CpuKv,
    queries: &'a Queries<'a>,
    kv_head: usize,
    rows: Range<usize>,
}

impl Task<'_> {
    /// Query heads that share the key/value head.
    fn heads(&self) -> Range<usize> {
        let group = self.spec.n_heads / self.kv.layer(self.spec.layer).shape.n_kv_heads;
        self.kv_head * group..(self.kv_head + 1) * group
    }

    fn run(&self, scratch: &mut Scratch, out: &Disjoint<'_, f32>) {
        let layer = self.kv.layer(self.spec.layer);
        let shape = layer.shape;
        scratch.keys.resize(PAGE * shape.k_dim, 0.0);
        scratch.values.resize(PAGE * shape.v_dim, 0.0);
        scratch.block_out.resize(shape.v_dim, 0.0);
        scratch.states.clear();
        scratch.states.resize(self.rows.len() * self.heads().len(), EMPTY);
        for row in self.rows.clone() {
            self.output(out, row, self.heads()).fill(0.0);
        }
        let pos_of = |row: usize| self.queries.pos + row as u32;
        let first = layer.first_seen(pos_of(self.rows.start)) as usize;
        let last = pos_of(self.rows.end - 1) as usize;
        for page in first / PAGE..=last / PAGE {
            // The last page may be part filled; what stands behind the last position is never read.
            self.widen(scratch, page, (last + 1 - page * PAGE).min(PAGE));
            for row in self.rows.clone() {
                let pos = pos_of(row);
                let from = (layer.first_seen(pos) as usize).max(page * PAGE);
                let to = (pos as usize + 1).min((page + 1) * PAGE);
                if from < to {
                    self.block(scratch, out, row, from - page * PAGE..to - page * PAGE);
                }
            }
        }
        for row in self.rows.clone() {
            for (i, head) in self.heads().enumerate() {
                let sum = scratch.states[(row - self.rows.start) * self.heads().len() + i].sum;
                self.output(out, row, head..head + 1).iter_mut().for_each(|o| *o /= sum);
            }
        }
    }

    /// Widens the first `n` positions of a page.
    fn widen(&self, scratch: &mut Scratch, page: usize, n: usize) {
        let layer = self.kv.layer(self.spec.layer);
        let (keys, values) = layer.head(page, self.kv_head);
        let widen = |bytes: &[u8], out: &mut [f32]| widen_rows(self.level, self.kv.kv_type(), bytes, out);
        widen(&keys[..n * layer.k_row_bytes], &mut scratch.keys[..n * layer.shape.k_dim]);
        widen(&values[..n * layer.v_row_bytes], &mut scratch.values[..n * layer.shape.v_dim]);
    }

    /// The output of `heads` in row `row`.
    #[allow(unsafe_code, clippy::mut_from_ref, reason = "tasks write disjoint heads of one tensor")]
    fn output<'a>(&self, out: &'a Disjoint<'_, f32>, row: usize, heads: Range<usize>) -> &'a mut [f32] {
        let v_dim = self.kv.layer(self.spec.layer).shape.v_dim;
        let base = row * self.spec.n_heads;
        // SAFETY: a task touches only its own rows and the heads of its own group, and holds one such slice at a time.
        unsafe { out.range((base + heads.start) * v_dim..(base + heads.end) * v_dim) }
    }

    /// One block for all heads of one row: positions `seen` of the widened page.
    fn block(&self, scratch: &mut Scratch, out: &Disjoint<'_, f32>, row: usize, seen: Range<usize>) {
        let shape = self.kv.layer(self.spec.layer).shape;
        let keys = &scratch.keys[seen.start * shape.k_dim..seen.end * shape.k_dim];
        let values = &scratch.values[seen.start * shape.v_dim..seen.end * shape.v_dim];
        for (i, head) in self.heads().enumerate() {
            let q = &self.queries.q[(row * self.spec.n_heads + head) * shape.k_dim..][..shape.k_dim];
            let state = &mut scratch.states[(row - self.rows.start) * self.heads().len() + i];
            let block = attend_block(self.level, q, keys, self.spec.scale, values, &mut scratch.block_out);
            merge(self.level, state, self.output(out, row, head..head + 1), block, &scratch.block_out);
        }
    }
}

/// Adds a block's result to what a head has seen.
fn merge(level: Level, state: &mut State, out: &mut [f32], block: State, block_out: &[f32]) {
    match level {
        Level::Portable => {
            let max = block.max_with(state.max);
            let (a, b) = (math::exp(state.max - max), math::exp(block.max - max));
            *state = State { max, sum: state.sum.mul_add(a, block.sum * b) };
            for (o, &x) in out.iter_mut().zip(block_out) {
                *o = o.mul_add(a, x * b);
            }
        }
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "a vector kernel")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::attention::merge(state, out, block, block_out) },
    }
}

fn widen_rows(level: Level, kv_type: KvType, bytes: &[u8], out: &mut [f32]) {
    match level {
        Level::Portable => widen(kv_type, bytes, out),
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "a vector kernel")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::attention::widen(kv_type, bytes, out) },
    }
}

/// Scores, weights and weighted values of one block for one query head.
fn attend_block(level: Level, q: &[f32], keys: &[f32], scale: f32, values: &[f32], out: &mut [f32]) -> State {
    match level {
        Level::Portable => {
            let mut scores = [0.0; PAGE];
            let scores = &mut scores[..keys.len() / q.len()];
            for (s, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
                *s = order::dot(q, key) * scale;
            }
            let max = scores.iter().fold(f32::NEG_INFINITY, |max, &s| if s > max { s } else { max });
            let mut sum = 0.0;
            out.fill(0.0);
            for (s, value) in scores.iter().zip(values.chunks_exact(out.len())) {
                let p = math::exp(*s - max);
                sum += p;
                for (o, &v) in out.iter_mut().zip(value) {
                    *o = p.mul_add(v, *o);
                }
            }
            State { max, sum }
        }
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "a vector kernel")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::attention::block(q, keys, scale, values, out) },
    }
}
