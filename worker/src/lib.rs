//! The engine process: weights, sessions, sampling. Token ids come in, token ids go out.
//!
//! Two nouns: an [`Engine`] is the immutable weights on one device; a [`Session`] is one timeline of token ids with its K
//! and V. Everything here is generic over the device ([`plimsoll_kernels::backend::Backend`]), down to where a process
//! starts (`start`, `serve`, `offline`), which choose the CPU.
//!
//! Read in this order: [`engine`] and [`session`]; [`arch`], one file per architecture, over [`block`]; [`sampler`];
//! [`schedule`], which session computes what; [`serve`], the job loop on the daemon's socket; [`offline`], the commands.
//!
//! What is absent: text (the daemon has the tokenizer; only the offline commands use one here), HTTP, an async runtime, and
//! any libm function: the same bits on every machine.

pub mod engine;
pub mod session;

pub mod arch;
pub mod block;
pub mod load;
pub mod positions;
pub mod router;
pub mod work;

pub mod sampler;
pub mod schedule;

pub mod start;

pub mod serve;

pub mod cli;
pub mod exit;
pub mod offline;

pub use engine::Engine;
pub use session::Session;
