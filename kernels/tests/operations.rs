//! Every operation that is not a product or attention: AVX2 and threads have the portable bits, and f64 agrees.

mod common;

use common::{Rng, bits, cpu, random_matrix, tensor, vector, widened};
use plimsoll_kernels::Format;
use plimsoll_kernels::backend::{Activation, Backend, RopePairs};
use plimsoll_kernels::cpu::{Cpu, CpuTensor, Simd};
use plimsoll_kernels::rope::{RopeSpec, RopeTable};
use proptest::prelude::{ProptestConfig, any, proptest};

/// Runs `f` on a portable single thread, then with AVX2 on three threads, and gives the result both have.
fn same(f: impl Fn(&mut Cpu) -> CpuTensor) -> CpuTensor {
    let expect = f(&mut cpu(1, Simd::Portable));
    let got = f(&mut cpu(3, Simd::Auto));
    assert_eq!(bits(&got), bits(&expect));
    got
}

/// Every element within `tolerance` of what `expect(row, column)` says.
fn close(got: &CpuTensor, tolerance: f64, expect: impl Fn(usize, usize) -> f64) {
    for row in 0..got.n_rows() {
        for (i, got) in got.row(row).iter().enumerate() {
            let error = f64::from(*got) - expect(row, i);
            assert!(error.abs() <= tolerance, "row {row}, element {i}: {got}, off by {error}");
        }
    }
}

fn out(cpu: &mut Cpu, max_rows: usize, width: usize) -> CpuTensor {
    cpu.tensor(max_rows, width).expect("small")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rms_norm(seed in any::<u64>(), n_rows in 1_usize..12, width in 1_usize..700) {
        let mut rng = Rng(seed);
        let (x, weight) = (rng.floats(n_rows * width), rng.floats(width));
        let got = same(|cpu| {
            let (x, weight) = (tensor(cpu, width, &x), vector(cpu, &weight));
            let mut y = out(cpu, n_rows, width);
            cpu.rms_norm(&x, &weight, 1e-5, &mut y);
            y
        });
        close(&got, 1e-5, |row, i| {
            let x = &x[row * width..(row + 1) * width];
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
            f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(weight[i])
        });
    }

    #[test]
    fn rms_norm_heads(seed in any::<u64>(), n_rows in 1_usize..12, n_heads in 1_usize..5, head_dim in 1_usize..140) {
        let mut rng = Rng(seed);
        let width = n_heads * head_dim;
        let (x, weight) = (rng.floats(n_rows * width), rng.floats(head_dim));
        let in_place = same(|cpu| {
            let (mut x, weight) = (tensor(cpu, width, &x), vector(cpu, &weight));
            cpu.rms_norm_heads(&mut x, &weight, 1e-6);
            x
        });
        let each = same(|cpu| {
            let (x, weight) = (tensor(cpu, head_dim, &x), vector(cpu, &weight));
            let mut y = out(cpu, n_rows * n_heads, head_dim);
            cpu.rms_norm(&x, &weight, 1e-6, &mut y);
            y
        });
        assert_eq!(bits(&in_place), bits(&each), "a head is a row");
    }

    #[test]
    fn glu(seed in any::<u64>(), n_rows in 1_usize..12, width in 1_usize..700) {
        let mut rng = Rng(seed);
        let gate: Vec<f32> = rng.floats(n_rows * width).iter().map(|x| 10.0 * x).collect();
        let up = rng.floats(n_rows * width);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let got = same(|cpu| {
                let (gate, up) = (tensor(cpu, width, &gate), tensor(cpu, width, &up));
                let mut y = out(cpu, n_rows, width);
                cpu.glu(activation, &gate, &up, &mut y);
                y
            });
            close(&got, 1e-5, |row, i| {
                let (gate, up) = (f64::from(gate[row * width + i]), f64::from(up[row * width + i]));
                match activation {
                    Activation::Silu => gate / (1.0 + (-gate).exp()) * up,
                    Activation::GeluTanh => {
                        let z = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
                        0.5 * gate * (1.0 + z.tanh()) * up
                    }
                }
            });
        }
    }

    #[test]
    fn rope(seed in any::<u64>(), n_rows in 1_usize..6, n_heads in 1_usize..5, half in 1_usize..70, rest in 0_usize..9) {
        let mut rng = Rng(seed);
        let (dim, head_dim) = (2 * half, 2 * half + rest);
        let width = n_heads * head_dim;
        let x = rng.floats(n_rows * width);
        let first = rng.next() as u32 % 5_000;
        let table = RopeTable::new(first..first + n_rows as u32, &RopeSpec::plain(dim, 1e4));
        for pairs in [RopePairs::Adjacent, RopePairs::Halves] {
            let got = same(|cpu| {
                let mut x = tensor(cpu, width, &x);
                cpu.rope(&mut x, head_dim, &table, pairs);
                x
            });
            close(&got, 1e-6, |row, i| {
                let at = |i: usize| f64::from(x[row * width + i]);
                let (head, e) = (i / head_dim * head_dim, i % head_dim);
                if e >= dim {
                    return at(i);
                }
                let (pair, is_second) = match pairs {
                    RopePairs::Adjacent => (e / 2, e % 2 == 1),
                    RopePairs::Halves => (e % half, e >= half),
                };
                let (a, b) = match pairs {
                    RopePairs::Adjacent => (at(head + 2 * pair), at(head + 2 * pair + 1)),
                    RopePairs::Halves => (at(head + pair), at(head + pair + half)),
                };
                let angle = (first as usize + row) as f64 * 1e4_f64.powf(-2.0 * pair as f64 / dim as f64);
                if is_second { b * angle.cos() + a * angle.sin() } else { a * angle.cos() - b * angle.sin() }
            });
        }
    }

    #[test]
    fn combine(seed in any::<u64>(), n_tokens in 1_usize..9, top_k in 1_usize..9, width in 1_usize..300) {
        let mut rng = Rng(seed);
        let (parts, weights) = (rng.floats(n_tokens * top_k * width), rng.floats(n_tokens * top_k));
        let got = same(|cpu| {
            let parts = tensor(cpu, width, &parts);
            let mut y = out(cpu, n_tokens, width);
            cpu.combine(&parts, &weights, top_k, &mut y);
            y
        });
        close(&got, 1e-5, |token, i| {
            let ranks = token * top_k..(token + 1) * top_k;
            ranks.map(|k| f64::from(weights[k]) * f64::from(parts[k * width + i])).sum()
        });
    }
}

