//! Every tensor type that a GGUF file can name: id, name, and the block it is stored in.
//!
//! The planner needs sizes of types that no kernel computes with, so the table is complete. Source: the GGUF
//! specification and ggml's type list; ids that were withdrawn are known by name, to say so.

/// A tensor's storage type, as ggml numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    non_camel_case_types,
    missing_docs,
    reason = "the names are ggml's own, so that a search for one finds it here"
)]
pub enum TensorType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
}

/// One row of the table.
struct Row {
    ty: TensorType,
    id: u32,
    name: &'static str,
    block_elements: u64,
    block_bytes: u64,
}

const fn row(ty: TensorType, id: u32, name: &'static str, block_elements: u64, block_bytes: u64) -> Row {
    Row { ty, id, name, block_elements, block_bytes }
}

/// In the order of the enum, so that a type's row is found by its discriminant.
static TABLE: [Row; 34] = [
    row(TensorType::F32, 0, "F32", 1, 4),
    row(TensorType::F16, 1, "F16", 1, 2),
    row(TensorType::Q4_0, 2, "Q4_0", 32, 18),
    row(TensorType::Q4_1, 3, "Q4_1", 32, 20),
    row(TensorType::Q5_0, 6, "Q5_0", 32, 22),
    row(TensorType::Q5_1, 7, "Q5_1", 32, 24),
    row(TensorType::Q8_0, 8, "Q8_0", 32, 34),
    row(TensorType::Q8_1, 9, "Q8_1", 32, 36),
    row(TensorType::Q2_K, 10, "Q2_K", 256, 84),
    row(TensorType::Q3_K, 11, "Q3_K", 256, 110),
    row(TensorType::Q4_K, 12, "Q4_K", 256, 144),
    row(TensorType::Q5_K, 13, "Q5_K", 256, 176),
    row(TensorType::Q6_K, 14, "Q6_K", 256, 210),
    row(TensorType::Q8_K, 15, "Q8_K", 256, 292),
    row(TensorType::IQ2_XXS, 16, "IQ2_XXS", 256, 66),
    row(TensorType::IQ2_XS, 17, "IQ2_XS", 256, 74),
    row(TensorType::IQ3_XXS, 18, "IQ3_XXS", 256, 98),
    row(TensorType::IQ1_S, 19, "IQ1_S", 256, 50),
    row(TensorType::IQ4_NL, 20, "IQ4_NL", 32, 18),
    row(TensorType::IQ3_S, 21, "IQ3_S", 256, 110),
    row(TensorType::IQ2_S, 22, "IQ2_S", 256, 82),
    row(TensorType::IQ4_XS, 23, "IQ4_XS", 256, 136),
    row(TensorType::I8, 24, "I8", 1, 1),
    row(TensorType::I16, 25, "I16", 1, 2),
    row(TensorType::I32, 26, "I32", 1, 4),
    row(TensorType::I64, 27, "I64", 1, 8),
    row(TensorType::F64, 28, "F64", 1, 8),
    row(TensorType::IQ1_M, 29, "IQ1_M", 256, 56),
    row(TensorType::BF16, 30, "BF16", 1, 2),
    row(TensorType::TQ1_0, 34, "TQ1_0", 256, 54),
    row(TensorType::TQ2_0, 35, "TQ2_0", 256, 66),
    row(TensorType::MXFP4, 39, "MXFP4", 32, 17),
    row(TensorType::NVFP4, 40, "NVFP4", 64, 36),
    row(TensorType::Q1_0, 41, "Q1_0", 128, 18),
];

/// Ids that ggml gave up: their files have to be converted again.
static WITHDRAWN: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    /// The type with ggml's number `id`.
    ///
    /// # Errors
    /// A sentence: the number is withdrawn (by name) or unknown.
    pub fn from_id(id: u32) -> Result<Self, String> {
        if let Some(row) = TABLE.iter().find(|row| row.id == id) {
            return Ok(row.ty);
        }
        Err(match WITHDRAWN.iter().find(|(withdrawn, _)| *withdrawn == id) {
            Some((_, name)) => {
                format!("tensor type {id} ({name}) was withdrawn from the format; convert the model again")
            }
            None => format!("tensor type {id} is unknown to this build"),
        })
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// ggml's number.
    pub fn id(self) -> u32 {
        self.row().id
    }

    /// ggml's name, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements in one block.
    pub fn block_elements(self) -> u64 {
        self.row().block_elements
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> u64 {
        self.row().block_bytes
    }

    /// Bytes of `n_elements`, or `None` when they are not whole blocks or the bytes do not fit in 64 bits.
    pub fn bytes(self, n_elements: u64) -> Option<u64> {
        let row = self.row();
        if n_elements.is_multiple_of(row.block_elements) {
            (n_elements / row.block_elements).checked_mul(row.block_bytes)
        } else {
            None
        }
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_where_its_type_looks_for_it() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.ty as usize, i, "{}", row.name);
            assert_eq!(format!("{:?}", row.ty), row.name);
            assert_eq!(TensorType::from_id(row.id), Ok(row.ty));
        }
    }

    #[test]
    fn withdrawn_and_unknown_types_are_told_apart() {
        assert!(TensorType::from_id(4).unwrap_err().contains("Q4_2"));
        assert!(TensorType::from_id(999).unwrap_err().contains("unknown"));
    }

    #[test]
    fn bytes_need_whole_blocks() {
        assert_eq!(TensorType::Q4_K.bytes(512), Some(288));
        assert_eq!(TensorType::Q4_K.bytes(500), None);
        assert_eq!(TensorType::F64.bytes(u64::MAX), None);
    }
}
