//! The sequences of the parent module on 8 lanes: same operations, same roundings, same bits.

use super::{EXP_HIGH, EXP_LOW, EXP_POLY, GELU_CUBIC, GELU_SCALE, LN2_HIGH, LN2_LOW, LOG2_E};
use std::arch::x86_64::{
    __m256, __m256i, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_add_epi32, _mm256_add_ps,
    _mm256_castsi256_ps, _mm256_cvtps_epi32, _mm256_div_ps, _mm256_fmadd_ps, _mm256_max_ps, _mm256_min_ps,
    _mm256_mul_ps, _mm256_round_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_sub_epi32, _mm256_xor_ps,
};

/// eˣ.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn exp(x: __m256) -> __m256 {
    let all = |x: f32| _mm256_set1_ps(x);
    // min and max return their second operand for a NaN.
    let x = _mm256_max_ps(all(EXP_LOW), _mm256_min_ps(all(EXP_HIGH), x));
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(x, all(LOG2_E)));
    let r = _mm256_fmadd_ps(n, all(-LN2_LOW), _mm256_fmadd_ps(n, all(-LN2_HIGH), x));
    let [c0, c1, c2, c3, c4] = EXP_POLY;
    let p = [c3, c2, c1, c0].into_iter().fold(all(c4), |sum, c| _mm256_fmadd_ps(sum, r, all(c)));
    let p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r), all(1.0));
    let n = _mm256_cvtps_epi32(n);
    let half = _mm256_srai_epi32::<1>(n);
    _mm256_mul_ps(_mm256_mul_ps(p, power_of_two(half)), power_of_two(_mm256_sub_epi32(n, half)))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn power_of_two(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn negate(x: __m256) -> __m256 {
    _mm256_xor_ps(x, _mm256_set1_ps(-0.0))
}

/// x · sigmoid(x).
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn silu(x: __m256) -> __m256 {
    _mm256_div_ps(x, _mm256_add_ps(exp(negate(x)), _mm256_set1_ps(1.0)))
}

/// GELU by its tanh approximation.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn gelu_tanh(x: __m256) -> __m256 {
    let one = _mm256_set1_ps(1.0);
    let inner = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(GELU_CUBIC), one);
    let z = _mm256_mul_ps(negate(_mm256_mul_ps(x, _mm256_set1_ps(GELU_SCALE))), inner);
    _mm256_div_ps(x, _mm256_add_ps(exp(z), one))
}
