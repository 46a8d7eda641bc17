//! Reading little-endian fields from a byte slice that may be hostile: nothing is trusted before its bytes are seen.

use super::error::GgufError;
use std::fmt;

/// What is being read, for the error. Rendered only when there is one.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    /// A field of the fixed part.
    Fixed(&'static str),
    /// A part of the n-th metadata entry, whose key is not known yet.
    Entry(u64, &'static str),
    /// A part of the value under a key.
    Value(&'a str, &'static str),
    /// The n-th element of the array under a key.
    Element(&'a str, u64),
    /// A part of the n-th tensor, whose name is not known yet.
    TensorIndex(u64, &'static str),
    /// A part of the tensor with a name.
    Tensor(&'a str, &'static str),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(name) => f.write_str(name),
            Self::Entry(index, part) => write!(f, "metadata entry {index}: {part}"),
            Self::Value(key, part) => write!(f, "metadata \"{}\": {part}", key.escape_debug()),
            Self::Element(key, index) => write!(f, "metadata \"{}\": element {index}", key.escape_debug()),
            Self::TensorIndex(index, part) => write!(f, "tensor {index}: {part}"),
            Self::Tensor(name, part) => write!(f, "tensor \"{}\": {part}", name.escape_debug()),
        }
    }
}

/// A position in the header's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte.
    pub(super) fn offset_bytes(&self) -> u64 {
        self.at as u64
    }

    /// Bytes not read yet.
    pub(super) fn left_bytes(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The bytes not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `n_bytes`, which need not fit in memory to be refused.
    pub(super) fn take(&mut self, n_bytes: u64, field: Field<'_>) -> Result<&'a [u8], GgufError> {
        if n_bytes > self.left_bytes() {
            return Err(GgufError::Truncated {
                field: field.to_string(),
                offset_bytes: self.offset_bytes(),
                wanted_bytes: n_bytes,
                left_bytes: self.left_bytes(),
            });
        }
        // In range: n_bytes is at most the number of bytes left, which is a usize.
        let end = self.at + n_bytes as usize;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: Field<'_>) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, field)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, field: Field<'_>) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: Field<'_>) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A count or length that is at most `limit`, and of which each unit takes at least `unit_bytes` of what is left.
    pub(super) fn count(&mut self, limit: u64, unit_bytes: u64, field: Field<'_>) -> Result<u64, GgufError> {
        let offset_bytes = self.offset_bytes();
        let value = self.u64(field)?;
        if value > limit {
            return Err(GgufError::OverLimit { field: field.to_string(), offset_bytes, value, limit });
        }
        // No overflow: every limit is under 2^32 and every unit under 2^10.
        let wanted_bytes = value * unit_bytes;
        if wanted_bytes > self.left_bytes() {
            return Err(GgufError::Truncated {
                field: field.to_string(),
                offset_bytes,
                wanted_bytes,
                left_bytes: self.left_bytes(),
            });
        }
        Ok(value)
    }

    /// A length and that many bytes.
    pub(super) fn string(&mut self, limit_bytes: u64, field: Field<'_>) -> Result<&'a [u8], GgufError> {
        let n_bytes = self.count(limit_bytes, 1, field)?;
        self.take(n_bytes, field)
    }

    /// The same, as text.
    pub(super) fn text(&mut self, limit_bytes: u64, field: Field<'_>) -> Result<&'a str, GgufError> {
        let offset_bytes = self.offset_bytes();
        let bytes = self.string(limit_bytes, field)?;
        std::str::from_utf8(bytes).map_err(|e| GgufError::Invalid {
            field: field.to_string(),
            offset_bytes,
            why: format!("is not UTF-8 (byte {} of the text)", e.valid_up_to()),
        })
    }
}
