//! Integer products, 8 weight rows at a time: lane = row.
//!
//! A block of 32 elements of 8 rows is brought into 8 vectors, one per word of 4 elements; lane r of each holds row r. One
//! broadcast word of activations then meets 8 rows at once, sums stay inside their lane, and the 8 chains of the defined
//! order are 8 vectors. Measured on 100 MB of Q4_1: 10–16 GB/s on one thread straight from the file's layout, where one row
//! at a time reaches 6–10; a copy repacked at load would add 10–20 % and cost its bytes.
//!
//! Each format says how to unpack a block (`Unpack`) and by which numbers its integers combine; the rest is this file.

use crate::cpu::acts::ActRow;
use crate::cpu::matmul::{Panel, Product, TILE};
use crate::dequant::INT_BLOCK;
use crate::order::INT_CHAINS;
use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_ps,
    _mm256_blend_epi16, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_mullo_epi32, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_sign_epi8, _mm256_storeu_ps, _mm256_sub_epi32,
};
use std::marker::PhantomData;
use std::ops::Range;

/// Tokens that share one load of a panel's block. 8 were slower: their sums spill.
const TOKENS: usize = 4;

/// The 8 rows of a tile, where they lie in the weight's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Rows8 {
    pub(super) first: *const u8,
    /// Bytes from one row to the next; 0 repeats one row in all lanes.
    pub(super) stride: usize,
}

/// One block of 32 elements of 8 rows; lane = row.
#[derive(Clone, Copy)]
pub(crate) struct Block8 {
    /// Word w holds elements 4w..4w+4 as bytes.
    pub(super) words: [__m256i; 8],
    /// Scales of the blocks.
    pub(super) d: __m256,
    /// What is added to each weight, where the format has it.
    pub(super) m: __m256,
    /// Integer scales of elements 0..16 and 16..32, as pairs of equal i16; those of the format that are in use.
    pub(super) scales: [__m256i; 2],
}

/// Integer scales inside a block of 32.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scales {
    None,
    /// One per 32.
    One,
    /// One per 16.
    Two,
}

/// How one format becomes [`Block8`]s, and how its integers combine.
pub(crate) trait Unpack {
    /// Bytes of 32 elements of one row (K formats: an eighth of their block, rounded up).
    const BYTES: usize;
    /// Words whose byte products can be added in i16: 2 · 127 · largest quant · MERGED must stay within 32,767.
    const MERGED: usize;
    /// Quants are signed bytes (else unsigned, with `OFFSET` subtracted).
    const SIGNED: bool = false;
    /// What the format subtracts from each stored quant.
    const OFFSET: i16 = 0;
    const SCALES: Scales = Scales::None;
    const HAS_MIN: bool = false;

    /// What 8 blocks (256 elements) share.
    type Group;

    /// Opens blocks 8·g..8·(g+1).
    ///
    /// # Safety
    /// AVX2, FMA, F16C; the rows hold the blocks of group `g` that will be asked for.
    unsafe fn group(rows: Rows8, g: usize) -> Self::Group;

    /// Block 8·g + i.
    ///
    /// # Safety
    /// As for `group`; `group` is that of `g`, and the rows hold the block.
    unsafe fn block(rows: Rows8, group: &Self::Group, g: usize, i: usize) -> Block8;
}

/// Where a product's blocks come from.
trait Source {
    type Group;
    /// # Safety
    /// As for [`Unpack::group`].
    unsafe fn open(&self, g: usize) -> Self::Group;
    /// # Safety
    /// As for [`Unpack::block`].
    unsafe fn block(&self, group: &Self::Group, g: usize, i: usize) -> Block8;
}

/// Straight from the stored rows, for few tokens.
struct Stored<F>(Rows8, PhantomData<F>);

impl<F: Unpack> Source for Stored<F> {
    type Group = F::Group;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn open(&self, g: usize) -> F::Group {
        // SAFETY: passed on to the caller.
        unsafe { F::group(self.0, g) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(&self, group: &F::Group, g: usize, i: usize) -> Block8 {
        // Eight rows are eight streams: more than the prefetcher follows well. So the next tile is asked for in order.
        let ahead = self.0.stride * TILE + (g * INT_CHAINS + i) * F::BYTES * TILE;
        for line in 0..(F::BYTES * TILE).div_ceil(64) {
            _mm_prefetch::<_MM_HINT_T0>(self.0.first.wrapping_add(ahead + 64 * line).cast());
        }
        // SAFETY: passed on to the caller.
        unsafe { F::block(self.0, group, g, i) }
    }
}

/// From a panel that is unpacked already.
struct Unpacked<'a>(&'a [Block8]);

impl Source for Unpacked<'_> {
    type Group = ();

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn open(&self, _: usize) {}

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(&self, (): &(), g: usize, i: usize) -> Block8 {
        self.0[g * INT_CHAINS + i]
    }
}

