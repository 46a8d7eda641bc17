//! The [`Backend`] of the CPU: each method checks shapes and hands rows to the modules beside it.

use super::attention::{Queries, attend};
use super::elementwise as ew;
use super::matmul::matmul;
use super::tensor::{CpuTensor, CpuWeight};
use super::{Cpu, CpuActs, CpuKv, Simd};
use crate::backend::{Activation, Attention, Backend, BackendError, HostMatrix, KvLayer, KvType, RopePairs};
use crate::dequant::dequantize_row;
use crate::pool::Disjoint;
use crate::rope::RopeTable;
use std::ops::Range;

impl Cpu {
    /// Calls `f(row index, row)` for each row of `out`, on all threads.
    #[allow(unsafe_code, reason = "rows of one tensor are written by several threads")]
    fn each_row(&mut self, out: &mut CpuTensor, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let (n_rows, width) = (out.n_rows(), out.width());
        let data = Disjoint::new(out.data_mut());
        self.pool.run_rows(n_rows, width, &|row, _| {
            // SAFETY: each row is visited once, and rows are disjoint.
            f(row, unsafe { data.range(row * width..(row + 1) * width) });
        });
    }
}

impl Backend for Cpu {
    type Tensor = CpuTensor;
    type Acts = CpuActs;
    type Weight = CpuWeight;
    type Kv = CpuKv;

    fn describe(&self) -> String {
        let kernels = match self.simd() {
            Simd::Avx2 => "AVX2 kernels",
            Simd::Portable | Simd::Auto => "portable kernels (slow: no AVX2, or switched off)",
        };
        format!("CPU, {kernels}, {} threads", self.n_threads())
    }

    fn weight(&mut self, host: HostMatrix) -> Result<CpuWeight, BackendError> {
        CpuWeight::new(host)
    }

    fn tensor(&mut self, max_rows: usize, width: usize) -> Result<CpuTensor, BackendError> {
        CpuTensor::new(max_rows, width)
    }

    fn acts(&mut self, max_rows: usize, width: usize) -> Result<CpuActs, BackendError> {
        CpuActs::new(max_rows, width)
    }

    fn kv(&mut self, layers: &[KvLayer], kv_type: KvType) -> Result<CpuKv, BackendError> {
        CpuKv::new(layers, kv_type)
    }

    fn kv_reserve(&mut self, kv: &mut CpuKv, n_tokens: u32) -> Result<(), BackendError> {
        kv.reserve(n_tokens)
    }

    fn kv_truncate(&mut self, kv: &mut CpuKv, n_tokens: u32) {
        kv.truncate(n_tokens);
    }

    fn kv_can_resume_at(&self, kv: &CpuKv, n_tokens: u32) -> bool {
        kv.can_resume_at(n_tokens)
    }

    fn kv_bytes(&self, kv: &CpuKv) -> u64 {
        kv.bytes()
    }

    fn set_rows(&mut self, x: &mut CpuTensor, n_rows: usize) {
        x.set_rows(n_rows);
    }

    fn embed(&mut self, table: &CpuWeight, ids: &[u32], scale: f32, out: &mut CpuTensor) {
        out.shape(ids.len(), table.n_cols());
        let (bytes, row_bytes) = (table.bytes(), table.row_bytes());
        self.each_row(out, &|row, out| {
            dequantize_row(table.format(), &bytes[ids[row] as usize * row_bytes..][..row_bytes], out);
            out.iter_mut().for_each(|x| *x *= scale);
        });
    }

    fn rms_norm(&mut self, x: &CpuTensor, weight: &CpuWeight, eps: f32, out: &mut CpuTensor) {
        out.shape(x.n_rows(), x.width());
        let (level, weight) = (self.level, weight.vector(x.width()));
        self.each_row(out, &|row, out| ew::rms_norm(level, x.row(row), weight, eps, out));
    }

    fn rms_norm_heads(&mut self, x: &mut CpuTensor, weight: &CpuWeight, eps: f32) {
        let head_dim = weight.n_cols();
        assert!(x.width().is_multiple_of(head_dim), "whole heads of {head_dim}");
        let (level, weight) = (self.level, weight.vector(head_dim));
        self.each_row(x, &|_, x| {
            x.chunks_exact_mut(head_dim).for_each(|head| ew::rms_norm_in_place(level, head, weight, eps));
        });
    }

