//! `/proc/<pid>/smaps_rollup`: what of a process's memory is its own and what it shares. Never at a rate: the kernel walks
//! every page of the process and holds its map's lock meanwhile, 38 ms for 3 GiB in pages of 4 KiB, in which the process
//! can't have new memory. `status` says what is needed often.

use plimsoll_config::units::Bytes;

use crate::probe::fields::Fields;
use crate::probe::source::{self, ParseError, ProbeError};

/// Shares of memory. `procfs`' own type overflows on a size that does not fit 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollup {
    /// All that is resident.
    pub(crate) resident: Bytes,
    /// The same, each page divided by the processes that have it.
    pub(crate) proportional: Bytes,
}

/// One look on demand: 12 ms for each GiB that the process holds, in which it can't map memory.
///
/// # Errors
/// The process is not there, or may not be looked into; or the kernel is older than 4.14.
pub(crate) fn read(pid: u32) -> Result<Rollup, ProbeError> {
    source::load(&super::file(pid, "smaps_rollup"), parse)
}

pub(in crate::probe) fn parse(bytes: &[u8]) -> Result<Rollup, ParseError> {
    let text = source::text(bytes);
    let fields = Fields(&text);
    Ok(Rollup { resident: fields.needed_size("Rss")?, proportional: fields.needed_size("Pss")? })
}
