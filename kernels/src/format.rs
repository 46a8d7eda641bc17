//! Storage formats this crate computes with, as a table: name, GGUF id, block shape.
//!
//! The worker asks for a format by the id a GGUF tensor carries; the kernels ask for its block shape. Nothing here
//! computes: `dequant` gives a block's values, `cpu` multiplies with them.

/// A tensor's storage format. Names follow GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit float.
    F32,
    /// Half precision.
    F16,
    /// The upper half of a 32-bit float.
    BF16,
    /// 4-bit values around 8, one f16 scale per 32.
    Q4_0,
    /// 4-bit values from 0, f16 scale and f16 minimum per 32.
    Q4_1,
    /// 5-bit values around 16, one f16 scale per 32.
    Q5_0,
    /// 5-bit values from 0, f16 scale and f16 minimum per 32.
    Q5_1,
    /// Signed bytes, one f16 scale per 32.
    Q8_0,
    /// 256 4-bit values: f16 scale and f16 minimum, both refined by 6 bits per 32.
    Q4K,
    /// 256 5-bit values: f16 scale and f16 minimum, both refined by 6 bits per 32.
    Q5K,
    /// 256 6-bit values around 32: f16 scale, refined by a signed byte per 16.
    Q6K,
}

/// One row of the format table.
struct Shape {
    format: Format,
    name: &'static str,
    ggml_id: u32,
    block_elements: usize,
    block_bytes: usize,
}

const fn shape(format: Format, name: &'static str, ggml_id: u32, block_elements: usize, block_bytes: usize) -> Shape {
    Shape { format, name, ggml_id, block_elements, block_bytes }
}

/// In the order of the enum, so that a format's discriminant is its index. The block shapes are GGUF's.
static TABLE: [Shape; 11] = [
    shape(Format::F32, "F32", 0, 1, 4),
    shape(Format::F16, "F16", 1, 1, 2),
    shape(Format::BF16, "BF16", 30, 1, 2),
    shape(Format::Q4_0, "Q4_0", 2, 32, 18),
    shape(Format::Q4_1, "Q4_1", 3, 32, 20),
    shape(Format::Q5_0, "Q5_0", 6, 32, 22),
    shape(Format::Q5_1, "Q5_1", 7, 32, 24),
    shape(Format::Q8_0, "Q8_0", 8, 32, 34),
    shape(Format::Q4K, "Q4_K", 12, 256, 144),
    shape(Format::Q5K, "Q5_K", 13, 256, 176),
    shape(Format::Q6K, "Q6_K", 14, 256, 210),
];

impl Format {
    /// Every format, in table order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|shape| shape.format)
    }

    /// The format with this GGUF tensor type id; `None` where this crate has no kernel for it.
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        TABLE.iter().find(|shape| shape.ggml_id == id).map(|shape| shape.format)
    }

    const fn shape(self) -> &'static Shape {
        &TABLE[self as usize]
    }

    /// The id a GGUF tensor carries.
    pub const fn ggml_id(self) -> u32 {
        self.shape().ggml_id
    }

    /// The name people know, as in `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.shape().name
    }

    /// Elements in one block.
    pub const fn block_elements(self) -> usize {
        self.shape().block_elements
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        self.shape().block_bytes
    }

    /// Bytes of a row of `n_cols` elements; `None` if that is not a whole number of blocks, or too much to count.
    pub const fn row_bytes(self, n_cols: usize) -> Option<usize> {
        if !n_cols.is_multiple_of(self.block_elements()) {
            return None;
        }
        (n_cols / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Whether a product with this format is made of exact integers per 32 elements (else of floats in 32 chains).
    pub const fn is_integer(self) -> bool {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => false,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Q4K | Self::Q5K | Self::Q6K => true,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, TABLE};

    #[test]
    fn table_is_in_enum_order_and_ids_find_their_format() {
        for (index, shape) in TABLE.iter().enumerate() {
            assert_eq!(shape.format as usize, index);
            assert_eq!(Format::from_ggml_id(shape.ggml_id), Some(shape.format));
        }
        assert_eq!(Format::from_ggml_id(10), None, "Q2_K has no kernel yet");
    }

    #[test]
    fn row_bytes_wants_whole_blocks() {
        assert_eq!(Format::Q4_1.row_bytes(576), Some(360));
        assert_eq!(Format::Q4_1.row_bytes(577), None);
        assert_eq!(Format::Q6K.row_bytes(576), None);
        assert_eq!(Format::F16.row_bytes(3), Some(6));
        assert_eq!(Format::F32.row_bytes(usize::MAX), None);
    }
}
