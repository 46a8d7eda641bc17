//! Unpacking of the formats with blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Layouts are GGUF's.

use super::tile::{Block8, Rows8, Unpack};
use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadu_si128, _mm_set_epi16, _mm256_and_si256, _mm256_castsi128_si256,
    _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cvtph_ps, _mm256_extracti128_si256, _mm256_inserti128_si256,
    _mm256_or_si256, _mm256_packus_epi32, _mm256_permute4x64_epi64, _mm256_set_epi32, _mm256_set1_epi8,
    _mm256_set1_epi32, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm256_srli_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

impl Rows8 {
    /// Sixteen bytes at `offset` of each of the 8 rows, transposed: vector w holds word w (4 bytes) of row r in lane r.
    ///
    /// # Safety
    /// AVX2; every row has 16 bytes there.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn words(self, offset: usize) -> [__m256i; 4] {
        // SAFETY: the caller's promise.
        let row = |r: usize| unsafe { _mm_loadu_si128(self.first.add(r * self.stride + offset).cast::<__m128i>()) };
        let pair = |r: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(r)), row(r + 4));
        let (r0, r1, r2, r3) = (pair(0), pair(1), pair(2), pair(3));
        let (low01, high01) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpackhi_epi32(r0, r1));
        let (low23, high23) = (_mm256_unpacklo_epi32(r2, r3), _mm256_unpackhi_epi32(r2, r3));
        [
            _mm256_unpacklo_epi64(low01, low23),
            _mm256_unpackhi_epi64(low01, low23),
            _mm256_unpacklo_epi64(high01, high23),
            _mm256_unpackhi_epi64(high01, high23),
        ]
    }

    /// Four bytes at `offset` of each row.
    ///
    /// # Safety
    /// AVX2; every row has 4 bytes there.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn word(self, offset: usize) -> __m256i {
        // SAFETY: the caller's promise.
        let at = |r: usize| unsafe { self.first.add(r * self.stride + offset).cast::<i32>().read_unaligned() };
        _mm256_set_epi32(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0))
    }

    /// The f16 at `offset` of each row, widened.
    ///
    /// # Safety
    /// AVX2, F16C; every row has 2 bytes there.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn half(self, offset: usize) -> __m256 {
        // SAFETY: the caller's promise.
        let at = |r: usize| unsafe { self.first.add(r * self.stride + offset).cast::<i16>().read_unaligned() };
        _mm256_cvtph_ps(_mm_set_epi16(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0)))
    }

    /// The two f16 at `offset` of each row, widened.
    ///
    /// # Safety
    /// AVX2, F16C; every row has 4 bytes there.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn halves(self, offset: usize) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        split_halves(unsafe { self.word(offset) })
    }
}

/// The low and the high f16 of each lane, widened.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn split_halves(both: __m256i) -> (__m256, __m256) {
    let low = _mm256_and_si256(both, _mm256_set1_epi32(0xffff));
    let packed = _mm256_packus_epi32(low, _mm256_srli_epi32::<16>(both));
    let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
    (_mm256_cvtph_ps(_mm256_castsi256_si128(packed)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed)))
}

/// Nibbles of 16 bytes per row: the low ones are elements 0..16, the high ones 16..32.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles([w0, w1, w2, w3]: [__m256i; 4]) -> [__m256i; 8] {
    let mask = _mm256_set1_epi8(15);
    let low = |w| _mm256_and_si256(w, mask);
    let high = |w| _mm256_and_si256(_mm256_srli_epi16::<4>(w), mask);
    [low(w0), low(w1), low(w2), low(w3), high(w0), high(w1), high(w2), high(w3)]
}

