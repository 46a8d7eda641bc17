//! The CPU backend: plain code that defines every result, and AVX2 kernels with the same bits.
//!
//! `portable` modules are the definition, slow and readable. `avx2` modules are chosen at run time where the machine has
//! AVX2, FMA and F16C; property tests hold them to the portable bits. Work is split by rows over the pool, and a row's result
//! never depends on who computes it, so neither thread count nor batch composition shows in a bit.

mod acts;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod elementwise;
mod kv;
mod matmul;
mod ops;
mod tensor;

pub use acts::CpuActs;
pub use kv::CpuKv;
pub use tensor::{CpuTensor, CpuWeight};

use crate::pool::Pool;
use attention::Scratch as AttentionScratch;
use matmul::Panel;
use std::sync::{Mutex, PoisonError};

/// Which kernels to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Simd {
    /// The best this machine has.
    #[default]
    Auto,
    /// The portable twin: 20 to 50 times slower, for tests and machines without AVX2.
    Portable,
    /// AVX2 with FMA and F16C; the portable twin where the machine lacks one of them.
    Avx2,
}

/// How to make a [`Cpu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads that compute, the caller's among them; 0 counts as 1.
    pub n_threads: usize,
    /// Which kernels.
    pub simd: Simd,
}

/// The kernels in use, after looking at the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Portable,
    /// Only ever made by [`Level::choose`] after it has seen AVX2, FMA and F16C: calling such kernels is sound with it.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Level {
    pub(crate) fn choose(simd: Simd) -> Self {
        match simd {
            Simd::Portable => Self::Portable,
            #[cfg(target_arch = "x86_64")]
            Simd::Auto | Simd::Avx2
                if std::is_x86_feature_detected!("avx2")
                    && std::is_x86_feature_detected!("fma")
                    && std::is_x86_feature_detected!("f16c") =>
            {
                Self::Avx2
            }
            Simd::Auto | Simd::Avx2 => Self::Portable,
        }
    }
}

/// Work memory of one thread, grown at first use.
#[derive(Default)]
pub(crate) struct Scratch {
    panel: Panel,
    attention: AttentionScratch,
}

/// Scratch per thread. Each lock is taken by its own thread alone; it only tells the compiler so.
pub(crate) struct Scratches(Vec<Mutex<Scratch>>);

impl Scratches {
    fn with<R>(&self, thread: usize, f: impl FnOnce(&mut Scratch) -> R) -> R {
        // After a panic in a job the contents are still plain work memory.
        f(&mut self.0[thread].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The CPU as a place that computes. Shapes are the engine's promise: a call with tensors that do not fit panics.
pub struct Cpu {
    pool: Pool,
    level: Level,
    scratches: Scratches,
}

impl Cpu {
    /// Starts the threads. Where the system gives fewer than asked, [`Cpu::n_threads`] says so.
    pub fn new(options: CpuOptions) -> Self {
        let pool = Pool::new(options.n_threads.max(1));
        let scratches = Scratches((0..pool.n_threads()).map(|_| Mutex::default()).collect());
        Self { pool, level: Level::choose(options.simd), scratches }
    }

    /// Threads that compute, the caller's among them.
    pub fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    /// The kernels in use: [`Simd::Portable`] or [`Simd::Avx2`].
    pub fn simd(&self) -> Simd {
        match self.level {
            Level::Portable => Simd::Portable,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Simd::Avx2,
        }
    }
}
