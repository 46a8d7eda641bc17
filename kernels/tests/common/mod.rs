//! What the kernel tests share: a seeded generator, random blocks with finite scales, and tensors from numbers.
#![allow(dead_code, clippy::print_stdout, reason = "each test file uses its part; a skipped comparison says so")]

use half::f16;
use plimsoll_kernels::backend::{Backend, HostMatrix};
use plimsoll_kernels::cpu::{Cpu, CpuOptions, CpuTensor, CpuWeight, Simd};
use plimsoll_kernels::{Format, dequantize_row};
use std::sync::Arc;

/// SplitMix64: small, seeded, the same everywhere.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in −1..1.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.signed()).collect()
    }
}

/// Where a block of `format` keeps its f16 scales.
fn scale_places(format: Format) -> &'static [usize] {
    match format {
        Format::F32 | Format::F16 | Format::BF16 => &[],
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q6K => &[208],
    }
}

/// A stored row: random bytes, with scales of any size that trained weights could have, subnormal ones among them.
pub(crate) fn random_row(rng: &mut Rng, format: Format, n_cols: usize) -> Vec<u8> {
    match format {
        Format::F32 => return rng.floats(n_cols).iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::F16 => return rng.floats(n_cols).iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        Format::BF16 => return rng.floats(n_cols).iter().flat_map(|x| x.to_le_bytes()[2..].to_vec()).collect(),
        Format::Q4_0
        | Format::Q4_1
        | Format::Q5_0
        | Format::Q5_1
        | Format::Q8_0
        | Format::Q4K
        | Format::Q5K
        | Format::Q6K => {}
    }
    let n_bytes = format.row_bytes(n_cols).expect("whole blocks");
    let mut bytes: Vec<u8> = (0..n_bytes).map(|_| rng.next() as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for &place in scale_places(format) {
            let size = 2.0_f32.powi(-((rng.next() % 20) as i32));
            let scale = f16::from_f32(rng.signed() * size);
            block[place..place + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    bytes
}

/// Random rows behind each other, preceded by `offset` bytes that are not theirs.
pub(crate) fn random_matrix(rng: &mut Rng, format: Format, n_rows: usize, n_cols: usize, offset: usize) -> HostMatrix {
    let mut bytes = vec![0xff_u8; offset];
    for _ in 0..n_rows {
        bytes.extend(random_row(rng, format, n_cols));
    }
    HostMatrix { range: offset..bytes.len(), owner: Arc::new(bytes), format, n_rows, n_cols }
}

/// The rows of a matrix as numbers.
pub(crate) fn widened(matrix: &HostMatrix) -> Vec<Vec<f32>> {
    let bytes = &(*matrix.owner).as_ref()[matrix.range.clone()];
    let row_bytes = matrix.format.row_bytes(matrix.n_cols).expect("whole blocks");
    let widen = |row: &[u8]| {
        let mut out = vec![0.0; matrix.n_cols];
        dequantize_row(matrix.format, row, &mut out);
        out
    };
    bytes.chunks_exact(row_bytes).map(widen).collect()
}

pub(crate) fn cpu(n_threads: usize, simd: Simd) -> Cpu {
    let cpu = Cpu::new(CpuOptions { n_threads, simd });
    if simd == Simd::Auto && cpu.simd() == Simd::Portable {
        println!("skipped in part: this machine has no AVX2, FMA and F16C, so portable code meets itself");
    }
    cpu
}

/// A tensor with these rows.
pub(crate) fn tensor(cpu: &mut Cpu, width: usize, values: &[f32]) -> CpuTensor {
    let n_rows = values.len() / width;
    let mut tensor = cpu.tensor(n_rows, width).expect("a small tensor");
    cpu.set_rows(&mut tensor, n_rows);
    for (i, row) in values.chunks_exact(width).enumerate() {
        tensor.row_mut(i).copy_from_slice(row);
    }
    tensor
}

/// A weight of one f32 row.
pub(crate) fn vector(cpu: &mut Cpu, values: &[f32]) -> CpuWeight {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let host = HostMatrix {
        range: 0..bytes.len(),
        owner: Arc::new(bytes),
        format: Format::F32,
        n_rows: 1,
        n_cols: values.len(),
    };
    cpu.weight(host).expect("a vector")
}

/// All rows in use, as bits.
pub(crate) fn bits(tensor: &CpuTensor) -> Vec<u32> {
    (0..tensor.n_rows()).flat_map(|i| tensor.row(i).iter().map(|x| x.to_bits())).collect()
}
