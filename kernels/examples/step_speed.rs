//! Speed of whole steps of a 135M-parameter Llama-shaped model with random weights:
//! `cargo run --release -p plimsoll-kernels --example step_speed [threads] [format id]`.
//!
//! 30 layers, width 576, feed-forward 1536, 9 heads over 3 of 64, 49,152 tokens of Q8_0: SmolLM2-135M's shapes. What an engine adds
//! (sampling, bookkeeping) is not in it.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use plimsoll_kernels::Format;
use plimsoll_kernels::backend::{Activation, Attention, Backend, BackendError, HostMatrix, KvLayer, KvType, RopePairs};
use plimsoll_kernels::cpu::{Cpu, CpuActs, CpuKv, CpuOptions, CpuTensor, CpuWeight, Simd};
use plimsoll_kernels::rope::{RopeSpec, RopeTable};
use std::sync::Arc;
use std::time::Instant;

const N_LAYERS: usize = 30;
const WIDTH: usize = 576;
const KV_WIDTH: usize = 192;
const FF: usize = 1536;
const VOCABULARY: usize = 49_152;
const MAX_ROWS: usize = 128;

struct Layer {
    q: CpuWeight,
    k: CpuWeight,
    v: CpuWeight,
    o: CpuWeight,
    gate: CpuWeight,
    up: CpuWeight,
    down: CpuWeight,
}

struct Model {
    cpu: Cpu,
    layers: Vec<Layer>,
    norm: CpuWeight,
    table: CpuWeight,
    x: CpuTensor,
    h: CpuTensor,
    q: CpuTensor,
    k: CpuTensor,
    v: CpuTensor,
    attended: CpuTensor,
    gate: CpuTensor,
    up: CpuTensor,
    ff: CpuTensor,
    last: CpuTensor,
    logits: CpuTensor,
    acts: CpuActs,
    ff_acts: CpuActs,
}

fn weight(cpu: &mut Cpu, format: Format, n_rows: usize, n_cols: usize) -> Result<CpuWeight, BackendError> {
    let n_bytes = format.row_bytes(n_cols).unwrap_or(0) * n_rows;
    let bytes: Vec<u8> = (0..n_bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x27 | 0x20).collect();
    cpu.weight(HostMatrix { range: 0..n_bytes, owner: Arc::new(bytes), format, n_rows, n_cols })
}

impl Model {
    fn new(n_threads: usize, format: Format) -> Result<Self, BackendError> {
        let mut cpu = Cpu::new(CpuOptions { n_threads, simd: Simd::Auto });
        let layer = |cpu: &mut Cpu| {
            Ok(Layer {
                q: weight(cpu, format, WIDTH, WIDTH)?,
                k: weight(cpu, format, KV_WIDTH, WIDTH)?,
                v: weight(cpu, format, KV_WIDTH, WIDTH)?,
                o: weight(cpu, format, WIDTH, WIDTH)?,
                gate: weight(cpu, format, FF, WIDTH)?,
                up: weight(cpu, format, FF, WIDTH)?,
                down: weight(cpu, format, WIDTH, FF)?,
            })
        };
        let layers = (0..N_LAYERS).map(|_| layer(&mut cpu)).collect::<Result<_, _>>()?;
        let mut tensor = |width| cpu.tensor(MAX_ROWS, width);
        let (x, h, q, k, v) = (tensor(WIDTH)?, tensor(WIDTH)?, tensor(WIDTH)?, tensor(KV_WIDTH)?, tensor(KV_WIDTH)?);
        let (attended, gate, up, ff) = (tensor(WIDTH)?, tensor(FF)?, tensor(FF)?, tensor(FF)?);
        let (last, logits) = (cpu.tensor(1, WIDTH)?, cpu.tensor(1, VOCABULARY)?);
        let (acts, ff_acts) = (cpu.acts(MAX_ROWS, WIDTH)?, cpu.acts(MAX_ROWS, FF)?);
        let norm = weight(&mut cpu, Format::F32, 1, WIDTH)?;
        let table = weight(&mut cpu, Format::Q8_0, VOCABULARY, WIDTH)?;
        Ok(Self { cpu, layers, norm, table, x, h, q, k, v, attended, gate, up, ff, last, logits, acts, ff_acts })
    }

