//! Products: AVX2 has the portable bits, for every format and any batch; and they are right, against f64.

mod common;

use common::{Rng, bits, cpu, random_matrix, tensor, widened};
use plimsoll_kernels::Format;
use plimsoll_kernels::backend::{Backend, BackendError, HostMatrix};
use plimsoll_kernels::cpu::{Cpu, Simd};
use proptest::prelude::{ProptestConfig, any, proptest};
use std::sync::Arc;

/// `weight · x` for all rows of `x` at once, as bits.
fn product(cpu: &mut Cpu, matrix: &HostMatrix, x: &[f32]) -> Vec<u32> {
    let x = tensor(cpu, matrix.n_cols, x);
    let weight = cpu.weight(matrix.clone()).expect("a weight that fits");
    let mut acts = cpu.acts(x.n_rows(), matrix.n_cols).expect("small");
    let mut out = cpu.tensor(x.n_rows(), matrix.n_rows).expect("small");
    cpu.prepare(&x, &mut acts);
    cpu.matmul(&weight, &acts, &mut out);
    bits(&out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn avx2_and_threads_and_batches_keep_the_portable_bits(
        seed in any::<u64>(),
        n_rows in 1_usize..40,
        blocks in 1_usize..21,
        odd_cols in 0_usize..32,
        n_tokens in 1_usize..10,
        offset in 0_usize..5,
        n_threads in 1_usize..4,
    ) {
        let mut rng = Rng(seed);
        for format in Format::all() {
            let n_cols = match format.block_elements() {
                1 => blocks * 32 + odd_cols,
                32 => blocks * 32,
                block => blocks.div_ceil(8) * block,
            };
            let matrix = random_matrix(&mut rng, format, n_rows, n_cols, offset);
            let x = rng.floats(n_cols * n_tokens);
            let expect = product(&mut cpu(1, Simd::Portable), &matrix, &x);
            let all = product(&mut cpu(n_threads, Simd::Auto), &matrix, &x);
            assert_eq!(all, expect, "{format} {n_rows} × {n_cols}, {n_tokens} tokens");
            let mut one_by_one = Vec::new();
            for x in x.chunks_exact(n_cols) {
                one_by_one.extend(product(&mut cpu(1, Simd::Auto), &matrix, x));
            }
            assert_eq!(one_by_one, expect, "{format} {n_rows} × {n_cols}, token by token");
        }
    }
}

/// Extreme quants and activations: every integer stays exact.
#[test]
fn extreme_blocks_do_not_overflow() {
    for format in Format::all().filter(|format| format.is_integer()) {
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            let n_cols = 512;
            let mut bytes = vec![fill; format.row_bytes(n_cols).expect("whole blocks") * 8];
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                let scales: &[usize] = if format == Format::Q6K { &[208] } else { &[0, 2] };
                for &at in &scales[..if format == Format::Q8_0 || format == Format::Q4_0 { 1 } else { scales.len() }] {
                    block[at..at + 2].copy_from_slice(&half::f16::from_f32(0.5).to_le_bytes());
                }
            }
            let matrix = HostMatrix { range: 0..bytes.len(), owner: Arc::new(bytes), format, n_rows: 8, n_cols };
            for x in [vec![1.0; n_cols], vec![-1.0; n_cols]] {
                let expect = product(&mut cpu(1, Simd::Portable), &matrix, &x);
                assert_eq!(product(&mut cpu(1, Simd::Auto), &matrix, &x), expect, "{format} of {fill:#x}");
                let batch = x.repeat(5);
                assert_eq!(
                    product(&mut cpu(1, Simd::Auto), &matrix, &batch),
                    expect.repeat(5),
                    "{format} of {fill:#x}"
                );
            }
        }
    }
}

