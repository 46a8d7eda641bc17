//! Why a header is not a model this build can plan or run.

use super::Arch;
use crate::gguf::MetadataError;

/// Each variant is a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactsError {
    /// A key is missing or has the wrong type.
    Metadata(MetadataError),
    /// An architecture this build does not compute.
    UnknownArch {
        /// The value of `general.architecture`.
        found: String,
    },
    /// A key asks for something this build does not compute.
    Unsupported {
        /// The key.
        key: String,
        /// Its value, and what it would need.
        why: String,
    },
    /// A key's value can't be.
    Invalid {
        /// The key.
        key: String,
        /// What is wrong, as the rest of a sentence.
        why: String,
    },
    /// A tensor the architecture needs is not in the file.
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape or type than the metadata asks for.
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong, as the rest of a sentence.
        why: String,
    },
    /// The file holds a tensor that the architecture, as this build computes it, does not use.
    UnusedTensor {
        /// Its name.
        name: String,
        /// The architecture.
        arch: Arch,
    },
}

impl From<MetadataError> for FactsError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl std::fmt::Display for FactsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Metadata(error) => error.fmt(f),
            Self::UnknownArch { found } => {
                let known = Arch::ALL.map(Arch::name).join(", ");
                write!(f, "architecture \"{found}\" is unknown to this build; known are {known}")
            }
            Self::Unsupported { key, why } => write!(f, "\"{key}\" {why}: this build does not compute that"),
            Self::Invalid { key, why } => write!(f, "\"{key}\" {why}; the file is damaged"),
            Self::MissingTensor { name } => {
                write!(f, "tensor \"{name}\" is not in the file; convert the model again or fetch all its parts")
            }
            Self::Tensor { name, why } => write!(f, "tensor \"{name}\" {why}"),
            Self::UnusedTensor { name, arch } => write!(
                f,
                "tensor \"{name}\" has no place in \"{}\" as this build computes it; without it the answers would be wrong",
                arch.name()
            ),
        }
    }
}

impl std::error::Error for FactsError {}