    fn kv(&mut self) -> Result<CpuKv, BackendError> {
        let shape = KvLayer { n_kv_heads: 3, k_dim: 64, v_dim: 64, window: None };
        self.cpu.kv(&[shape; N_LAYERS], KvType::F16)
    }

    /// `ids` at positions `pos..`.
    fn step(&mut self, kv: &mut CpuKv, ids: &[u32], pos: u32) -> Result<(), BackendError> {
        let n = ids.len();
        let cpu = &mut self.cpu;
        cpu.kv_reserve(kv, pos + n as u32)?;
        let table = RopeTable::new(pos..pos + n as u32, &RopeSpec::plain(64, 1e5));
        cpu.embed(&self.table, ids, 1.0, &mut self.x);
        for (index, layer) in self.layers.iter().enumerate() {
            cpu.rms_norm(&self.x, &self.norm, 1e-5, &mut self.h);
            cpu.prepare(&self.h, &mut self.acts);
            cpu.matmul(&layer.q, &self.acts, &mut self.q);
            cpu.matmul(&layer.k, &self.acts, &mut self.k);
            cpu.matmul(&layer.v, &self.acts, &mut self.v);
            cpu.rope(&mut self.q, 64, &table, RopePairs::Adjacent);
            cpu.rope(&mut self.k, 64, &table, RopePairs::Adjacent);
            cpu.kv_append(kv, index, &self.k, &self.v, 0..n, pos);
            cpu.set_rows(&mut self.attended, n);
            let spec = Attention { layer: index, n_heads: 9, scale: 0.125 };
            cpu.attention(&spec, kv, &self.q, 0..n, pos, &mut self.attended);
            cpu.prepare(&self.attended, &mut self.acts);
            cpu.matmul(&layer.o, &self.acts, &mut self.h);
            cpu.add(&mut self.x, &self.h);
            cpu.rms_norm(&self.x, &self.norm, 1e-5, &mut self.h);
            cpu.prepare(&self.h, &mut self.acts);
            cpu.matmul(&layer.gate, &self.acts, &mut self.gate);
            cpu.matmul(&layer.up, &self.acts, &mut self.up);
            cpu.glu(Activation::Silu, &self.gate, &self.up, &mut self.ff);
            cpu.prepare(&self.ff, &mut self.ff_acts);
            cpu.matmul(&layer.down, &self.ff_acts, &mut self.h);
            cpu.add(&mut self.x, &self.h);
        }
        cpu.select_rows(&self.x, &[n as u32 - 1], &mut self.last);
        cpu.prepare(&self.last, &mut self.acts);
        cpu.matmul(&self.table, &self.acts, &mut self.logits);
        Ok(())
    }
}

fn main() -> Result<(), BackendError> {
    let argument = |n: usize| std::env::args().nth(n).and_then(|text| text.parse::<u32>().ok());
    let n_threads = argument(1).unwrap_or(2) as usize;
    let format = argument(2).and_then(Format::from_ggml_id).unwrap_or(Format::Q4_1);
    let mut model = Model::new(n_threads, format)?;
    println!("{}, {format}", model.cpu.describe());
    let ids: Vec<u32> = (0..MAX_ROWS as u32).collect();
    for _ in 0..5 {
        let mut kv = model.kv()?;
        let start = Instant::now();
        model.step(&mut kv, &ids, 0)?;
        let prefill = ids.len() as f64 / start.elapsed().as_secs_f64();
        let start = Instant::now();
        for pos in 0..64 {
            model.step(&mut kv, &[7], ids.len() as u32 + pos)?;
        }
        println!("prefill {prefill:.0} tok/s, decode {:.0} tok/s", 64.0 / start.elapsed().as_secs_f64());
    }
    Ok(())
}
