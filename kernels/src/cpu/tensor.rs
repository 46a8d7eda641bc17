//! What the CPU backend holds: activations as rows of f32, weights as the file's bytes.

use crate::backend::{BackendError, HostMatrix, SharedBytes};
use crate::dequant::dequantize_row;
use crate::format::Format;
use std::ops::Range;
use std::sync::Arc;

/// A vector of `n` default elements, or an error where memory is short.
pub(super) fn try_vec<T: Clone + Default>(n: usize) -> Result<Vec<T>, BackendError> {
    let mut vec = Vec::new();
    let wanted_bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    vec.try_reserve_exact(n).map_err(|_| BackendError::OutOfMemory { wanted_bytes })?;
    vec.resize(n, T::default());
    Ok(vec)
}

/// Activations `[n_rows × width]` in host memory.
#[derive(Debug)]
pub struct CpuTensor {
    data: Vec<f32>,
    width: usize,
    max_rows: usize,
    n_rows: usize,
}

impl CpuTensor {
    pub(super) fn new(max_rows: usize, width: usize) -> Result<Self, BackendError> {
        Ok(Self { data: try_vec(max_rows.saturating_mul(width))?, width, max_rows, n_rows: 0 })
    }

    /// Elements per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows in use.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Rows it can hold.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If the row is not in use.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data()[i * self.width..(i + 1) * self.width]
    }

    /// Row `i`, to write.
    ///
    /// # Panics
    /// If the row is not in use.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        let width = self.width;
        &mut self.data_mut()[i * width..(i + 1) * width]
    }

    /// All rows in use.
    pub(super) fn data(&self) -> &[f32] {
        &self.data[..self.n_rows * self.width]
    }

    /// All rows in use, to write.
    pub(super) fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.n_rows * self.width]
    }

    pub(super) fn set_rows(&mut self, n_rows: usize) {
        assert!(n_rows <= self.max_rows, "{n_rows} rows in a tensor for {}", self.max_rows);
        self.n_rows = n_rows;
    }

    /// Sets the rows and checks the width in one go, as every operation does for its output.
    pub(super) fn shape(&mut self, n_rows: usize, width: usize) {
        assert_eq!(self.width, width, "a tensor's width");
        self.set_rows(n_rows);
    }
}

/// A weight matrix: the file's own bytes, nothing copied, except that a single row (a norm, a bias) is also kept as f32.
#[derive(Clone)]
pub struct CpuWeight {
    owner: SharedBytes,
    range: Range<usize>,
    format: Format,
    n_rows: usize,
    n_cols: usize,
    row_bytes: usize,
    vector: Option<Arc<[f32]>>,
}

impl CpuWeight {
    pub(super) fn new(host: HostMatrix) -> Result<Self, BackendError> {
        let HostMatrix { owner, range, format, n_rows, n_cols } = host;
        let wrong = |why: String| Err(BackendError::Shape(why));
        let Some(row_bytes) = format.row_bytes(n_cols) else {
            return wrong(format!("{n_cols} columns are not whole {format} blocks of {}", format.block_elements()));
        };
        if n_rows == 0 || n_cols == 0 {
            return wrong(format!("{n_rows} × {n_cols} has no elements"));
        }
        let held = (*owner).as_ref().len();
        if range.start > range.end || range.end > held {
            return wrong(format!("bytes {}..{} of {held}", range.start, range.end));
        }
        if row_bytes.checked_mul(n_rows) != Some(range.len()) {
            return wrong(format!("{n_rows} × {n_cols} in {format} is not {} bytes", range.len()));
        }
        let mut weight = Self { owner, range, format, n_rows, n_cols, row_bytes, vector: None };
        if n_rows == 1 {
            let mut values = try_vec(n_cols)?;
            dequantize_row(format, weight.bytes(), &mut values);
            weight.vector = Some(values.into());
        }
        Ok(weight)
    }

    /// All rows, as stored.
    pub(super) fn bytes(&self) -> &[u8] {
        // Checked again at each use: nothing obliges the owner to give the same slice twice.
        &(*self.owner).as_ref()[self.range.clone()]
    }

    /// A single-row weight as f32.
    pub(super) fn vector(&self, width: usize) -> &[f32] {
        let vector = self.vector.as_deref().unwrap_or_default();
        assert_eq!(vector.len(), width, "a weight of one row of {width} elements");
        vector
    }

    /// Storage format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Output features.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Input features.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Bytes of one row.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

impl std::fmt::Debug for CpuWeight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuWeight({} {} × {})", self.format, self.n_rows, self.n_cols)
    }
}
