//! Products with float weights: 32 chains per (row, token), as 4 vectors of 8 neighbouring chains.
//!
//! Decode keeps all 4 vectors of 2 rows in registers and streams once. Prefill makes 4 passes, one vector of chains each, so
//! that 4 rows × 3 tokens fit in registers and each load serves several of them; the rows of a tile stay in the first cache.
//! Loops are written out where a closure would be natural: a closure handed to a library function without the vector extensions
//! is compiled as a call that passes vectors through memory.

use crate::cpu::matmul::Product;
use crate::order::FLOAT_CHAINS;
use half::{bf16, f16};
use std::arch::x86_64::{
    __m128i, __m256, _mm_loadu_si128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
};
use std::ops::Range;

/// Vectors of 8 chains.
const VECTORS: usize = FLOAT_CHAINS / 8;

/// How a float format is widened, exactly.
pub(super) trait Widen {
    const BYTES: usize;
    /// Eight elements.
    ///
    /// # Safety
    /// AVX2, F16C; 8 elements at `at`.
    unsafe fn eight(at: *const u8) -> __m256;
    /// One element, `bytes` long.
    fn one(bytes: &[u8]) -> f32;
}

pub(super) struct F32;

impl Widen for F32 {
    const BYTES: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: the caller's promise; the load needs no alignment.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }

    fn one(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

pub(super) struct F16;

impl Widen for F16 {
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: the caller's promise; the load needs no alignment.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast::<__m128i>()) })
    }

    fn one(bytes: &[u8]) -> f32 {
        f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

pub(super) struct BF16;

impl Widen for BF16 {
    const BYTES: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: the caller's promise; the load needs no alignment.
        let halves = unsafe { _mm_loadu_si128(at.cast::<__m128i>()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
    }

    fn one(bytes: &[u8]) -> f32 {
        bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

/// Output rows `rows` for all tokens.
///
/// # Safety
/// AVX2, FMA, F16C; no other thread holds these rows of the output.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn product<W: Widen>(product: &Product<'_>, rows: Range<usize>) {
    let n_tokens = product.acts.n_rows();
    let mut row = rows.start;
    // SAFETY: rows and tokens below are in range; the rest is the caller's promise.
    unsafe {
        while row + 4 <= rows.end {
            let mut token = 0;
            while token + 3 <= n_tokens {
                tile::<W, 4, 3, 1>(product, row, token);
                token += 3;
            }
            for token in token..n_tokens {
                tile::<W, 2, 1, VECTORS>(product, row, token);
                tile::<W, 2, 1, VECTORS>(product, row + 2, token);
            }
            row += 4;
        }
        for row in row..rows.end {
            for token in 0..n_tokens {
                tile::<W, 1, 1, VECTORS>(product, row, token);
            }
        }
    }
}

/// `R` rows from `row` times `T` tokens from `token`, in passes of `V` vectors of chains.
///
/// # Safety
/// AVX2, FMA, F16C; these rows and tokens exist, and the output rows are the caller's alone.
#[inline]
#[allow(clippy::needless_range_loop, reason = "rows, tokens and vectors index several arrays at once")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<W: Widen, const R: usize, const T: usize, const V: usize>(
    product: &Product<'_>,
    row: usize,
    token: usize,
) {
    let n_cols = product.weight.n_cols();
    let weights: [&[u8]; R] = std::array::from_fn(|r| product.row(row + r));
    let acts: [&[f32]; T] = std::array::from_fn(|t| product.acts.row(token + t).x);
    assert!(acts.iter().all(|x| x.len() == n_cols) && weights.iter().all(|w| w.len() == n_cols * W::BYTES));
    let whole = n_cols / FLOAT_CHAINS * FLOAT_CHAINS;
    let mut chains = [[[0.0_f32; FLOAT_CHAINS]; T]; R];
    for pass in (0..VECTORS).step_by(V) {
        let mut sums = [[[_mm256_setzero_ps(); V]; T]; R];
        for k in (0..whole).step_by(FLOAT_CHAINS) {
            for v in 0..V {
                let k = k + 8 * (pass + v);
                let mut w = [_mm256_setzero_ps(); R];
                for r in 0..R {
                    // SAFETY: 8 elements from k, all below `whole`, in slices of `n_cols` elements.
                    w[r] = unsafe { W::eight(weights[r].as_ptr().add(k * W::BYTES)) };
                }
                for t in 0..T {
                    // SAFETY: as above.
                    let x = unsafe { _mm256_loadu_ps(acts[t].as_ptr().add(k)) };
                    for r in 0..R {
                        sums[r][t][v] = _mm256_fmadd_ps(w[r], x, sums[r][t][v]);
                    }
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                for v in 0..V {
                    let chains = &mut chains[r][t][8 * (pass + v)..][..8];
                    // SAFETY: 8 floats into a slice of 8.
                    unsafe { _mm256_storeu_ps(chains.as_mut_ptr(), sums[r][t][v]) };
                }
            }
        }
    }
    for t in 0..T {
        for (r, chains) in chains.iter_mut().enumerate() {
            let chains = &mut chains[t];
            for k in whole..n_cols {
                let w = W::one(&weights[r][k * W::BYTES..(k + 1) * W::BYTES]);
                chains[k - whole] = w.mul_add(acts[t][k], chains[k - whole]);
            }
            // SAFETY: the row is the caller's, and the slice ends with the statement.
            unsafe { product.out(token + t, row + r..row + r + 1)[0] = tree(*chains) };
        }
    }
}

/// The halving tree, here so that it is compiled for vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tree(chains: [f32; FLOAT_CHAINS]) -> f32 {
    crate::order::tree32(chains)
}
