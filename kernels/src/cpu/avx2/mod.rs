//! AVX2, FMA and F16C kernels. Each has the bits of the portable code it stands for; property tests compare them.
//!
//! Every function here may only be called on a machine that has the three extensions: `Level::Avx2` is the proof.
#![allow(unsafe_code, reason = "vector loads and stores by pointer, from bytes at any alignment")]

pub(super) mod acts;
pub(super) mod attention;
mod floats;
mod k_quants;
mod quants;
pub(super) mod rows;
pub(super) mod tile;

use super::matmul::{Panel, Product};
use crate::format::Format;
use std::ops::Range;

/// Output rows `rows` of a product, for all tokens.
///
/// # Safety
/// The machine has AVX2, FMA and F16C; no other thread holds these rows of the output; `rows` begins at a whole tile.
pub(super) unsafe fn rows_product(product: &Product<'_>, rows: Range<usize>, panel: &mut Panel) {
    // SAFETY: passed on to the caller.
    unsafe {
        match product.weight.format() {
            Format::F32 => floats::product::<floats::F32>(product, rows),
            Format::F16 => floats::product::<floats::F16>(product, rows),
            Format::BF16 => floats::product::<floats::BF16>(product, rows),
            Format::Q4_0 => tile::product::<quants::Q4_0>(product, rows, panel),
            Format::Q4_1 => tile::product::<quants::Q4_1>(product, rows, panel),
            Format::Q5_0 => tile::product::<quants::Q5_0>(product, rows, panel),
            Format::Q5_1 => tile::product::<quants::Q5_1>(product, rows, panel),
            Format::Q8_0 => tile::product::<quants::Q8_0>(product, rows, panel),
            Format::Q4K => tile::product::<k_quants::Q4K>(product, rows, panel),
            Format::Q5K => tile::product::<k_quants::Q5K>(product, rows, panel),
            Format::Q6K => tile::product::<k_quants::Q6K>(product, rows, panel),
        }
    }
}
