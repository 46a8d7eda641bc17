//! From stored blocks to numbers: each format's definition, in two forms.
//!
//! [`dequantize_row`] gives the f32 values with the roundings that GGUF's own definition has (the `gguf` Python package is
//! the oracle in the tests). `int_block` gives the same block as integers with a scale and a minimum, which is what an
//! integer product multiplies with; the vector kernels compute the same integers by other means.

use crate::format::Format;
use half::{bf16, f16};

/// Elements of one integer block: the unit of every integer product, whatever the format's own block is.
pub const INT_BLOCK: usize = 32;

/// 32 weights as integers: weight ≈ `d · w + m`, with the format's own integer scales and offset already inside `w`.
pub(crate) struct IntBlock {
    /// Integer weights, sub-block scales multiplied in.
    pub(crate) w: [i32; INT_BLOCK],
    /// Scale of the block.
    pub(crate) d: f32,
    /// What is added to each weight; `None` for formats without minimum.
    pub(crate) m: Option<f32>,
}

fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Element i of a block of 32 nibbles: the low ones are elements 0..16, the high ones 16..32.
fn nibble(quants: &[u8], i: usize) -> i32 {
    i32::from(if i < 16 { quants[i] & 15 } else { quants[i - 16] >> 4 })
}

/// The fifth bit of element i, at its place.
fn fifth_bit(bits: &[u8], i: usize) -> i32 {
    i32::from((bits[i / 8] >> (i % 8)) & 1) << 4
}

/// 6-bit scale and minimum of sub-block `j` (0..8) of a Q4_K or Q5_K block: the first four have 6 bits of a byte each, the
/// last four have 4 bits in a byte and 2 on top of an earlier one.
fn scale_and_min(packed: &[u8], j: usize) -> (i32, i32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        ((packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4), (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4))
    };
    (i32::from(scale), i32::from(min))
}

/// Element `i` of sub-block `j` of 256 nibbles: two sub-blocks share 32 bytes, the even one has the low nibbles.
fn super_nibble(quants: &[u8], j: usize, i: usize) -> i32 {
    i32::from((quants[32 * (j / 2) + i] >> (4 * (j % 2))) & 15)
}

/// Element `i` of sub-block `j` (of 32) of a Q6_K block, 0..=63: four bits in `low`, two in `high`.
fn six_bits(low: &[u8], high: &[u8], j: usize, i: usize) -> i32 {
    let (half, k) = (j / 4, j % 4);
    let lo = (low[64 * half + 32 * (k % 2) + i] >> (4 * (k / 2))) & 15;
    let hi = (high[32 * half + i] >> (2 * k)) & 3;
    i32::from(lo | (hi << 4))
}

