//! Activations to 8-bit blocks; the rule is in `cpu::acts`.

use crate::cpu::acts::Blocks;
use crate::dequant::INT_BLOCK;
use std::arch::x86_64::{
    __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_max_epi32, _mm_shuffle_epi32, _mm256_and_si256, _mm256_castps_si256,
    _mm256_castsi256_si128, _mm256_cvtps_epi32, _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_max_epi32, _mm256_mul_ps, _mm256_packs_epi16, _mm256_packs_epi32,
    _mm256_permutevar8x32_epi32, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setr_epi32, _mm256_setzero_si256, _mm256_storeu_si256,
};

/// Quantises a row's whole blocks.
///
/// # Safety
/// AVX2, FMA, F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) unsafe fn quantise(x: &[f32], out: &mut Blocks<'_>) {
    for (b, x) in x.chunks_exact(INT_BLOCK).enumerate() {
        // SAFETY: four times 8 of the chunk's 32 floats.
        let v: [_; 4] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) });
        let amax = f32::from_bits(largest_bits(v.map(|v| _mm256_castps_si256(v))).cast_unsigned());
        let inverse = 127.0 / amax;
        let q = if inverse > 0.0 && inverse < f32::INFINITY {
            // |x · inverse| rounds to 127 at most, so saturation never acts.
            let i = v.map(|v| _mm256_cvtps_epi32(_mm256_mul_ps(v, _mm256_set1_ps(inverse))));
            let bytes = _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
            // Packing works in halves of 128 bits: put the words back in order.
            _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
        } else {
            _mm256_setzero_si256()
        };
        let place = &mut out.q[b * INT_BLOCK..][..INT_BLOCK];
        // SAFETY: 32 bytes into a slice of 32.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast::<__m256i>(), q) };
        let sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
        let sum = |four| {
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))) as i16
        };
        out.sums[b] = [sum(_mm256_castsi256_si128(sums)), sum(_mm256_extracti128_si256::<1>(sums))];
        out.d[b] = amax / 127.0;
        out.s[b] = out.d[b] * f32::from(out.sums[b][0] + out.sums[b][1]);
    }
}

/// The largest of 32 floats' bits without their signs.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_bits(v: [__m256i; 4]) -> i32 {
    let bits = v.map(|v| _mm256_and_si256(v, _mm256_set1_epi32(i32::MAX)));
    let eight = _mm256_max_epi32(_mm256_max_epi32(bits[0], bits[1]), _mm256_max_epi32(bits[2], bits[3]));
    let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
    let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
}
