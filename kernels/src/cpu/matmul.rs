//! Products of weights and prepared activations: who computes which rows, and the portable definition of a product.
//!
//! A part of the job is a run of whole tiles of 8 weight rows against all tokens. Decode (few tokens) multiplies straight
//! from the file's bytes; prefill unpacks a tile once into a panel and then serves all tokens from it. Both do the same
//! additions in the same order: see `crate::order`.

use super::acts::CpuActs;
use super::tensor::CpuWeight;
use super::{Level, Scratches};
use crate::dequant::{INT_BLOCK, dequantize_row, int_block};
use crate::order::{self, INT_CHAINS};
use crate::pool::{Disjoint, Pool};
use std::ops::Range;

/// Weight rows in one tile: the lanes of an AVX2 vector.
pub(super) const TILE: usize = 8;
/// Parts per thread: enough that a thread which was held up leaves its share to the others.
const PARTS_PER_THREAD: usize = 4;

/// A tile's weights unpacked for many tokens; work memory of one thread.
#[derive(Default)]
pub(super) struct Panel {
    #[cfg(target_arch = "x86_64")]
    pub(super) blocks: Vec<super::avx2::tile::Block8>,
    /// One row widened to f32.
    pub(super) row: Vec<f32>,
}

/// Everything a part of a product needs.
pub(super) struct Product<'a> {
    pub(super) weight: &'a CpuWeight,
    /// The weight's bytes, all rows.
    pub(super) bytes: &'a [u8],
    pub(super) acts: &'a CpuActs,
    /// `[n_tokens × n_rows]`.
    pub(super) out: &'a Disjoint<'a, f32>,
}

impl Product<'_> {
    /// Row `r` of the weight, as stored.
    pub(super) fn row(&self, r: usize) -> &[u8] {
        &self.bytes[r * self.weight.row_bytes()..][..self.weight.row_bytes()]
    }

    /// Output rows `rows` of token `token`.
    ///
    /// # Safety
    /// `rows` belong to the calling part, which holds no other slice of them.
    #[allow(unsafe_code, clippy::mut_from_ref, reason = "parts write disjoint rows of one tensor")]
    pub(super) unsafe fn out(&self, token: usize, rows: Range<usize>) -> &mut [f32] {
        let base = token * self.weight.n_rows();
        // SAFETY: passed on to the caller.
        unsafe { self.out.range(base + rows.start..base + rows.end) }
    }
}

/// `out[t] = weight · acts[t]` for every token t.
pub(super) fn matmul(
    pool: &mut Pool,
    scratches: &Scratches,
    level: Level,
    weight: &CpuWeight,
    acts: &CpuActs,
    out: &mut [f32],
) {
    assert_eq!(weight.n_cols(), acts.width(), "a product's inner dimension");
    assert_eq!(out.len(), weight.n_rows() * acts.n_rows(), "a product's output");
    let out = Disjoint::new(out);
    let product = Product { weight, bytes: weight.bytes(), acts, out: &out };
    let n_tiles = weight.n_rows().div_ceil(TILE);
    let n_parts = n_tiles.min(pool.n_threads() * PARTS_PER_THREAD);
    pool.run(n_parts, &|part, thread| {
        let tiles = part * n_tiles / n_parts..(part + 1) * n_tiles / n_parts;
        let rows = tiles.start * TILE..(tiles.end * TILE).min(weight.n_rows());
        scratches.with(thread, |scratch| match level {
            Level::Portable => rows_portable(&product, rows, &mut scratch.panel.row),
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code, reason = "vector kernels")]
            // SAFETY: the level is only chosen on machines that have its instructions; parts have disjoint rows.
            Level::Avx2 => unsafe { super::avx2::rows_product(&product, rows, &mut scratch.panel) },
        });
    });
}

/// The definition, row by row.
pub(super) fn rows_portable(product: &Product<'_>, rows: Range<usize>, wide: &mut Vec<f32>) {
    let format = product.weight.format();
    for r in rows {
        if !format.is_integer() {
            wide.resize(product.weight.n_cols(), 0.0);
            dequantize_row(format, product.row(r), wide);
        }
        for token in 0..product.acts.n_rows() {
            let acts = product.acts.row(token);
            let value = if format.is_integer() {
                let mut chains = [0.0; INT_CHAINS];
                for (b, a) in acts.q.chunks_exact(INT_BLOCK).enumerate() {
                    let block = int_block(format, product.row(r), b);
                    let exact: i32 = block.w.iter().zip(a).map(|(w, a)| w * i32::from(*a)).sum();
                    let chain = &mut chains[b % INT_CHAINS];
                    *chain = (block.d * acts.d[b]).mul_add(exact as f32, *chain);
                    if let Some(m) = block.m {
                        *chain = m.mul_add(acts.s[b], *chain);
                    }
                }
                order::tree8(chains)
            } else {
                order::dot(wide, acts.x)
            };
            #[allow(unsafe_code, reason = "parts write disjoint rows of one tensor")]
            // SAFETY: the row is this part's, and the slice ends with the statement.
            unsafe {
                product.out(token, r..r + 1)[0] = value;
            }
        }
    }
}
