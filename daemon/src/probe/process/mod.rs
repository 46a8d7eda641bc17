//! One process: what it holds, what it has waited for, what it has read. A process that ends meanwhile is absent.

pub(crate) mod io;
pub(crate) mod smaps_rollup;
pub(crate) mod stat;
pub(crate) mod status;

use std::path::PathBuf;

/// A file of a process.
fn file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}