/// Sets bit 4 of element i (byte i % 4 of word i / 4) where bit i of the lane of `bits` is set.
#[inline]
#[target_feature(enable = "avx2")]
fn with_fifth_bits(mut words: [__m256i; 8], bits: __m256i) -> [__m256i; 8] {
    for (w, word) in words.iter_mut().enumerate() {
        // Byte w/2 of each lane in all four of its bytes, and the bit of each element in it.
        let byte = |lane: i32| (4 * (lane % 4) + w as i32 / 2) * 0x0101_0101;
        let spread = _mm256_set_epi32(byte(7), byte(6), byte(5), byte(4), byte(3), byte(2), byte(1), byte(0));
        let place = _mm256_set1_epi32(if w % 2 == 0 { 0x0804_0201 } else { 0x8040_2010_u32.cast_signed() });
        let bit = _mm256_and_si256(_mm256_shuffle_epi8(bits, spread), place);
        let is_set = _mm256_cmpeq_epi8(bit, place);
        *word = _mm256_or_si256(*word, _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
    }
    words
}

#[inline]
#[target_feature(enable = "avx2")]
fn block(words: [__m256i; 8], d: __m256, m: __m256) -> Block8 {
    Block8 { words, d, m, scales: [_mm256_setzero_si256(); 2] }
}

pub(crate) struct Q4_0;

impl Unpack for Q4_0 {
    const BYTES: usize = 18;
    const MERGED: usize = 8;
    const OFFSET: i16 = 8;
    type Group = ();

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(_: Rows8, _: usize) {}

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, (): &(), g: usize, i: usize) -> Block8 {
        let at = (8 * g + i) * Self::BYTES;
        // SAFETY: the block's 18 bytes are in each row.
        let (words, d) = unsafe { (rows.words(at + 2), rows.half(at)) };
        block(nibbles(words), d, _mm256_setzero_ps())
    }
}

pub(crate) struct Q4_1;

impl Unpack for Q4_1 {
    const BYTES: usize = 20;
    const MERGED: usize = 8;
    const HAS_MIN: bool = true;
    type Group = ();

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(_: Rows8, _: usize) {}

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, (): &(), g: usize, i: usize) -> Block8 {
        let at = (8 * g + i) * Self::BYTES;
        // SAFETY: the block's 20 bytes are in each row.
        let (words, (d, m)) = unsafe { (rows.words(at + 4), rows.halves(at)) };
        block(nibbles(words), d, m)
    }
}

pub(crate) struct Q5_0;

impl Unpack for Q5_0 {
    const BYTES: usize = 22;
    const MERGED: usize = 4;
    const OFFSET: i16 = 16;
    type Group = ();

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(_: Rows8, _: usize) {}

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, (): &(), g: usize, i: usize) -> Block8 {
        let at = (8 * g + i) * Self::BYTES;
        // SAFETY: the block's 22 bytes are in each row.
        let (words, bits, d) = unsafe { (rows.words(at + 6), rows.word(at + 2), rows.half(at)) };
        block(with_fifth_bits(nibbles(words), bits), d, _mm256_setzero_ps())
    }
}

pub(crate) struct Q5_1;

impl Unpack for Q5_1 {
    const BYTES: usize = 24;
    const MERGED: usize = 4;
    const HAS_MIN: bool = true;
    type Group = ();

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(_: Rows8, _: usize) {}

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, (): &(), g: usize, i: usize) -> Block8 {
        let at = (8 * g + i) * Self::BYTES;
        // SAFETY: the block's 24 bytes are in each row.
        let (words, bits, (d, m)) = unsafe { (rows.words(at + 8), rows.word(at + 4), rows.halves(at)) };
        block(with_fifth_bits(nibbles(words), bits), d, m)
    }
}

pub(crate) struct Q8_0;

impl Unpack for Q8_0 {
    const BYTES: usize = 34;
    const MERGED: usize = 1;
    const SIGNED: bool = true;
    type Group = ();

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn group(_: Rows8, _: usize) {}

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(rows: Rows8, (): &(), g: usize, i: usize) -> Block8 {
        let at = (8 * g + i) * Self::BYTES;
        // SAFETY: the block's 34 bytes are in each row.
        let ([w0, w1, w2, w3], [w4, w5, w6, w7], d) =
            unsafe { (rows.words(at + 2), rows.words(at + 18), rows.half(at)) };
        block([w0, w1, w2, w3, w4, w5, w6, w7], d, _mm256_setzero_ps())
    }
}
