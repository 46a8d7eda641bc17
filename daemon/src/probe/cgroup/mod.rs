//! Control groups that bound our memory: the group of a process and every one above it, version 1 or 2 or both at once.
//!
//! ```text
//! /proc/<pid>/cgroup ─ membership ─┐
//!                                  ├─ place ─ folders ─ group ─► limit, usage, cache, events, pressure
//! /proc/self/mountinfo ── mounts ──┘                    below a container's limit the machine's figures mean nothing
//! ```

mod group;
mod membership;
mod mounts;
mod place;

pub(crate) use self::group::{Group, GroupReading};
#[cfg(test)]
pub(super) use self::{
    group::parse::{cache_v1, cache_v2, events, limit, usage},
    membership::parse as parse_membership,
    mounts::parse as parse_mounts,
};

use super::source::ProbeError;

/// The groups that could bound the memory of a process, the innermost first; `None`: our own. Those of version 1 come first:
/// where memory is counted there, version 2 does not count it.
///
/// # Errors
/// The process is not there, or the kernel tells no groups.
pub(crate) fn groups(pid: Option<u32>) -> Result<Vec<Group>, ProbeError> {
    place::groups(&membership::read(pid)?, &mounts::read()?)
}

/// The groups of a process that count memory, each with its figures. Empty: no controller for memory is to be seen, as in
/// the machine's own top group or a container that hides it.
///
/// # Errors
/// The groups can't be told; or, in the list, one of them can't be read.
pub(crate) fn read(pid: Option<u32>) -> Result<Vec<Result<GroupReading, ProbeError>>, ProbeError> {
    Ok(groups(pid)?.iter().filter_map(|group| group.read().transpose()).collect())
}

#[cfg(test)]
mod tests;