/// Output rows `rows` for all tokens.
///
/// # Safety
/// AVX2, FMA, F16C; no other thread holds these rows of the output; `rows` begins at a whole tile.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn product<F: Unpack>(product: &Product<'_>, rows: Range<usize>, panel: &mut Panel) {
    let mut first = rows.start;
    while first < rows.end {
        let end = (first + TILE).min(rows.end);
        // SAFETY: the caller's promises; `tile` is given rows that exist.
        unsafe {
            if end >= TILE {
                // A part-filled last tile reaches back over rows that are done, and stores only its own.
                let at = Rows8 { first: product.row(end - TILE).as_ptr(), stride: product.weight.row_bytes() };
                tile::<F>(product, at, first..end, end - first, panel);
            } else {
                // Fewer than 8 rows in all: each in a tile of its own.
                for row in first..end {
                    let at = Rows8 { first: product.row(row).as_ptr(), stride: 0 };
                    tile::<F>(product, at, row..row + 1, 1, panel);
                }
            }
        }
        first = end;
    }
}

/// One tile for all tokens; its last `n_lanes` lanes are output rows `out`.
///
/// # Safety
/// As for `product`; `at` points to 8 whole rows (one if its stride is 0).
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: Unpack>(product: &Product<'_>, at: Rows8, out: Range<usize>, n_lanes: usize, panel: &mut Panel) {
    let n_tokens = product.acts.n_rows();
    let n_blocks = product.weight.n_cols() / INT_BLOCK;
    let store = |token: usize, sums: &[__m256]| {
        for (token, sum) in (token..).zip(sums) {
            let mut lanes = [0.0_f32; TILE];
            // SAFETY: 8 floats into 8; the output rows are this part's, one slice at a time.
            unsafe {
                _mm256_storeu_ps(lanes.as_mut_ptr(), *sum);
                product.out(token, out.clone()).copy_from_slice(&lanes[TILE - n_lanes..]);
            }
        }
    };
    let acts = |token: usize| product.acts.row(token);
    // SAFETY: the caller's promises; the panel holds all blocks when it is read.
    unsafe {
        if n_tokens < TOKENS {
            let source = Stored::<F>(at, PhantomData);
            match n_tokens {
                0 => {}
                1 => store(0, &multiply::<F, _, 1>(&source, n_blocks, [acts(0)])),
                2 => store(0, &multiply::<F, _, 2>(&source, n_blocks, [acts(0), acts(1)])),
                3.. => store(0, &multiply::<F, _, 3>(&source, n_blocks, [acts(0), acts(1), acts(2)])),
            }
            return;
        }
        unpack::<F>(at, n_blocks, &mut panel.blocks);
        let source = Unpacked(&panel.blocks);
        let mut token = 0;
        while token + TOKENS <= n_tokens {
            let acts = std::array::from_fn(|j| acts(token + j));
            store(token, &multiply::<F, _, TOKENS>(&source, n_blocks, acts));
            token += TOKENS;
        }
        for token in token..n_tokens {
            store(token, &multiply::<F, _, 1>(&source, n_blocks, [acts(token)]));
        }
    }
}

/// Unpacks a tile's rows.
///
/// # Safety
/// As for `tile`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack<F: Unpack>(at: Rows8, n_blocks: usize, blocks: &mut Vec<Block8>) {
    blocks.clear();
    blocks.reserve(n_blocks);
    for g in 0..n_blocks.div_ceil(INT_CHAINS) {
        // SAFETY: only blocks that the rows hold are asked for.
        unsafe {
            let group = F::group(at, g);
            for i in 0..INT_CHAINS.min(n_blocks - g * INT_CHAINS) {
                blocks.push(F::block(at, &group, g, i));
            }
        }
    }
}

