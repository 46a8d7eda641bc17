//! Attention over paged K/V: one result whatever the chunking, the thread count and the kernels; right against f64.

mod common;

use common::{Rng, bits, cpu, tensor};
use plimsoll_kernels::backend::{Attention, Backend, KvLayer, KvType};
use plimsoll_kernels::cpu::{Cpu, CpuKv, Simd};
use proptest::prelude::{ProptestConfig, any, proptest};

/// One layer and the whole sequence that is fed to it.
struct Case {
    shape: KvLayer,
    n_heads: usize,
    kv_type: KvType,
    n_tokens: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Case {
    fn new(rng: &mut Rng, shape: KvLayer, group: usize, kv_type: KvType, n_tokens: usize) -> Self {
        let n_heads = shape.n_kv_heads * group;
        let q = rng.floats(n_tokens * n_heads * shape.k_dim).iter().map(|x| 3.0 * x).collect();
        let k = rng.floats(n_tokens * shape.n_kv_heads * shape.k_dim);
        let v = rng.floats(n_tokens * shape.n_kv_heads * shape.v_dim);
        Self { shape, n_heads, kv_type, n_tokens, q, k, v }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.shape.k_dim as f32).sqrt()
    }

    /// Feeds positions `from..` in chunks of the given sizes, the last one repeated.
    fn feed(&self, cpu: &mut Cpu, kv: &mut CpuKv, from: usize, chunks: &[usize]) -> Vec<u32> {
        let mut out = Vec::new();
        let mut pos = from;
        let mut chunks = chunks.iter().chain(chunks.last().into_iter().cycle());
        while pos < self.n_tokens {
            let end = (pos + chunks.next().copied().unwrap_or(1)).min(self.n_tokens);
            let mut rows = |x: &[f32]| {
                let width = x.len() / self.n_tokens;
                tensor(cpu, width, &x[pos * width..end * width])
            };
            let (q, k, v) = (rows(&self.q), rows(&self.k), rows(&self.v));
            cpu.kv_reserve(kv, end as u32).expect("little memory");
            cpu.kv_append(kv, 0, &k, &v, 0..end - pos, pos as u32);
            let mut result = cpu.tensor(end - pos, self.n_heads * self.shape.v_dim).expect("small");
            cpu.set_rows(&mut result, end - pos);
            let spec = Attention { layer: 0, n_heads: self.n_heads, scale: self.scale() };
            cpu.attention(&spec, kv, &q, 0..end - pos, pos as u32, &mut result);
            out.extend(bits(&result));
            pos = end;
        }
        out
    }

    fn run(&self, n_threads: usize, simd: Simd, chunks: &[usize]) -> Vec<u32> {
        let mut cpu = cpu(n_threads, simd);
        let mut kv = cpu.kv(&[self.shape], self.kv_type).expect("a shape that fits");
        self.feed(&mut cpu, &mut kv, 0, chunks)
    }

    /// The textbook formula in f64, on unquantised K and V.
    fn reference(&self) -> Vec<f64> {
        let KvLayer { n_kv_heads, k_dim, v_dim, window } = self.shape;
        let mut out = Vec::new();
        for pos in 0..self.n_tokens {
            let first = window.map_or(0, |window| (pos + 1).saturating_sub(window as usize));
            for head in 0..self.n_heads {
                let kv_head = head / (self.n_heads / n_kv_heads);
                let q = &self.q[(pos * self.n_heads + head) * k_dim..][..k_dim];
                let score = |j: usize| {
                    let k = &self.k[(j * n_kv_heads + kv_head) * k_dim..][..k_dim];
                    q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() * f64::from(self.scale())
                };
                let weights: Vec<f64> = (first..=pos).map(|j| score(j).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..v_dim).map(|d| {
                    let value = |j: usize| f64::from(self.v[(j * n_kv_heads + kv_head) * v_dim + d]);
                    (first..=pos).zip(&weights).map(|(j, w)| w * value(j)).sum::<f64>() / sum
                }));
            }
        }
        out
    }
}

