//! Speed of products and attention at a small model's shapes: `cargo run --release -p plimsoll-kernels --example kernel_speed [threads]`.
//!
//! Prints GB/s of weights for decode (64 MiB of weights, so that no cache holds them) and GOP/s for prefill of 128 tokens.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use plimsoll_kernels::Format;
use plimsoll_kernels::backend::{Attention, Backend, BackendError, HostMatrix, KvLayer, KvType};
use plimsoll_kernels::cpu::{Cpu, CpuOptions, Simd};
use std::sync::Arc;
use std::time::Instant;

/// Median seconds of several runs.
fn seconds(mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A product of `n_rows × n_cols` weights with `n_tokens` rows.
fn product(cpu: &mut Cpu, format: Format, n_rows: usize, n_cols: usize, n_tokens: usize) -> Result<f64, BackendError> {
    let n_bytes = format.row_bytes(n_cols).unwrap_or(0) * n_rows;
    // Bytes that read as ordinary numbers, not as subnormals (which are slow) or infinities, in every float format.
    let bytes: Vec<u8> = (0..n_bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x37 | 0x20).collect();
    let weight = cpu.weight(HostMatrix { range: 0..n_bytes, owner: Arc::new(bytes), format, n_rows, n_cols })?;
    let mut x = cpu.tensor(n_tokens, n_cols)?;
    cpu.set_rows(&mut x, n_tokens);
    for t in 0..n_tokens {
        for (i, x) in x.row_mut(t).iter_mut().enumerate() {
            *x = (i * 7 % 13) as f32 - 6.0;
        }
    }
    let mut acts = cpu.acts(n_tokens, n_cols)?;
    let mut out = cpu.tensor(n_tokens, n_rows)?;
    cpu.prepare(&x, &mut acts);
    Ok(seconds(|| cpu.matmul(&weight, &acts, &mut out)))
}

/// Attention of `n_rows` queries at the end of `n_tokens` positions: 9 heads over 3, of 64 elements.
fn attention(cpu: &mut Cpu, n_tokens: u32, n_rows: usize) -> Result<f64, BackendError> {
    let shape = KvLayer { n_kv_heads: 3, k_dim: 64, v_dim: 64, window: None };
    let mut kv = cpu.kv(&[shape], KvType::F16)?;
    cpu.kv_reserve(&mut kv, n_tokens)?;
    let (mut k, mut q, mut out) = (cpu.tensor(1, 192)?, cpu.tensor(n_rows, 576)?, cpu.tensor(n_rows, 576)?);
    cpu.set_rows(&mut k, 1);
    cpu.set_rows(&mut q, n_rows);
    cpu.set_rows(&mut out, n_rows);
    for pos in 0..n_tokens {
        cpu.kv_append(&mut kv, 0, &k, &k, 0..1, pos);
    }
    let spec = Attention { layer: 0, n_heads: 9, scale: 0.125 };
    let pos = n_tokens - n_rows as u32;
    Ok(seconds(|| cpu.attention(&spec, &kv, &q, 0..n_rows, pos, &mut out)))
}

fn main() -> Result<(), BackendError> {
    let n_threads = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut cpu = Cpu::new(CpuOptions { n_threads, simd: Simd::Auto });
    println!("{}", cpu.describe());
    for format in Format::all() {
        let n_cols = if format.block_elements() == 256 { 1536 } else { 576 };
        let row_bytes = format.row_bytes(n_cols).unwrap_or(1);
        let n_rows = (64 << 20) / row_bytes / 8 * 8;
        let decode = product(&mut cpu, format, n_rows, n_cols, 1)?;
        let prefill = product(&mut cpu, format, 1536, n_cols, 128)?;
        let gb_s = (n_rows * row_bytes) as f64 / decode / 1e9;
        let gop_s = 2.0 * (1536 * n_cols * 128) as f64 / prefill / 1e9;
        println!("{:5} decode {gb_s:5.1} GB/s   prefill {gop_s:5.0} GOP/s", format.name());
    }
    let small = product(&mut cpu, Format::Q4_1, 576, 576, 1)?;
    println!("576 × 576 Q4_1, one token: {:.1} µs", small * 1e6);
    for (n_tokens, n_rows) in [(128, 1), (2048, 1), (128, 128), (2048, 128)] {
        let time = attention(&mut cpu, n_tokens, n_rows)?;
        println!("attention of {n_rows} over {n_tokens}: {:.1} µs", time * 1e6);
    }
    Ok(())
}
