//! The CPU backend with eyes: it computes what [`Cpu`] computes and writes down which weights were multiplied with how many
//! rows, and with what. The engine does not know that it is watched.
//!
//! Used to see what a router sees, and which experts were really used.

use plimsoll_kernels::backend::{Activation, Attention, Backend, BackendError, HostMatrix, KvLayer, KvType, RopePairs};
use plimsoll_kernels::cpu::Cpu;
use plimsoll_kernels::rope::RopeTable;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// What was written down, by where a weight begins in its file.
pub type Log = Rc<RefCell<BTreeMap<usize, Seen>>>;

/// What one weight was multiplied with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Rows in all.
    pub n_rows: usize,
    /// Their values, one after another, where they were not gathered from others.
    pub values: Vec<f32>,
}

/// The watched device.
pub struct Recorder {
    inner: Cpu,
    log: Log,
}

impl Recorder {
    /// Watches the products with weights that begin at `starts`.
    #[must_use]
    pub fn new(inner: Cpu, starts: impl IntoIterator<Item = usize>) -> (Self, Log) {
        let log: Log = Rc::new(RefCell::new(starts.into_iter().map(|start| (start, Seen::default())).collect()));
        (Self { inner, log: Rc::clone(&log) }, log)
    }
}

/// A weight and where it begins.
#[derive(Clone)]
pub struct Placed {
    weight: <Cpu as Backend>::Weight,
    start: usize,
}

/// Prepared rows and a copy of them.
pub struct Copied {
    acts: <Cpu as Backend>::Acts,
    n_rows: usize,
    values: Vec<f32>,
}

type Tensor = <Cpu as Backend>::Tensor;
type Kv = <Cpu as Backend>::Kv;

impl Backend for Recorder {
    type Tensor = Tensor;
    type Acts = Copied;
    type Weight = Placed;
    type Kv = Kv;

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn weight(&mut self, host: HostMatrix) -> Result<Placed, BackendError> {
        let start = host.range.start;
        Ok(Placed { weight: self.inner.weight(host)?, start })
    }

    fn tensor(&mut self, max_rows: usize, width: usize) -> Result<Tensor, BackendError> {
        self.inner.tensor(max_rows, width)
    }

    fn acts(&mut self, max_rows: usize, width: usize) -> Result<Copied, BackendError> {
        Ok(Copied { acts: self.inner.acts(max_rows, width)?, n_rows: 0, values: Vec::new() })
    }

    fn kv(&mut self, layers: &[KvLayer], kv_type: KvType) -> Result<Kv, BackendError> {
        self.inner.kv(layers, kv_type)
    }

    fn kv_reserve(&mut self, kv: &mut Kv, n_tokens: u32) -> Result<(), BackendError> {
        self.inner.kv_reserve(kv, n_tokens)
    }

    fn kv_truncate(&mut self, kv: &mut Kv, n_tokens: u32) {
        self.inner.kv_truncate(kv, n_tokens);
    }

    fn kv_can_resume_at(&self, kv: &Kv, n_tokens: u32) -> bool {
        self.inner.kv_can_resume_at(kv, n_tokens)
    }

    fn kv_bytes(&self, kv: &Kv) -> u64 {
        self.inner.kv_bytes(kv)
    }

    fn set_rows(&mut self, x: &mut Tensor, n_rows: usize) {
        self.inner.set_rows(x, n_rows);
    }

    fn embed(&mut self, table: &Placed, ids: &[u32], scale: f32, out: &mut Tensor) {
        self.inner.embed(&table.weight, ids, scale, out);
    }

    fn rms_norm(&mut self, x: &Tensor, weight: &Placed, eps: f32, out: &mut Tensor) {
        self.inner.rms_norm(x, &weight.weight, eps, out);
    }

    fn rms_norm_heads(&mut self, x: &mut Tensor, weight: &Placed, eps: f32) {
        self.inner.rms_norm_heads(x, &weight.weight, eps);
    }

    fn prepare(&mut self, x: &Tensor, out: &mut Copied) {
        self.inner.prepare(x, &mut out.acts);
        out.n_rows = x.n_rows();
        out.values.clear();
        (0..x.n_rows()).for_each(|row| out.values.extend_from_slice(x.row(row)));
    }

    fn gather(&mut self, from: &Copied, rows: &[u32], out: &mut Copied) {
        self.inner.gather(&from.acts, rows, &mut out.acts);
        out.n_rows = rows.len();
        out.values.clear();
    }

    fn matmul(&mut self, weight: &Placed, acts: &Copied, out: &mut Tensor) {
        if let Some(seen) = self.log.borrow_mut().get_mut(&weight.start) {
            seen.n_rows += acts.n_rows;
            seen.values.extend_from_slice(&acts.values);
        }
        self.inner.matmul(&weight.weight, &acts.acts, out);
    }

    fn add_bias(&mut self, x: &mut Tensor, bias: &Placed) {
        self.inner.add_bias(x, &bias.weight);
    }

    fn rope(&mut self, x: &mut Tensor, head_dim: usize, table: &RopeTable, pairs: RopePairs) {
        self.inner.rope(x, head_dim, table, pairs);
    }

    fn kv_append(&mut self, kv: &mut Kv, layer: usize, k: &Tensor, v: &Tensor, rows: Range<usize>, pos: u32) {
        self.inner.kv_append(kv, layer, k, v, rows, pos);
    }

    fn attention(&mut self, spec: &Attention, kv: &Kv, q: &Tensor, rows: Range<usize>, pos: u32, out: &mut Tensor) {
        self.inner.attention(spec, kv, q, rows, pos, out);
    }

    fn glu(&mut self, activation: Activation, gate: &Tensor, up: &Tensor, out: &mut Tensor) {
        self.inner.glu(activation, gate, up, out);
    }

    fn add(&mut self, x: &mut Tensor, y: &Tensor) {
        self.inner.add(x, y);
    }

    fn scatter(&mut self, from: &Tensor, rows: &[u32], to: &mut Tensor) {
        self.inner.scatter(from, rows, to);
    }

    fn combine(&mut self, parts: &Tensor, weights: &[f32], top_k: usize, out: &mut Tensor) {
        self.inner.combine(parts, weights, top_k, out);
    }

    fn read_row(&self, x: &Tensor, row: usize) -> Vec<f32> {
        self.inner.read_row(x, row)
    }

    fn select_rows(&mut self, x: &Tensor, rows: &[u32], out: &mut Tensor) {
        self.inner.select_rows(x, rows, out);
    }
}