/// The weights' values times the f32 activations in f64: the 8-bit activations cost under 1 % of the terms' size.
#[test]
fn products_are_right() {
    let mut rng = Rng(7);
    for format in Format::all() {
        let (n_rows, n_cols, n_tokens) = (24, 512, 5);
        let matrix = random_matrix(&mut rng, format, n_rows, n_cols, 3);
        let x = rng.floats(n_cols * n_tokens);
        let got = product(&mut cpu(2, Simd::Auto), &matrix, &x);
        let rows = widened(&matrix);
        for (token, x) in x.chunks_exact(n_cols).enumerate() {
            for (r, row) in rows.iter().enumerate() {
                let terms = || row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let size = terms().map(|term| term * term).sum::<f64>().sqrt();
                let error = f64::from(f32::from_bits(got[token * n_rows + r])) - terms().sum::<f64>();
                let tolerance = if format.is_integer() { 0.02 } else { 1e-6 };
                assert!(error.abs() <= tolerance * size, "{format} row {r}: off by {error} of {size}");
            }
        }
    }
}

#[test]
fn a_nan_or_infinity_in_the_activations_is_never_hidden() {
    let mut rng = Rng(9);
    for format in Format::all() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for simd in [Simd::Portable, Simd::Auto] {
                let matrix = random_matrix(&mut rng, format, 8, 512, 0);
                let mut x = rng.floats(512);
                x[300] = bad;
                let got = product(&mut cpu(1, simd), &matrix, &x);
                assert!(got.iter().all(|bits| !f32::from_bits(*bits).is_finite()), "{format} with {bad}");
            }
        }
    }
}

#[test]
fn tiny_activations_become_zero_and_not_garbage() {
    let mut rng = Rng(11);
    let matrix = random_matrix(&mut rng, Format::Q4_0, 8, 64, 0);
    let mut x = vec![0.0; 64];
    x[3] = 1e-38;
    x[40] = f32::MIN_POSITIVE / 8.0;
    for simd in [Simd::Portable, Simd::Auto] {
        assert!(product(&mut cpu(1, simd), &matrix, &x).iter().all(|bits| f32::from_bits(*bits) == 0.0));
    }
}

#[test]
fn gathered_rows_have_the_bits_of_the_batch() {
    let mut rng = Rng(13);
    let mut cpu = cpu(2, Simd::Auto);
    let matrix = random_matrix(&mut rng, Format::Q4K, 40, 512, 1);
    let x = rng.floats(512 * 6);
    let x = tensor(&mut cpu, 512, &x);
    let weight = cpu.weight(matrix).expect("a weight that fits");
    let (mut all, mut some) = (cpu.acts(6, 512).expect("small"), cpu.acts(6, 512).expect("small"));
    let (mut out_all, mut out_some) = (cpu.tensor(6, 40).expect("small"), cpu.tensor(6, 40).expect("small"));
    cpu.prepare(&x, &mut all);
    cpu.matmul(&weight, &all, &mut out_all);
    cpu.gather(&all, &[4, 1, 4], &mut some);
    cpu.matmul(&weight, &some, &mut out_some);
    for (i, row) in [4, 1, 4].into_iter().enumerate() {
        assert_eq!(out_some.row(i), out_all.row(row));
    }
}

#[test]
fn weights_that_do_not_fit_their_shape_are_refused() {
    let mut cpu = cpu(1, Simd::Auto);
    let mut check = |len: usize, range: std::ops::Range<usize>, n_rows: usize, n_cols: usize, expect: &str| {
        let host = HostMatrix { owner: Arc::new(vec![0_u8; len]), range, format: Format::Q4_0, n_rows, n_cols };
        let Err(BackendError::Shape(why)) = cpu.weight(host) else { panic!("accepted: {expect}") };
        assert!(why.contains(expect), "{why}");
    };
    check(18, 0..18, 1, 33, "33 columns are not whole Q4_0 blocks of 32");
    check(18, 0..19, 1, 32, "bytes 0..19 of 18");
    check(36, 0..36, 1, 32, "1 × 32 in Q4_0 is not 36 bytes");
    check(18, 0..0, 0, 32, "no elements");
    check(18, 0..18, usize::MAX, 32, "is not 18 bytes");
}
