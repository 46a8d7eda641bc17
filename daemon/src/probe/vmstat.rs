//! `/proc/vmstat`: what the machine's memory has been through since it was started. Counters: what counts is the difference
//! of two readings.

use std::path::Path;

use procfs::{FromRead, VmStat};

use super::source::{self, ParseError, ProbeError};

/// Counters since the machine was started. `None`: this kernel does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Vmstat {
    /// Pages of files that came back right after they had been dropped.
    pub(crate) refaults_file: Option<u64>,
    /// The same of anonymous pages, from swap. Before Linux 5.9 both were one counter, which is not taken for either.
    pub(crate) refaults_anon: Option<u64>,
    /// Pages that were read from swap.
    pub(crate) swap_in: Option<u64>,
    /// Pages that were written to it.
    pub(crate) swap_out: Option<u64>,
    /// Processes that were ended for want of memory. Counted since 4.13.
    pub(crate) oom_kills: Option<u64>,
}

/// # Errors
/// It can't be read, or holds what is no counter.
pub(crate) fn read() -> Result<Vmstat, ProbeError> {
    source::load(Path::new("/proc/vmstat"), parse)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Vmstat, ParseError> {
    let VmStat(counters) = VmStat::from_read(source::text(bytes).as_bytes()).map_err(ParseError::of_procfs)?;
    let counter = |name: &'static str| {
        let counter = counters.get(name).map(|n| u64::try_from(*n));
        counter.transpose().map_err(|_| ParseError::not_a_number(name, &counters[name].to_string()))
    };
    Ok(Vmstat {
        refaults_file: counter("workingset_refault_file")?,
        refaults_anon: counter("workingset_refault_anon")?,
        swap_in: counter("pswpin")?,
        swap_out: counter("pswpout")?,
        oom_kills: counter("oom_kill")?,
    })
}