#[test]
fn embeddings_are_the_tables_rows_times_the_scale() {
    let mut rng = Rng(1);
    for format in Format::all() {
        let table = random_matrix(&mut rng, format, 9, 256, 1);
        let ids = [3, 0, 8, 3];
        let got = same(|cpu| {
            let weight = cpu.weight(table.clone()).expect("a weight that fits");
            let mut y = out(cpu, 8, 256);
            cpu.embed(&weight, &ids, 2.5, &mut y);
            y
        });
        let rows = widened(&table);
        assert_eq!(got.n_rows(), 4);
        for (i, id) in ids.into_iter().enumerate() {
            let expect: Vec<f32> = rows[id as usize].iter().map(|x| x * 2.5).collect();
            assert_eq!(got.row(i), expect);
        }
    }
}

#[test]
fn additions_and_moves_of_rows() {
    let mut cpu = cpu(2, Simd::Auto);
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut a = tensor(&mut cpu, 2, &x);
    let b = tensor(&mut cpu, 2, &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    let bias = vector(&mut cpu, &[0.5, -0.5]);
    cpu.add(&mut a, &b);
    cpu.add_bias(&mut a, &bias);
    assert_eq!(a.row(2), [55.5, 65.5]);
    assert_eq!(cpu.read_row(&a, 0), [11.5, 21.5]);
    let mut picked = out(&mut cpu, 2, 2);
    cpu.select_rows(&a, &[2, 0], &mut picked);
    assert_eq!((picked.row(0), picked.row(1)), (a.row(2), a.row(0)));
    let mut spread = tensor(&mut cpu, 2, &[0.0; 6]);
    cpu.scatter(&picked, &[1, 2], &mut spread);
    assert_eq!((spread.row(0), spread.row(1), spread.row(2)), (&[0.0, 0.0][..], a.row(2), a.row(0)));
}

#[test]
fn a_backend_says_what_it_is() {
    let portable = cpu(2, Simd::Portable);
    assert_eq!((portable.n_threads(), portable.simd()), (2, Simd::Portable));
    assert!(portable.describe().contains("portable") && portable.describe().contains("2 threads"));
    assert_eq!(cpu(0, Simd::Portable).n_threads(), 1);
}
