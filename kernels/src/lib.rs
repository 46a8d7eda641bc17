//! Quantised and float kernels in one fixed order, behind one Backend trait.
//!
//! `README.md` beside this crate writes down every order of additions. Read in this order: `backend` (what an engine asks),
//! `format` and `dequant` (what is stored), `order` (how sums are made), `math`, `rope`, then `cpu`.
//!
//! The crate does no I/O, reads no clock and keeps no global state; its threads belong to a [`cpu::Cpu`].

pub mod backend;
pub mod cpu;
pub mod dequant;
pub mod format;
pub mod math;
pub mod order;
mod pool;
pub mod rope;
mod trig;

pub use dequant::dequantize_row;
pub use format::Format;

/// Positions in one K/V page, and in one block of attention. Fixed: it is part of the order of additions.
pub const KV_PAGE_TOKENS: u32 = 64;
