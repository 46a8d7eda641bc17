//! The GGUF header: metadata and the table of tensors, from a byte slice.
//!
//! Read by both sides: the daemon plans from it, the worker loads by it. Versions 2 and 3, little endian. The input may be
//! hostile: every count and length is checked against the bytes that are really there before anything is allocated, so memory
//! stays a small multiple of the file's own bytes, and every error names the field and its offset. No tensor data is read here.
//!
//! ```text
//! "GGUF" version n_tensors n_entries | entries: key type value … | tensors: name dims type offset … | pad | data …
//! ```
//! Source of the format: the GGUF specification (ggml, docs/gguf.md).

mod cursor;
mod error;
mod metadata;
mod parse;
mod strings;
mod types;

pub use error::GgufError;
pub use metadata::{Metadata, MetadataError, NumberArray, Scalar, Value, ValueType};
pub use strings::StringArray;
pub use types::TensorType;

use std::ops::Range;

/// One row of the table of tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Elements along each dimension, the fastest first: `[n_cols, n_rows, …]`. At least one, each at least 1.
    pub dims: Vec<u64>,
    /// Storage type.
    pub ty: TensorType,
    /// Where its bytes start within the data section of its part.
    pub offset_bytes: u64,
    /// Bytes of data.
    pub n_bytes: u64,
    /// The part of a split model that holds it, from 0.
    pub part: usize,
}

impl TensorInfo {
    /// Columns: elements of one row.
    pub fn n_cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(0)
    }

    /// Rows: the product of all dimensions but the first. Cannot overflow: the parser checked the product of all.
    pub fn n_rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

/// A parsed header. For a split model: the metadata of part 1 and the tensors of all parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Version of the format: 2 or 3.
    pub version: u32,
    /// Metadata.
    pub metadata: Metadata,
    /// Tensors in the file's order; names are unique.
    pub tensors: Vec<TensorInfo>,
    /// Where the data section starts: the header's length, padded. Of part 1 for a split model.
    pub data_offset_bytes: u64,
    /// Alignment of tensor data.
    pub alignment_bytes: u64,
    /// Indices into `tensors`, sorted by name.
    by_name: Vec<u32>,
}

impl Header {
    /// Parses a header. `bytes` start at the file's first byte and must hold the whole header; data after it is not looked at
    /// and need not be there: see [`Header::check_data`].
    ///
    /// # Errors
    /// Every [`GgufError`] but [`GgufError::DataBeyondEnd`].
    pub fn parse(bytes: &[u8]) -> Result<Self, GgufError> {
        parse::header(bytes)
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at = self.by_name.binary_search_by(|i| (*self.tensors[*i as usize].name).cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[at] as usize])
    }

    /// Checks that every tensor lies in a file of `file_bytes`. For one part; call it before parts are joined.
    ///
    /// # Errors
    /// [`GgufError::DataBeyondEnd`] for the first tensor that does not.
    pub fn check_data(&self, file_bytes: u64) -> Result<(), GgufError> {
        for tensor in &self.tensors {
            // No overflow: the parser checked that data offset + offset + bytes fit.
            let end_bytes = self.data_offset_bytes + tensor.offset_bytes + tensor.n_bytes;
            if end_bytes > file_bytes {
                return Err(GgufError::DataBeyondEnd { tensor: tensor.name.clone(), end_bytes, file_bytes });
            }
        }
        Ok(())
    }

    /// Where `tensor` lies in its file, given the data offset of its part.
    pub(crate) fn file_range(tensor: &TensorInfo, data_offset_bytes: u64) -> Option<Range<usize>> {
        let start = usize::try_from(data_offset_bytes.checked_add(tensor.offset_bytes)?).ok()?;
        let end = start.checked_add(usize::try_from(tensor.n_bytes).ok()?)?;
        Some(start..end)
    }

    /// Adds the tensors of a further part; the name of one that is there already is the error.
    pub(crate) fn join(&mut self, other: Header, part: usize) -> Result<(), String> {
        self.tensors.extend(other.tensors.into_iter().map(|tensor| TensorInfo { part, ..tensor }));
        self.by_name = parse::index_by_name(&self.tensors).map_err(|i| self.tensors[i].name.clone())?;
        Ok(())
    }
}
