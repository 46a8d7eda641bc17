//! Attention over one block of widened keys and values; the order is in `cpu::attention`.

use crate::backend::KvType;
use crate::cpu::attention::State;
use crate::cpu::kv::PAGE;
use crate::math;
use crate::order::{FLOAT_CHAINS, tree32};
use std::arch::x86_64::{
    __m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm_and_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm_set1_epi8,
    _mm_srli_epi16, _mm_srli_si128, _mm_storeu_si128, _mm_sub_epi8, _mm256_add_ps, _mm256_castpd_ps, _mm256_castps_pd,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_max_ps, _mm256_mul_ps, _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_shuffle_ps,
    _mm256_storeu_ps, _mm256_sub_ps, _mm256_unpackhi_pd, _mm256_unpacklo_pd,
};

/// One block for one query head: returns the largest score and the sum of weights, and writes the weighted values.
///
/// # Safety
/// AVX2, FMA, F16C.
///
/// # Panics
/// If keys and values are not rows of as many positions, 64 at most.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn block(q: &[f32], keys: &[f32], scale: f32, values: &[f32], out: &mut [f32]) -> State {
    let n = keys.len() / q.len();
    assert!((1..=PAGE).contains(&n) && keys.len() == n * q.len() && values.len() == n * out.len());
    let mut scores = [f32::NEG_INFINITY; PAGE];
    for first in (0..n).step_by(8) {
        let dots = if q.len().is_multiple_of(8) {
            // Past the last key the last one stands in; its extra scores are dropped below.
            let rows = std::array::from_fn(|i| &keys[(first + i).min(n - 1) * q.len()..][..q.len()]);
            dots(q, rows)
        } else {
            let one = |i: usize| dot(q, &keys[(first + i).min(n - 1) * q.len()..][..q.len()]);
            // SAFETY: 8 floats of an array of 8.
            unsafe { _mm256_loadu_ps(std::array::from_fn::<f32, 8, _>(one).as_ptr()) }
        };
        // SAFETY: 8 of 64 floats from a multiple of 8.
        unsafe { _mm256_storeu_ps(scores.as_mut_ptr().add(first), _mm256_mul_ps(dots, _mm256_set1_ps(scale))) };
    }
    scores[n..].fill(f32::NEG_INFINITY);
    let max = largest(&scores);
    let mut sum = 0.0;
    for eight in scores.chunks_exact_mut(8).take(n.div_ceil(8)) {
        // SAFETY: a slice of 8 floats.
        unsafe {
            let p = math::avx2::exp(_mm256_sub_ps(_mm256_loadu_ps(eight.as_ptr()), _mm256_set1_ps(max)));
            _mm256_storeu_ps(eight.as_mut_ptr(), p);
        }
    }
    let weights = &scores[..n];
    for p in weights {
        sum += p;
    }
    let dim = out.len();
    let mut at = 0;
    // SAFETY: dimensions at..at+8·N of rows of `dim`, as many as there are weights, by the assertion above.
    unsafe {
        while at + 64 <= dim {
            weigh::<8>(weights, values, at, out);
            at += 64;
        }
        while at + 8 <= dim {
            weigh::<1>(weights, values, at, out);
            at += 8;
        }
    }
    for d in at..dim {
        out[d] = weights.iter().zip(values.chunks_exact(dim)).fold(0.0, |o, (p, value)| p.mul_add(value[d], o));
    }
    State { max, sum }
}

/// The largest score. A NaN is passed over, as `s > max` does.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn largest(scores: &[f32; PAGE]) -> f32 {
    let mut max = _mm256_set1_ps(f32::NEG_INFINITY);
    for eight in scores.chunks_exact(8) {
        // SAFETY: a slice of 8 floats. The instruction returns its second operand for a NaN.
        max = _mm256_max_ps(unsafe { _mm256_loadu_ps(eight.as_ptr()) }, max);
    }
    let mut lanes = [0.0; 8];
    // SAFETY: 8 floats into an array of 8.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), max) };
    lanes.into_iter().fold(f32::NEG_INFINITY, |max, s| if s > max { s } else { max })
}

