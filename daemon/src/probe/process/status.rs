//! `/proc/<pid>/status`: who a process is and what it holds in memory. 0.02 ms, whatever it holds: this is the file to look
//! at often.

use plimsoll_config::units::Bytes;
use procfs::FromRead;

use crate::probe::source::{self, ParseError, ProbeError};

/// A process and its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// Its name, of which the kernel keeps 15 bytes.
    pub(crate) name: String,
    /// Whose rights it has.
    pub(crate) euid: u32,
    /// What it does, as the kernel's letter: `R` runs, `S` and `D` wait, `Z` has ended and was not collected.
    pub(crate) state: char,
    /// What it holds; `None` of one that has ended, of a thread of the kernel, and on kernels before 4.5.
    pub(crate) resident: Option<Resident>,
    /// What of it was moved to swap.
    pub(crate) swapped: Option<Bytes>,
}

/// Memory in use, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Its own.
    pub(crate) anon: Bytes,
    /// Pages of files, which the kernel can drop.
    pub(crate) file: Bytes,
    /// Shared, `tmpfs` too: counted in each process that has it.
    pub(crate) shmem: Bytes,
}

/// # Errors
/// The process is not there, or not to be seen.
pub(crate) fn read(pid: u32) -> Result<Status, ProbeError> {
    source::load(&super::file(pid, "status"), parse)
}

pub(in crate::probe) fn parse(bytes: &[u8]) -> Result<Status, ParseError> {
    let text = source::text(bytes);
    let status = procfs::process::Status::from_read(text.as_bytes()).map_err(ParseError::of_procfs)?;
    let kib = |field: &'static str, kib: Option<u64>| {
        let bytes = kib.map(|kib| Bytes(kib).checked_mul(1024).ok_or((field, kib)));
        bytes.transpose().map_err(|(field, kib)| ParseError::not_a_number(field, &kib.to_string()))
    };
    let anon = kib("RssAnon", status.rssanon)?;
    let (file, shmem) = (kib("RssFile", status.rssfile)?, kib("RssShmem", status.rssshmem)?);
    let resident = anon.zip(file).zip(shmem).map(|((anon, file), shmem)| Resident { anon, file, shmem });
    let state = status.state.chars().next().ok_or(ParseError::Missing("State"))?;
    Ok(Status { name: status.name, euid: status.euid, state, resident, swapped: kib("VmSwap", status.vmswap)? })
}
