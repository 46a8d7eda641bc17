//! Element-by-element operations on rows. Whole vectors of 8, then the rest by the portable rule's own operations.

use crate::backend::{Activation, RopePairs};
use crate::cpu::elementwise::norm_factor;
use crate::math;
use crate::order::{FLOAT_CHAINS, tree32};
use std::arch::x86_64::{
    __m256, _mm_loadu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps, _mm256_castps128_ps256, _mm256_fmadd_ps,
    _mm256_fmaddsub_ps, _mm256_fmsub_ps, _mm256_insertf128_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_permute_ps,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

/// Σ x² in 32 chains.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 4];
    let parts = x.chunks_exact(FLOAT_CHAINS);
    let rest = parts.remainder();
    for part in parts {
        for (v, sum) in sums.iter_mut().enumerate() {
            // SAFETY: 8 of the chunk's 32 floats.
            let x = unsafe { _mm256_loadu_ps(part.as_ptr().add(8 * v)) };
            *sum = _mm256_fmadd_ps(x, x, *sum);
        }
    }
    let mut chains = [0.0; FLOAT_CHAINS];
    for (sum, chains) in sums.into_iter().zip(chains.chunks_exact_mut(8)) {
        // SAFETY: 8 floats into a slice of 8.
        unsafe { _mm256_storeu_ps(chains.as_mut_ptr(), sum) };
    }
    for (chain, &x) in chains.iter_mut().zip(rest) {
        *chain = x.mul_add(x, *chain);
    }
    tree32(chains)
}

/// `out = (x · r) · weight`.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let r = norm_factor(sum_of_squares(x), x.len(), eps);
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * r * w;
    }
}

/// The same in place.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let r = norm_factor(sum_of_squares(x), x.len(), eps);
    for (x, &w) in x.iter_mut().zip(weight) {
        *x = *x * r * w;
    }
}

/// `out = act(gate) · up`.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn glu(activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let act = |x: __m256| match activation {
        Activation::Silu => math::avx2::silu(x),
        Activation::GeluTanh => math::avx2::gelu_tanh(x),
    };
    for ((out, gate), up) in out.chunks_mut(8).zip(gate.chunks(8)).zip(up.chunks(8)) {
        if out.len() == 8 && gate.len() == 8 && up.len() == 8 {
            // SAFETY: slices of 8 floats each.
            unsafe {
                let y = _mm256_mul_ps(act(_mm256_loadu_ps(gate.as_ptr())), _mm256_loadu_ps(up.as_ptr()));
                _mm256_storeu_ps(out.as_mut_ptr(), y);
            }
        } else {
            let act = match activation {
                Activation::Silu => math::silu,
                Activation::GeluTanh => math::gelu_tanh,
            };
            for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
                *out = act(gate) * up;
            }
        }
    }
}

/// Turns the pairs of a head.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn rope_head(head: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
    let half = cos.len();
    assert!(head.len() >= 2 * half && sin.len() == half, "a head of at least {half} pairs");
    let done = match pairs {
        // SAFETY: pairs below `half`, in slices that hold them by the assertion.
        RopePairs::Halves => unsafe { rope_halves(head, cos, sin) },
        // SAFETY: as above.
        RopePairs::Adjacent => unsafe { rope_adjacent(head, cos, sin) },
    };
    for i in done..half {
        let (ia, ib) = match pairs {
            RopePairs::Adjacent => (2 * i, 2 * i + 1),
            RopePairs::Halves => (i, i + half),
        };
        let (a, b) = (head[ia], head[ib]);
        head[ia] = a.mul_add(cos[i], -(b * sin[i]));
        head[ib] = b.mul_add(cos[i], a * sin[i]);
    }
}

/// Pairs (i, i + half), 8 at a time; says how many are done.
///
/// # Safety
/// AVX2, FMA; `head` has two elements for each of `cos`, and `sin` as many as `cos`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn rope_halves(head: &mut [f32], cos: &[f32], sin: &[f32]) -> usize {
    let half = cos.len();
    let whole = half / 8 * 8;
    for i in (0..whole).step_by(8) {
        // SAFETY: 8 elements from i, below `half`, in each of the four places.
        unsafe {
            let (at_a, at_b) = (head.as_mut_ptr().add(i), head.as_mut_ptr().add(half + i));
            let (a, b) = (_mm256_loadu_ps(at_a), _mm256_loadu_ps(at_b));
            let (cos, sin) = (_mm256_loadu_ps(cos.as_ptr().add(i)), _mm256_loadu_ps(sin.as_ptr().add(i)));
            _mm256_storeu_ps(at_a, _mm256_fmsub_ps(a, cos, _mm256_mul_ps(b, sin)));
            _mm256_storeu_ps(at_b, _mm256_fmadd_ps(b, cos, _mm256_mul_ps(a, sin)));
        }
    }
    whole
}

/// Pairs (2i, 2i + 1), 4 at a time; says how many are done.
///
/// # Safety
/// As for `rope_halves`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn rope_adjacent(head: &mut [f32], cos: &[f32], sin: &[f32]) -> usize {
    let whole = cos.len() / 4 * 4;
    // Each of four numbers twice, in order.
    // SAFETY: the caller gives four floats.
    let twice = |x: *const f32| unsafe {
        let four = _mm_loadu_ps(x);
        let low = _mm256_castps128_ps256(_mm_unpacklo_ps(four, four));
        _mm256_insertf128_ps::<1>(low, _mm_unpackhi_ps(four, four))
    };
    for i in (0..whole).step_by(4) {
        // SAFETY: 4 pairs from i, below the number of cosines.
        unsafe {
            let at = head.as_mut_ptr().add(2 * i);
            let pairs = _mm256_loadu_ps(at);
            let swapped = _mm256_permute_ps::<0b10_11_00_01>(pairs);
            let crossed = _mm256_mul_ps(swapped, twice(sin.as_ptr().add(i)));
            // Even lanes a·cos − b·sin, odd lanes b·cos + a·sin.
            _mm256_storeu_ps(at, _mm256_fmaddsub_ps(pairs, twice(cos.as_ptr().add(i)), crossed));
        }
    }
    whole
}

/// `out = fma(weight, x, out)`.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn add_scaled(out: &mut [f32], x: &[f32], weight: f32) {
    let whole = out.len().min(x.len()) / 8 * 8;
    for i in (0..whole).step_by(8) {
        // SAFETY: 8 elements from i, below both lengths.
        unsafe {
            let at = out.as_mut_ptr().add(i);
            let sum = _mm256_fmadd_ps(_mm256_set1_ps(weight), _mm256_loadu_ps(x.as_ptr().add(i)), _mm256_loadu_ps(at));
            _mm256_storeu_ps(at, sum);
        }
    }
    for (out, &x) in out[whole..].iter_mut().zip(&x[whole..]) {
        *out = weight.mul_add(x, *out);
    }
}