/// q·k of 8 keys, whose length is a multiple of 8, each in 32 chains.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots(q: &[f32], keys: [&[f32]; 8]) -> __m256 {
    let mut sums = [_mm256_setzero_ps(); 8];
    for (sums, keys) in sums.chunks_exact_mut(2).zip(keys.chunks_exact(2)) {
        let pair = dots_of_two(q, keys[0], keys[1]);
        sums.copy_from_slice(&pair);
    }
    last_three_levels(sums)
}

/// q·k of 2 keys, up to the tree's last three levels. Two at once: 8 sums hide the latency of the multiply-add.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots_of_two(q: &[f32], first: &[f32], second: &[f32]) -> [__m256; 2] {
    assert!(first.len() == q.len() && second.len() == q.len());
    let mut sums = [[_mm256_setzero_ps(); 4]; 2];
    let [first_sums, second_sums] = &mut sums;
    let mut add = |part: usize, at: usize| {
        assert!(at + 8 <= q.len());
        // SAFETY: 8 floats from `at`, within the one length of all three.
        unsafe {
            let q = _mm256_loadu_ps(q.as_ptr().add(at));
            first_sums[part] = _mm256_fmadd_ps(q, _mm256_loadu_ps(first.as_ptr().add(at)), first_sums[part]);
            second_sums[part] = _mm256_fmadd_ps(q, _mm256_loadu_ps(second.as_ptr().add(at)), second_sums[part]);
        }
    };
    let whole = q.len() / FLOAT_CHAINS * FLOAT_CHAINS;
    for at in (0..whole).step_by(FLOAT_CHAINS) {
        // Written out, so that each sum has a register.
        add(0, at);
        add(1, at + 8);
        add(2, at + 16);
        add(3, at + 24);
    }
    let rest = q.len() - whole;
    if rest > 0 {
        add(0, whole);
    }
    if rest > 8 {
        add(1, whole + 8);
    }
    if rest > 16 {
        add(2, whole + 16);
    }
    let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = sums;
    [
        _mm256_add_ps(_mm256_add_ps(a0, a2), _mm256_add_ps(a1, a3)),
        _mm256_add_ps(_mm256_add_ps(b0, b2), _mm256_add_ps(b1, b3)),
    ]
}

/// Sums the 8 lanes of each of 8 vectors: + 4, + 2, + 1; result i in lane i.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn last_three_levels(v: [__m256; 8]) -> __m256 {
    let fours: [__m256; 4] = std::array::from_fn(|i| {
        let (x, y) = (v[i], v[i + 4]);
        _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(x, y), _mm256_permute2f128_ps::<0x31>(x, y))
    });
    let twos: [__m256; 2] = std::array::from_fn(|i| {
        let (x, y) = (_mm256_castps_pd(fours[2 * i]), _mm256_castps_pd(fours[2 * i + 1]));
        let low = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
        _mm256_add_ps(low, _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)))
    });
    let even = _mm256_shuffle_ps::<0b10_00_10_00>(twos[0], twos[1]);
    _mm256_add_ps(even, _mm256_shuffle_ps::<0b11_01_11_01>(twos[0], twos[1]))
}

/// x·y in 32 chains, any length.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut chains = [0.0_f32; FLOAT_CHAINS];
    for (k, (x, y)) in x.iter().zip(y).enumerate() {
        chains[k % FLOAT_CHAINS] = x.mul_add(*y, chains[k % FLOAT_CHAINS]);
    }
    tree32(chains)
}

/// Σ weight · value in position order, for 8·N dimensions from `at`.
///
/// # Safety
/// AVX2, FMA, F16C; `values` has a row of `out.len()` for each weight, and at + 8·N is within it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn weigh<const N: usize>(weights: &[f32], values: &[f32], at: usize, out: &mut [f32]) {
    let mut sums = [_mm256_setzero_ps(); N];
    for (row, p) in weights.iter().enumerate() {
        let p = _mm256_set1_ps(*p);
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let v = unsafe { _mm256_loadu_ps(values.as_ptr().add(row * out.len() + at + 8 * i)) };
            *sum = _mm256_fmadd_ps(p, v, *sum);
        }
    }
    for (i, sum) in sums.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(at + 8 * i), sum) };
    }
}

