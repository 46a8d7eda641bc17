//! `/proc/<pid>/io`: what a process has read. Only of one's own processes, and of those that may be traced.

use plimsoll_config::units::Bytes;

use crate::probe::fields::Fields;
use crate::probe::source::{self, ParseError, ProbeError};

/// What is wanted of it. `procfs`' own type panics on a name that ends inside a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    /// Bytes that a device had to be asked for since the start of the process; what was in the page cache is not counted.
    pub(crate) read: Bytes,
}

/// # Errors
/// The process is not there, or may not be looked into; or this kernel does not count.
pub(crate) fn read(pid: u32) -> Result<Io, ProbeError> {
    source::load(&super::file(pid, "io"), parse)
}

pub(in crate::probe) fn parse(bytes: &[u8]) -> Result<Io, ParseError> {
    let text = source::text(bytes);
    Ok(Io { read: Bytes(Fields(&text).needed_count("read_bytes")?) })
}