    fn prepare(&mut self, x: &CpuTensor, out: &mut CpuActs) {
        out.prepare(&mut self.pool, self.level, x.data(), x.n_rows());
    }

    fn gather(&mut self, from: &CpuActs, rows: &[u32], out: &mut CpuActs) {
        out.gather(from, rows);
    }

    fn matmul(&mut self, weight: &CpuWeight, acts: &CpuActs, out: &mut CpuTensor) {
        out.shape(acts.n_rows(), weight.n_rows());
        matmul(&mut self.pool, &self.scratches, self.level, weight, acts, out.data_mut());
    }

    fn add_bias(&mut self, x: &mut CpuTensor, bias: &CpuWeight) {
        let bias = bias.vector(x.width());
        self.each_row(x, &|_, x| ew::add(x, bias));
    }

    fn rope(&mut self, x: &mut CpuTensor, head_dim: usize, table: &RopeTable, pairs: RopePairs) {
        assert!(x.width().is_multiple_of(head_dim), "whole heads of {head_dim}");
        assert!(table.dim() <= head_dim && table.n_rows() >= x.n_rows(), "a rope table for these rows");
        let level = self.level;
        self.each_row(x, &|row, x| {
            let (cos, sin) = table.row(row);
            x.chunks_exact_mut(head_dim).for_each(|head| ew::rope_head(level, head, cos, sin, pairs));
        });
    }

    fn kv_append(&mut self, kv: &mut CpuKv, layer: usize, k: &CpuTensor, v: &CpuTensor, rows: Range<usize>, pos: u32) {
        kv.forget_before(layer, pos);
        for (pos, row) in (pos..).zip(rows) {
            kv.append(self.level, layer, pos, k.row(row), v.row(row));
        }
    }

    fn attention(
        &mut self,
        spec: &Attention,
        kv: &CpuKv,
        q: &CpuTensor,
        rows: Range<usize>,
        pos: u32,
        out: &mut CpuTensor,
    ) {
        let queries = Queries { q: &q.data()[rows.start * q.width()..rows.end * q.width()], pos };
        let width = out.width();
        let out = &mut out.data_mut()[rows.start * width..rows.end * width];
        attend(&mut self.pool, &self.scratches, self.level, spec, kv, &queries, out);
    }

    fn glu(&mut self, activation: Activation, gate: &CpuTensor, up: &CpuTensor, out: &mut CpuTensor) {
        assert_eq!((gate.n_rows(), gate.width()), (up.n_rows(), up.width()), "gate and up have one shape");
        out.shape(gate.n_rows(), gate.width());
        let level = self.level;
        self.each_row(out, &|row, out| ew::glu(level, activation, gate.row(row), up.row(row), out));
    }

    fn add(&mut self, x: &mut CpuTensor, y: &CpuTensor) {
        assert_eq!((x.n_rows(), x.width()), (y.n_rows(), y.width()), "summands have one shape");
        self.each_row(x, &|row, x| ew::add(x, y.row(row)));
    }

    fn scatter(&mut self, from: &CpuTensor, rows: &[u32], to: &mut CpuTensor) {
        for (i, &row) in rows.iter().enumerate() {
            to.row_mut(row as usize).copy_from_slice(from.row(i));
        }
    }

    fn combine(&mut self, parts: &CpuTensor, weights: &[f32], top_k: usize, out: &mut CpuTensor) {
        assert_eq!(weights.len(), parts.n_rows(), "one weight per expert output");
        assert!(top_k > 0 && weights.len().is_multiple_of(top_k), "top_k outputs per token");
        out.shape(weights.len() / top_k, parts.width());
        let level = self.level;
        self.each_row(out, &|token, out| {
            out.fill(0.0);
            for (k, &weight) in weights[token * top_k..][..top_k].iter().enumerate() {
                ew::add_scaled(level, out, parts.row(token * top_k + k), weight);
            }
        });
    }

    fn read_row(&self, x: &CpuTensor, row: usize) -> Vec<f32> {
        x.row(row).to_vec()
    }

    fn select_rows(&mut self, x: &CpuTensor, rows: &[u32], out: &mut CpuTensor) {
        out.shape(rows.len(), x.width());
        for (i, &row) in rows.iter().enumerate() {
            out.row_mut(i).copy_from_slice(x.row(row as usize));
        }
    }
}