/// Adds a block's result to what a head has seen.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn merge(state: &mut State, out: &mut [f32], block: State, block_out: &[f32]) {
    let max = block.max_with(state.max);
    let mut factors = [state.max - max, block.max - max, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    // SAFETY: an array of 8 floats.
    unsafe {
        let exp = math::avx2::exp(_mm256_loadu_ps(factors.as_ptr()));
        _mm256_storeu_ps(factors.as_mut_ptr(), exp);
    }
    let [a, b, ..] = factors;
    *state = State { max, sum: state.sum.mul_add(a, block.sum * b) };
    for (o, &x) in out.iter_mut().zip(block_out) {
        *o = o.mul_add(a, x * b);
    }
}

/// Widens stored rows of K or V exactly.
///
/// # Safety
/// AVX2, FMA, F16C.
///
/// # Panics
/// If `bytes` does not hold `out.len()` elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn widen(kv_type: KvType, bytes: &[u8], out: &mut [f32]) {
    match kv_type {
        KvType::F16 => {
            assert_eq!(bytes.len(), 2 * out.len());
            for (out, bytes) in out.chunks_mut(8).zip(bytes.chunks(16)) {
                if out.len() == 8 {
                    // SAFETY: 16 bytes to 8 floats, both chunks whole.
                    unsafe {
                        let halves = _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>());
                        _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(halves));
                    }
                } else {
                    crate::dequant::dequantize_row(crate::format::Format::F16, bytes, out);
                }
            }
        }
        KvType::Q8_0 => {
            assert_eq!(bytes.len(), out.len() / 32 * 34);
            for (out, bytes) in out.chunks_exact_mut(32).zip(bytes.chunks_exact(34)) {
                // SAFETY: 32 floats, from 32 bytes after the scale.
                unsafe {
                    for i in 0..4 {
                        let q = _mm_loadl_epi64(bytes.as_ptr().add(2 + 8 * i).cast::<__m128i>());
                        store_scaled(bytes, q, out.as_mut_ptr().add(8 * i));
                    }
                }
            }
        }
        KvType::Q4_0 => {
            assert_eq!(bytes.len(), out.len() / 32 * 18);
            for (out, bytes) in out.chunks_exact_mut(32).zip(bytes.chunks_exact(18)) {
                // SAFETY: 32 floats, from 16 bytes after the scale.
                unsafe {
                    let both = _mm_loadu_si128(bytes.as_ptr().add(2).cast::<__m128i>());
                    let mask = _mm_set1_epi8(15);
                    let nibbles = [_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16::<4>(both), mask)];
                    for (i, nibbles) in nibbles.into_iter().enumerate() {
                        let q = _mm_sub_epi8(nibbles, _mm_set1_epi8(8));
                        store_scaled(bytes, q, out.as_mut_ptr().add(16 * i));
                        store_scaled(bytes, _mm_srli_si128::<8>(q), out.as_mut_ptr().add(16 * i + 8));
                    }
                }
            }
        }
    }
}

/// The 8 low signed bytes of `q` times the f16 that begins `block`, to 8 floats.
///
/// # Safety
/// AVX2, F16C; `out` takes 8 floats, `block` has 2 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn store_scaled(block: &[u8], q: __m128i, out: *mut f32) {
    let d = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
    // SAFETY: the caller's promise.
    unsafe { _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)))) };
}

/// Stores values as f16, rounded to nearest even.
///
/// # Safety
/// AVX2, F16C.
///
/// # Panics
/// If `out` is not two bytes per value.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn store_f16(x: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), 2 * x.len());
    for (out, x) in out.chunks_mut(16).zip(x.chunks(8)) {
        if x.len() == 8 {
            // SAFETY: 8 floats to 16 bytes, both chunks whole.
            unsafe {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), halves);
            }
        } else {
            for (out, x) in out.chunks_exact_mut(2).zip(x) {
                out.copy_from_slice(&half::f16::from_f32(*x).to_le_bytes());
            }
        }
    }
}
