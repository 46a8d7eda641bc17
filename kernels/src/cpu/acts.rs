//! Activations prepared for products: f32 beside 8-bit blocks of 32, by one rule for all integer formats.
//!
//! Per block: `da = amax / 127`, `q = round_to_even(x · (127 / amax))`, clamped to ±127; the integers are summed per 16, and
//! `s = da · float(sum of 32)`. amax is the largest |x| *as bits*, so a NaN is the largest of all and makes da NaN: a product
//! never hides it. Where 127/amax is not a positive finite number (all zero, all tiny, an infinity, a NaN) every q is 0.

use super::Level;
use super::tensor::try_vec;
use crate::backend::BackendError;
use crate::dequant::INT_BLOCK;
use crate::pool::{Disjoint, Pool};

/// Prepared activations, `[n_rows × width]`.
#[derive(Debug)]
pub struct CpuActs {
    width: usize,
    n_blocks: usize,
    max_rows: usize,
    n_rows: usize,
    x: Vec<f32>,
    q: Vec<i8>,
    d: Vec<f32>,
    s: Vec<f32>,
    sums: Vec<[i16; 2]>,
}

/// One row's 8-bit blocks, to write.
pub(super) struct Blocks<'a> {
    /// `[n_blocks × 32]` quants.
    pub(super) q: &'a mut [i8],
    /// `[n_blocks]` scales.
    pub(super) d: &'a mut [f32],
    /// `[n_blocks]` scale × sum of quants.
    pub(super) s: &'a mut [f32],
    /// `[n_blocks]` sums of quants, per 16.
    pub(super) sums: &'a mut [[i16; 2]],
}

/// One row's prepared activations. The integer parts hold the whole blocks of 32; a remainder exists in `x` alone.
#[derive(Clone, Copy)]
pub(super) struct ActRow<'a> {
    pub(super) x: &'a [f32],
    pub(super) q: &'a [i8],
    pub(super) d: &'a [f32],
    pub(super) s: &'a [f32],
    pub(super) sums: &'a [[i16; 2]],
}

impl CpuActs {
    pub(super) fn new(max_rows: usize, width: usize) -> Result<Self, BackendError> {
        let n_blocks = width / INT_BLOCK;
        let all_blocks = max_rows.saturating_mul(n_blocks);
        Ok(Self {
            width,
            n_blocks,
            max_rows,
            n_rows: 0,
            x: try_vec(max_rows.saturating_mul(width))?,
            q: try_vec(all_blocks.saturating_mul(INT_BLOCK))?,
            d: try_vec(all_blocks)?,
            s: try_vec(all_blocks)?,
            sums: try_vec(all_blocks)?,
        })
    }

    /// Elements per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows in use.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub(super) fn row(&self, i: usize) -> ActRow<'_> {
        assert!(i < self.n_rows, "row {i} of {}", self.n_rows);
        let blocks = i * self.n_blocks..(i + 1) * self.n_blocks;
        ActRow {
            x: &self.x[i * self.width..(i + 1) * self.width],
            q: &self.q[blocks.start * INT_BLOCK..blocks.end * INT_BLOCK],
            d: &self.d[blocks.clone()],
            s: &self.s[blocks.clone()],
            sums: &self.sums[blocks],
        }
    }

    fn set_rows(&mut self, n_rows: usize) {
        assert!(n_rows <= self.max_rows, "{n_rows} rows in activations for {}", self.max_rows);
        self.n_rows = n_rows;
    }

    /// Prepares `n_rows` rows of `x`.
    #[allow(unsafe_code, reason = "rows of one buffer are written by several threads")]
    pub(super) fn prepare(&mut self, pool: &mut Pool, level: Level, x: &[f32], n_rows: usize) {
        assert_eq!(x.len(), n_rows * self.width, "activations of width {}", self.width);
        self.set_rows(n_rows);
        self.x[..x.len()].copy_from_slice(x);
        let (width, n_blocks) = (self.width, self.n_blocks);
        let q = Disjoint::new(&mut self.q);
        let (d, s, sums) = (Disjoint::new(&mut self.d), Disjoint::new(&mut self.s), Disjoint::new(&mut self.sums));
        pool.run_rows(n_rows, width, &|row, _| {
            let blocks = row * n_blocks..(row + 1) * n_blocks;
            // SAFETY: each row is visited once, and rows own disjoint ranges.
            let mut out = unsafe {
                Blocks {
                    q: q.range(blocks.start * INT_BLOCK..blocks.end * INT_BLOCK),
                    d: d.range(blocks.clone()),
                    s: s.range(blocks.clone()),
                    sums: sums.range(blocks),
                }
            };
            quantise(level, &x[row * width..(row + 1) * width], &mut out);
        });
    }

    /// Takes rows `rows` of `from`.
    pub(super) fn gather(&mut self, from: &Self, rows: &[u32]) {
        assert_eq!(self.width, from.width, "gathered activations have one width");
        self.set_rows(rows.len());
        for (to, &row) in rows.iter().enumerate() {
            let row = from.row(row as usize);
            let (width, n) = (self.width, self.n_blocks);
            self.x[to * width..][..width].copy_from_slice(row.x);
            self.q[to * n * INT_BLOCK..][..n * INT_BLOCK].copy_from_slice(row.q);
            self.d[to * n..][..n].copy_from_slice(row.d);
            self.s[to * n..][..n].copy_from_slice(row.s);
            self.sums[to * n..][..n].copy_from_slice(row.sums);
        }
    }
}

/// Quantises a row's whole blocks.
#[allow(unsafe_code, reason = "a vector kernel")]
fn quantise(level: Level, x: &[f32], out: &mut Blocks<'_>) {
    match level {
        Level::Portable => quantise_portable(x, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only chosen on machines that have its instructions.
        Level::Avx2 => unsafe { super::avx2::acts::quantise(x, out) },
    }
}

/// The definition: see the module's head.
fn quantise_portable(x: &[f32], out: &mut Blocks<'_>) {
    for (b, x) in x.chunks_exact(INT_BLOCK).enumerate() {
        let amax = f32::from_bits(x.iter().map(|x| x.abs().to_bits()).max().unwrap_or(0));
        let inverse = 127.0 / amax;
        let usable = inverse > 0.0 && inverse < f32::INFINITY;
        let q = &mut out.q[b * INT_BLOCK..][..INT_BLOCK];
        for (q, x) in q.iter_mut().zip(x) {
            *q = if usable { (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8 } else { 0 };
        }
        let sum = |q: &[i8]| q.iter().map(|&q| i16::from(q)).sum::<i16>();
        out.sums[b] = [sum(&q[..16]), sum(&q[16..])];
        out.d[b] = amax / 127.0;
        out.s[b] = out.d[b] * f32::from(out.sums[b][0] + out.sums[b][1]);
    }
}
