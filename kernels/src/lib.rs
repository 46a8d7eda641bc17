//! Quantised and float kernels in one fixed order, behind one Backend trait.

pub mod backend;
pub mod format;
pub mod rope;

/// Positions in one K/V page, and in one block of attention. Fixed: it is part of the order of additions.
pub const KV_PAGE_TOKENS: u32 = 64;
