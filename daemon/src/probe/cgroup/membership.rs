//! `/proc/<pid>/cgroup`: in which groups a process is.

use std::path::PathBuf;

use procfs::{FromRead, ProcessCGroups};

use crate::probe::source::{self, ParseError, ProbeError};

/// Paths as the kernel writes them: from the top of the hierarchy, or of the namespace of who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    /// In the hierarchy of version 1 that counts memory.
    pub(super) v1: Option<String>,
    /// In the one hierarchy of version 2.
    pub(super) v2: Option<String>,
}

/// # Errors
/// The process is not there, or the kernel has no control groups.
pub(super) fn read(pid: Option<u32>) -> Result<Membership, ProbeError> {
    let who = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    source::load(&PathBuf::from(format!("/proc/{who}/cgroup")), parse)
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Membership, ParseError> {
    let ProcessCGroups(groups) =
        ProcessCGroups::from_read(source::text(bytes).as_bytes()).map_err(ParseError::of_procfs)?;
    let mut membership = Membership::default();
    for group in groups {
        if group.controllers.iter().any(|name| name == "memory") {
            membership.v1.get_or_insert(group.pathname);
        } else if group.hierarchy == 0 && group.controllers.is_empty() {
            membership.v2.get_or_insert(group.pathname);
        }
    }
    Ok(membership)
}
