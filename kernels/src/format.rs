//! Storage formats this crate computes with.

/// A tensor's storage format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit float.
    F32,
}
