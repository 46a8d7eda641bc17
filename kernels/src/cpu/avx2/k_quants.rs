//! Unpacking of the formats with blocks of 256: Q4_K, Q5_K, Q6_K. Layouts are GGUF's; sub-block i of a group is block i.

use super::quants::split_halves;
use super::tile::{Block8, Rows8, Scales, Unpack};
use std::arch::x86_64::{
    __m256, __m256i, _mm_cvtsi32_si128, _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_mul_ps, _mm256_or_si256,
    _mm256_set_epi32, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_slli_epi32, _mm256_srai_epi16, _mm256_srl_epi16, _mm256_srl_epi32,
    _mm256_srli_epi32, _mm256_xor_ps,
};

/// `(word >> shift) & mask`, byte by byte: the mask removes what came over from the neighbour.
#[inline]
#[target_feature(enable = "avx2")]
fn bits(word: __m256i, shift: usize, mask: i8) -> __m256i {
    _mm256_and_si256(_mm256_srl_epi16(word, _mm_cvtsi32_si128(shift as i32)), _mm256_set1_epi8(mask))
}

/// What the 8 sub-blocks of a Q4_K or Q5_K block share.
pub(crate) struct ScalesAndMins {
    d: __m256,
    d_min: __m256,
    /// 6-bit scales of sub-blocks 0..4 and 4..8, a byte each.
    scales: [__m256i; 2],
    /// 6-bit minima likewise.
    mins: [__m256i; 2],
}

impl ScalesAndMins {
    /// Reads the 16 bytes that begin a block: two f16, then twelve bytes with 6 bits of each of the 16 numbers.
    ///
    /// # Safety
    /// AVX2, F16C; the rows have 16 bytes at `at`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn read(rows: Rows8, at: usize) -> Self {
        // SAFETY: the caller's promise.
        let [head, first, second, third] = unsafe { rows.words(at) };
        let (d, d_min) = split_halves(head);
        let six = _mm256_set1_epi32(0x3f3f_3f3f);
        let four = _mm256_set1_epi32(0x0f0f_0f0f);
        let top = |word| _mm256_and_si256(_mm256_srli_epi32::<2>(word), _mm256_set1_epi32(0x3030_3030));
        let later_scales = _mm256_or_si256(_mm256_and_si256(third, four), top(first));
        let later_mins = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32::<4>(third), four), top(second));
        Self {
            d,
            d_min,
            scales: [_mm256_and_si256(first, six), later_scales],
            mins: [_mm256_and_si256(second, six), later_mins],
        }
    }

    /// Sub-block `i` with the quants `words`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn block(&self, i: usize, words: [__m256i; 8]) -> Block8 {
        let byte = |words: &[__m256i; 2]| {
            let shifted = _mm256_srl_epi32(words[i / 4], _mm_cvtsi32_si128(8 * (i as i32 % 4)));
            _mm256_and_si256(shifted, _mm256_set1_epi32(0xff))
        };
        let scale = byte(&self.scales);
        let pair = _mm256_or_si256(scale, _mm256_slli_epi32::<16>(scale));
        let min = _mm256_mul_ps(self.d_min, _mm256_cvtepi32_ps(byte(&self.mins)));
        Block8 { words, d: self.d, m: _mm256_xor_ps(min, _mm256_set1_ps(-0.0)), scales: [pair, _mm256_setzero_si256()] }
    }
}

/// 32 nibbles of sub-block `i`: two sub-blocks share 32 bytes, the even one has the low nibbles.
///
/// # Safety
/// AVX2; the rows have 128 bytes of quants at `at`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibbles(rows: Rows8, at: usize, i: usize) -> [__m256i; 8] {
    let at = at + 32 * (i / 2);
    // SAFETY: 32 of the caller's 128 bytes.
    let (low, high) = unsafe { (rows.words(at), rows.words(at + 16)) };
    let half = |words: [__m256i; 4], w: usize| bits(words[w % 4], 4 * (i % 2), 15);
    std::array::from_fn(|w| half(if w < 4 { low } else { high }, w))
}

