//! What is free on the filesystem of a path.

use std::path::Path;

use nix::sys::statvfs::statvfs;
use plimsoll_config::units::Bytes;

use crate::probe::source::{ProbeError, Why};

/// A filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    /// All of it.
    pub(crate) total: Bytes,
    /// What we may still write: less than what is free where some is kept for root.
    pub(crate) free: Bytes,
}

/// Of a path that may not exist yet: then of the folder in which it would be made.
///
/// # Errors
/// It can't be looked at.
pub(crate) fn read(path: &Path) -> Result<Space, ProbeError> {
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    let stat = statvfs(there).map_err(|errno| ProbeError::new(there, Why::of(&errno.into())))?;
    let fragments = |n: u64| Bytes(n).saturating_mul(stat.fragment_size());
    Ok(Space { total: fragments(stat.blocks()), free: fragments(stat.blocks_available()) })
}