/// Eight rows times `T` tokens: the 8 chains of every (row, token), and their tree.
///
/// # Safety
/// AVX2, FMA, F16C; `source` has `n_blocks` blocks, and so has each of `acts`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply<F: Unpack, S: Source, const T: usize>(
    source: &S,
    n_blocks: usize,
    acts: [ActRow<'_>; T],
) -> [__m256; T] {
    for acts in &acts {
        assert!(acts.d.len() >= n_blocks, "activations of {n_blocks} blocks");
    }
    let mut chains = [[_mm256_setzero_ps(); T]; INT_CHAINS];
    for g in 0..n_blocks.div_ceil(INT_CHAINS) {
        // SAFETY: groups and blocks below `n_blocks`, checked against the activations above.
        unsafe {
            let group = source.open(g);
            let whole = g * INT_CHAINS + INT_CHAINS <= n_blocks;
            if whole {
                for (i, chain) in chains.iter_mut().enumerate() {
                    add_block::<F, T>(chain, &source.block(&group, g, i), &acts, g * INT_CHAINS + i);
                }
            } else {
                for (i, chain) in chains.iter_mut().enumerate().take(n_blocks - g * INT_CHAINS) {
                    add_block::<F, T>(chain, &source.block(&group, g, i), &acts, g * INT_CHAINS + i);
                }
            }
        }
    }
    let mut sums = [_mm256_setzero_ps(); T];
    for (token, sum) in sums.iter_mut().enumerate() {
        let c = |i: usize| chains[i][token];
        let even = _mm256_add_ps(_mm256_add_ps(c(0), c(4)), _mm256_add_ps(c(2), c(6)));
        let odd = _mm256_add_ps(_mm256_add_ps(c(1), c(5)), _mm256_add_ps(c(3), c(7)));
        *sum = _mm256_add_ps(even, odd);
    }
    sums
}

/// Adds block `b` of 8 rows times `T` tokens to its chain.
///
/// # Safety
/// AVX2, FMA, F16C; each of `acts` has more than `b` blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<F: Unpack, const T: usize>(
    chain: &mut [__m256; T],
    block: &Block8,
    acts: &[ActRow<'_>; T],
    b: usize,
) {
    for (sum, acts) in chain.iter_mut().zip(acts) {
        // SAFETY: block `b` is there by the caller's promise.
        unsafe {
            let exact = _mm256_cvtepi32_ps(integers::<F>(block, acts, b));
            let scale = _mm256_mul_ps(block.d, _mm256_set1_ps(*acts.d.get_unchecked(b)));
            *sum = _mm256_fmadd_ps(scale, exact, *sum);
            if F::HAS_MIN {
                *sum = _mm256_fmadd_ps(block.m, _mm256_set1_ps(*acts.s.get_unchecked(b)), *sum);
            }
        }
    }
}

/// The exact integer of block `b` of 8 rows and one token.
///
/// # Safety
/// AVX2, FMA, F16C; `acts` has more than `b` blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn integers<F: Unpack>(block: &Block8, acts: &ActRow<'_>, b: usize) -> __m256i {
    // SAFETY: 32 quants and two sums per block, and the block is there by the caller's promise.
    let (quants, sums) = unsafe {
        (acts.q.as_ptr().add(b * INT_BLOCK).cast::<i32>(), acts.sums.as_ptr().add(b).cast::<i32>().read_unaligned())
    };
    let ones = _mm256_set1_epi16(1);
    let mut total = _mm256_setzero_si256();
    for start in (0..8).step_by(F::MERGED) {
        let mut pairs = _mm256_setzero_si256();
        for w in start..start + F::MERGED {
            // SAFETY: word w of the block's 8.
            let a = _mm256_set1_epi32(unsafe { quants.add(w).read_unaligned() });
            let product = if F::SIGNED {
                _mm256_maddubs_epi16(_mm256_abs_epi8(block.words[w]), _mm256_sign_epi8(a, block.words[w]))
            } else {
                _mm256_maddubs_epi16(block.words[w], a)
            };
            pairs = _mm256_add_epi16(pairs, product);
        }
        let factor = match F::SCALES {
            Scales::None => ones,
            Scales::One => block.scales[0],
            Scales::Two => block.scales[start / 4],
        };
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, factor));
    }
    if F::OFFSET == 0 {
        return total;
    }
    let sums = _mm256_set1_epi32(sums);
    let offset = match F::SCALES {
        Scales::None => _mm256_madd_epi16(sums, _mm256_set1_epi16(F::OFFSET)),
        // The products of scales and sums would leave i16 if the offset (a power of two) were multiplied in first.
        Scales::One => {
            _mm256_mullo_epi32(_mm256_madd_epi16(sums, block.scales[0]), _mm256_set1_epi32(F::OFFSET.into()))
        }
        Scales::Two => {
            let both = _mm256_blend_epi16::<0xaa>(block.scales[0], block.scales[1]);
            _mm256_mullo_epi32(_mm256_madd_epi16(sums, both), _mm256_set1_epi32(F::OFFSET.into()))
        }
    };
    _mm256_sub_epi32(total, offset)
}