/// Block `b` of 32 elements of an integer format's row.
pub(crate) fn int_block(format: Format, row: &[u8], b: usize) -> IntBlock {
    let per_block = format.block_elements() / INT_BLOCK;
    let bytes = &row[b / per_block * format.block_bytes()..][..format.block_bytes()];
    let j = b % per_block;
    let ints = |f: &dyn Fn(usize) -> i32| std::array::from_fn(f);
    match format {
        Format::Q4_0 => IntBlock { w: ints(&|i| nibble(&bytes[2..], i) - 8), d: f16_at(bytes, 0), m: None },
        Format::Q4_1 => {
            IntBlock { w: ints(&|i| nibble(&bytes[4..], i)), d: f16_at(bytes, 0), m: Some(f16_at(bytes, 2)) }
        }
        Format::Q5_0 => IntBlock {
            w: ints(&|i| (nibble(&bytes[6..], i) | fifth_bit(&bytes[2..6], i)) - 16),
            d: f16_at(bytes, 0),
            m: None,
        },
        Format::Q5_1 => IntBlock {
            w: ints(&|i| nibble(&bytes[8..], i) | fifth_bit(&bytes[4..8], i)),
            d: f16_at(bytes, 0),
            m: Some(f16_at(bytes, 2)),
        },
        Format::Q8_0 => IntBlock { w: ints(&|i| i32::from(bytes[2 + i].cast_signed())), d: f16_at(bytes, 0), m: None },
        Format::Q4K => {
            let (scale, min) = scale_and_min(&bytes[4..16], j);
            IntBlock {
                w: ints(&|i| scale * super_nibble(&bytes[16..], j, i)),
                d: f16_at(bytes, 0),
                m: Some(-(f16_at(bytes, 2) * min as f32)),
            }
        }
        Format::Q5K => {
            let (scale, min) = scale_and_min(&bytes[4..16], j);
            let fifth = |i: usize| i32::from((bytes[16 + i] >> j) & 1) << 4;
            IntBlock {
                w: ints(&|i| scale * (super_nibble(&bytes[48..], j, i) | fifth(i))),
                d: f16_at(bytes, 0),
                m: Some(-(f16_at(bytes, 2) * min as f32)),
            }
        }
        Format::Q6K => {
            let scale = |i: usize| i32::from(bytes[192 + 2 * j + i / 16].cast_signed());
            IntBlock {
                w: ints(&|i| scale(i) * (six_bits(&bytes[..128], &bytes[128..192], j, i) - 32)),
                d: f16_at(bytes, 208),
                m: None,
            }
        }
        Format::F32 | Format::F16 | Format::BF16 => unreachable!("float formats have no integer blocks"),
    }
}

/// Writes the values of a stored row: `out.len()` elements from `row`, which must be whole blocks of `format`.
///
/// Bit-exact to the format's definition: one rounding for scale × quant, one for adding the minimum; scale × sub-block scale
/// is rounded first.
///
/// # Panics
/// If `row` is not `format.row_bytes(out.len())` bytes long.
pub fn dequantize_row(format: Format, row: &[u8], out: &mut [f32]) {
    assert_eq!(Some(row.len()), format.row_bytes(out.len()), "a {format} row of {} elements", out.len());
    let blocks = row.chunks_exact(format.block_bytes()).zip(out.chunks_exact_mut(format.block_elements()));
    match format {
        Format::F32 => blocks.for_each(|(b, y)| y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        Format::F16 => blocks.for_each(|(b, y)| y[0] = f16_at(b, 0)),
        Format::BF16 => blocks.for_each(|(b, y)| y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => blocks.for_each(|(bytes, y)| {
            let block = int_block(format, bytes, 0);
            for (y, w) in y.iter_mut().zip(block.w) {
                *y = block.d * w as f32;
                if let Some(m) = block.m {
                    *y += m;
                }
            }
        }),
        Format::Q4K | Format::Q5K => blocks.for_each(|(bytes, y)| five_or_four_bits(format, bytes, y)),
        Format::Q6K => blocks.for_each(|(bytes, y)| {
            for (e, y) in y.iter_mut().enumerate() {
                let scale = f16_at(bytes, 208) * f32::from(bytes[192 + e / 16].cast_signed());
                *y = scale * (six_bits(&bytes[..128], &bytes[128..192], e / 32, e % 32) - 32) as f32;
            }
        }),
    }
}

/// A Q4_K or Q5_K block: `(d · scale) · q − dmin · min`.
fn five_or_four_bits(format: Format, bytes: &[u8], out: &mut [f32]) {
    for (j, out) in out.chunks_exact_mut(INT_BLOCK).enumerate() {
        let (scale, min) = scale_and_min(&bytes[4..16], j);
        let (scale, min) = (f16_at(bytes, 0) * scale as f32, f16_at(bytes, 2) * min as f32);
        for (i, y) in out.iter_mut().enumerate() {
            let q = if format == Format::Q5K {
                super_nibble(&bytes[48..], j, i) | (i32::from((bytes[16 + i] >> j) & 1) << 4)
            } else {
                super_nibble(&bytes[16..], j, i)
            };
            *y = scale * q as f32 - min;
        }
    }
}