pub(crate) struct Q4K;

impl Unpack for Q4K {
    const BYTES: usize = 18;
    const MERGED: usize = 8;
    const SCALES: Scales = Scales::One;
    const HAS_MIN: bool = true;
    type Group = ScalesAndMins;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(rows: Rows8, g: usize) -> ScalesAndMins {
        // SAFETY: the block's 144 bytes are in each row.
        unsafe { ScalesAndMins::read(rows, 144 * g) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, group: &ScalesAndMins, g: usize, i: usize) -> Block8 {
        // SAFETY: as above.
        group.block(i, unsafe { nibbles(rows, 144 * g + 16, i) })
    }
}

pub(crate) struct Q5K;

impl Unpack for Q5K {
    const BYTES: usize = 22;
    const MERGED: usize = 4;
    const SCALES: Scales = Scales::One;
    const HAS_MIN: bool = true;
    type Group = ScalesAndMins;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(rows: Rows8, g: usize) -> ScalesAndMins {
        // SAFETY: the block's 176 bytes are in each row.
        unsafe { ScalesAndMins::read(rows, 176 * g) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, group: &ScalesAndMins, g: usize, i: usize) -> Block8 {
        let at = 176 * g;
        // SAFETY: as above.
        let (mut words, low, high) = unsafe { (nibbles(rows, at + 48, i), rows.words(at + 16), rows.words(at + 32)) };
        // Bit i of byte e is the fifth bit of element e of sub-block i.
        for (w, word) in words.iter_mut().enumerate() {
            let bit = bits(if w < 4 { low[w] } else { high[w - 4] }, i, 1);
            *word = _mm256_or_si256(*word, _mm256_slli_epi16::<4>(bit));
        }
        group.block(i, words)
    }
}

/// What the 8 sub-blocks of a Q6_K block share.
pub(crate) struct ByteScales {
    d: __m256,
    /// Signed scales, one per 16 elements: 16 bytes.
    scales: [__m256i; 4],
}

impl ByteScales {
    /// Scale `s` of the 16, as a pair of equal i16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pair(&self, s: usize) -> __m256i {
        // The byte goes to the top of both halves of its lane; an arithmetic shift then widens it with its sign.
        let lane = |l: i32| {
            let byte = 4 * (l % 4) + s as i32 % 4;
            (byte << 24) | (0x80 << 16) | (byte << 8) | 0x80
        };
        let spread = _mm256_set_epi32(lane(7), lane(6), lane(5), lane(4), lane(3), lane(2), lane(1), lane(0));
        _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(self.scales[s / 4], spread))
    }
}

pub(crate) struct Q6K;

impl Unpack for Q6K {
    const BYTES: usize = 27;
    const MERGED: usize = 2;
    const OFFSET: i16 = 32;
    const SCALES: Scales = Scales::Two;
    type Group = ByteScales;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(rows: Rows8, g: usize) -> ByteScales {
        // SAFETY: the block's 210 bytes are in each row.
        unsafe { ByteScales { d: rows.half(210 * g + 208), scales: rows.words(210 * g + 192) } }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, group: &ByteScales, g: usize, i: usize) -> Block8 {
        let (half, k) = (i / 4, i % 4);
        let low_at = 210 * g + 64 * half + 32 * (k % 2);
        let high_at = 210 * g + 128 + 32 * half;
        // SAFETY: as above.
        let (low, high) =
            unsafe { ([rows.words(low_at), rows.words(low_at + 16)], [rows.words(high_at), rows.words(high_at + 16)]) };
        let words = std::array::from_fn(|w| {
            let four = bits(low[w / 4][w % 4], 4 * (k / 2), 15);
            let two = bits(high[w / 4][w % 4], 2 * k, 3);
            _mm256_or_si256(four, _mm256_slli_epi16::<4>(two))
        });
        Block8 { words, d: group.d, m: _mm256_setzero_ps(), scales: [group.pair(2 * i), group.pair(2 * i + 1)] }
    }
}