fn layer(n_kv_heads: usize, k_dim: usize, v_dim: usize, window: Option<u32>) -> KvLayer {
    KvLayer { n_kv_heads, k_dim, v_dim, window }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn chunks_threads_and_kernels_do_not_show(
        seed in any::<u64>(),
        n_tokens in 1_usize..220,
        n_kv_heads in 1_usize..4,
        group in 1_usize..4,
        k_blocks in 1_usize..4,
        v_blocks in 1_usize..4,
        window in 1_u32..150,
        n_threads in 1_usize..4,
        chunk in 1_usize..100,
    ) {
        let mut rng = Rng(seed);
        for kv_type in [KvType::F16, KvType::Q8_0, KvType::Q4_0] {
            for window in [None, Some(window)] {
                let shape = layer(n_kv_heads, 32 * k_blocks, 32 * v_blocks, window);
                let case = Case::new(&mut rng, shape, group, kv_type, n_tokens);
                let expect = case.run(1, Simd::Portable, &[n_tokens]);
                assert_eq!(case.run(n_threads, Simd::Auto, &[n_tokens]), expect, "in one piece, {kv_type:?} {window:?}");
                assert_eq!(case.run(n_threads, Simd::Auto, &[chunk]), expect, "in chunks of {chunk}");
                assert_eq!(case.run(1, Simd::Auto, &[chunk, 1]), expect, "{chunk}, then token by token");
            }
        }
    }

    #[test]
    fn heads_of_any_size_have_the_portable_bits(seed in any::<u64>(), k_dim in 1_usize..70, v_dim in 1_usize..80) {
        let case = Case::new(&mut Rng(seed), layer(2, k_dim, v_dim, None), 2, KvType::F16, 70);
        assert_eq!(case.run(2, Simd::Auto, &[33]), case.run(1, Simd::Portable, &[70]));
    }
}

#[test]
fn attention_is_right() {
    for (kv_type, tolerance) in [(KvType::F16, 2e-3), (KvType::Q8_0, 0.02), (KvType::Q4_0, 0.3)] {
        for window in [None, Some(70)] {
            let case = Case::new(&mut Rng(3), layer(2, 64, 32, window), 3, kv_type, 200);
            let got = case.run(2, Simd::Auto, &[50]);
            for (got, expect) in got.iter().zip(case.reference()) {
                let error = f64::from(f32::from_bits(*got)) - expect;
                assert!(error.abs() < tolerance, "{kv_type:?} {window:?}: {error}");
            }
        }
    }
}

#[test]
fn pages_come_as_they_are_reached_and_leave_with_the_window() {
    let mut cpu = cpu(1, Simd::Auto);
    let case = Case::new(&mut Rng(5), layer(1, 32, 32, Some(100)), 1, KvType::F16, 640);
    let mut kv = cpu.kv(&[case.shape, layer(1, 32, 32, None)], KvType::F16).expect("a shape that fits");
    let page_bytes = 64 * 2 * 32 * 2;
    assert_eq!(cpu.kv_bytes(&kv), 0);
    cpu.kv_reserve(&mut kv, 1).expect("little memory");
    assert_eq!(cpu.kv_bytes(&kv), 2 * page_bytes, "one page per layer");
    cpu.kv_reserve(&mut kv, 65).expect("little memory");
    assert_eq!(cpu.kv_bytes(&kv), 4 * page_bytes);
    case.feed(&mut cpu, &mut kv, 0, &[1]);
    // At position 639 the window begins at 540: pages 8 and 9 are left, and all ten of the layer without window.
    assert_eq!(cpu.kv_bytes(&kv), 12 * page_bytes);
    assert!(cpu.kv_can_resume_at(&kv, 639));
    assert!(cpu.kv_can_resume_at(&kv, 611), "the window then begins at 512, which is held");
    assert!(!cpu.kv_can_resume_at(&kv, 610));
    cpu.kv_truncate(&mut kv, 0);
    assert_eq!(cpu.kv_bytes(&kv), 0);
    assert!(cpu.kv_can_resume_at(&kv, 0));
}

#[test]
fn a_truncated_cache_goes_on_with_the_same_bits() {
    for window in [None, Some(90)] {
        let case = Case::new(&mut Rng(6), layer(1, 64, 64, window), 2, KvType::Q8_0, 200);
        let expect = case.run(1, Simd::Auto, &[200]);
        let mut cpu = cpu(2, Simd::Auto);
        let mut kv = cpu.kv(&[case.shape], case.kv_type).expect("a shape that fits");
        case.feed(&mut cpu, &mut kv, 0, &[200]);
        cpu.kv_truncate(&mut kv, 190);
        assert!(cpu.kv_can_resume_at(&kv, 190));
        let again = case.feed(&mut cpu, &mut kv, 190, &[4]);
        assert_eq!(again, expect[expect.len() - again.len()..]);
    }
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let mut cpu = cpu(1, Simd::Auto);
    let mut check = |shape, kv_type, expect: &str| {
        let error = cpu.kv(&[shape], kv_type).expect_err("refused").to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(layer(1, 48, 64, None), KvType::Q8_0, "a head of 48 elements is not whole Q8_0 blocks of 32");
    check(layer(1, 0, 64, None), KvType::F16, "a head of 0 elements");
    check(layer(0, 64, 64, None), KvType::F16, "without key/value heads");
    check(layer(1, 64, 64, Some(0)), KvType::F16, "a window of 0");
}
