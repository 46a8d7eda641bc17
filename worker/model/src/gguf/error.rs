//! Why a file is not a model this build can read.

/// Each variant names the field and the byte offset in the file (of the part, for a split model).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GgufError {
    /// The first four bytes are not `GGUF`.
    NotGguf {
        /// What they are.
        found: [u8; 4],
    },
    /// A GGUF for big-endian machines.
    BigEndian,
    /// A version of the format that this build does not read.
    Version {
        /// The version found.
        version: u32,
    },
    /// The bytes end inside a field. A longer read of the same file may succeed.
    Truncated {
        /// The field.
        field: String,
        /// Where it starts.
        offset_bytes: u64,
        /// Bytes it needs.
        wanted_bytes: u64,
        /// Bytes there are.
        left_bytes: u64,
    },
    /// A count or length is over its limit.
    OverLimit {
        /// The field.
        field: String,
        /// Where it starts.
        offset_bytes: u64,
        /// The value found.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A field holds a value that can't be.
    Invalid {
        /// The field.
        field: String,
        /// Where it starts.
        offset_bytes: u64,
        /// What is wrong, as the rest of a sentence.
        why: String,
    },
    /// The header is whole, but a tensor's data lies behind the end of the file.
    DataBeyondEnd {
        /// The tensor.
        tensor: String,
        /// Where its data should end.
        end_bytes: u64,
        /// Where the file ends.
        file_bytes: u64,
    },
}

impl std::fmt::Display for GgufError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotGguf { found } => {
                write!(f, "not a GGUF file: it starts with \"{}\" instead of \"GGUF\"", found.escape_ascii())
            }
            Self::BigEndian => f.write_str(
                "a big-endian GGUF: this build reads little-endian files only; convert it with `gguf-convert-endian`",
            ),
            Self::Version { version: 1 } => {
                f.write_str("GGUF version 1 is too old: convert the model again (versions 2 and 3 are read)")
            }
            Self::Version { version } => {
                write!(f, "GGUF version {version} is unknown to this build (versions 2 and 3 are read)")
            }
            Self::Truncated { field, offset_bytes, wanted_bytes, left_bytes } => write!(
                f,
                "the file ends inside {field} (at byte {offset_bytes}: {wanted_bytes} bytes wanted, {left_bytes} left); \
                 the download may be incomplete"
            ),
            Self::OverLimit { field, offset_bytes, value, limit } => {
                write!(f, "{field} (at byte {offset_bytes}) is {value}, over the limit of {limit}; the file is damaged")
            }
            Self::Invalid { field, offset_bytes, why } => write!(f, "{field} (at byte {offset_bytes}) {why}"),
            Self::DataBeyondEnd { tensor, end_bytes, file_bytes } => write!(
                f,
                "the file ends at byte {file_bytes}, but tensor \"{tensor}\" goes up to byte {end_bytes}; \
                 the download is incomplete: fetch it again"
            ),
        }
    }
}

impl std::error::Error for GgufError {}
