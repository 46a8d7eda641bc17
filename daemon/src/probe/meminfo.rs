//! `/proc/meminfo`: the machine's memory and swap.
//!
//! Not `procfs`' own type: it panics on a size that does not fit 64 bits and on a name that ends inside a letter.

use std::path::Path;

use plimsoll_config::units::Bytes;

use super::fields::Fields;
use super::source::{self, ParseError, ProbeError};

/// The machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meminfo {
    /// All of it.
    pub(crate) total: Bytes,
    /// What nobody uses, not even as a cache.
    pub(crate) free: Bytes,
    /// What programs could have without swapping: free and what caches would give. A kernel before 3.14 does not say it.
    pub(crate) available: Option<Bytes>,
    /// All swap areas.
    pub(crate) swap_total: Bytes,
    /// What is free of them.
    pub(crate) swap_free: Bytes,
    /// Compressed swap cache: memory that it takes, and what it stands for. A kernel before 5.19 does not say it.
    pub(crate) zswap: Option<Zswap>,
}

/// The compressed cache before the swap areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zswap {
    /// Memory that it takes.
    pub(crate) pool: Bytes,
    /// What it stands for.
    pub(crate) stored: Bytes,
}

impl Meminfo {
    /// What programs could have. Where the kernel does not say it: what is free, which is less.
    pub(crate) fn obtainable(&self) -> Bytes {
        self.available.unwrap_or(self.free)
    }

    /// Swap in use.
    pub(crate) fn swap_used(&self) -> Bytes {
        self.swap_total.saturating_sub(self.swap_free)
    }
}

/// # Errors
/// It can't be read, or a field that every kernel writes is missing.
pub(crate) fn read() -> Result<Meminfo, ProbeError> {
    source::load(Path::new("/proc/meminfo"), parse)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Meminfo, ParseError> {
    let text = source::text(bytes);
    let fields = Fields(&text);
    let zswap = fields.size("Zswap")?.zip(fields.size("Zswapped")?).map(|(pool, stored)| Zswap { pool, stored });
    Ok(Meminfo {
        total: fields.needed_size("MemTotal")?,
        free: fields.needed_size("MemFree")?,
        available: fields.size("MemAvailable")?,
        swap_total: fields.needed_size("SwapTotal")?,
        swap_free: fields.needed_size("SwapFree")?,
        zswap,
    })
}
