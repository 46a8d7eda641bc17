//! A step allocates nothing once its buffers have been used: counted by the allocator itself.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use common::{Rng, cpu, random_matrix, tensor, vector};
use plimsoll_kernels::Format;
use plimsoll_kernels::backend::{Activation, Attention, Backend, KvLayer, KvType};
use plimsoll_kernels::cpu::Simd;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is the system allocator's; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_second_step_allocates_nothing() {
    let mut rng = Rng(1);
    for (simd, n_rows, n_threads) in
        [(Simd::Portable, 2, 1), (Simd::Auto, 1, 1), (Simd::Auto, 9, 1), (Simd::Auto, 9, 2)]
    {
        let mut cpu = cpu(n_threads, simd);
        let weights: Vec<_> = Format::all()
            .map(|format| cpu.weight(random_matrix(&mut rng, format, 256, 256, 0)).expect("a weight that fits"))
            .collect();
        let norm = vector(&mut cpu, &rng.floats(256));
        let x = tensor(&mut cpu, 256, &rng.floats(256 * n_rows));
        let mut acts = cpu.acts(n_rows, 256).expect("small");
        let [mut h, mut y] = [0; 2].map(|_| cpu.tensor(n_rows, 256).expect("small"));
        let mut kv =
            cpu.kv(&[KvLayer { n_kv_heads: 4, k_dim: 64, v_dim: 64, window: None }], KvType::F16).expect("fits");
        let mut step = |pos: u32| {
            cpu.kv_reserve(&mut kv, pos + n_rows as u32).expect("little memory");
            cpu.rms_norm(&x, &norm, 1e-5, &mut h);
            cpu.prepare(&h, &mut acts);
            for weight in &weights {
                cpu.matmul(weight, &acts, &mut y);
            }
            cpu.kv_append(&mut kv, 0, &h, &h, 0..n_rows, pos);
            cpu.attention(&Attention { layer: 0, n_heads: 4, scale: 0.1 }, &kv, &h, 0..n_rows, pos, &mut y);
            cpu.add(&mut y, &h);
            cpu.glu(Activation::Silu, &y, &x, &mut h);
        };
        let mut allocates = |pos: u32| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            step(pos);
            ALLOCATIONS.load(Ordering::Relaxed) > before
        };
        allocates(0);
        if n_threads == 1 {
            assert!(!allocates(n_rows as u32), "{simd:?}, {n_rows} rows");
        } else {
            // A thread's work memory grows when it first gets a part, and the system decides when that is.
            assert!((0..1_000).any(|_| !allocates(0)), "{simd:?}, {n_rows} rows on {n_threads} threads");
        }
    }
}
