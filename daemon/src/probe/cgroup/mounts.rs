//! `/proc/self/mountinfo`: where the hierarchies are to be seen, and from which group of theirs on.

use std::path::{Path, PathBuf};

use procfs::process::MountInfo;

use crate::probe::source::{self, ParseError, ProbeError};

/// A hierarchy's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The group that is at its top: `/`, or the container's own where the rest is hidden.
    pub(super) root: String,
    /// Where it is.
    pub(super) folder: PathBuf,
}

/// The hierarchies that can count memory. Both at once on a hybrid machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Of version 1, with the controller for memory.
    pub(super) v1: Option<Mount>,
    /// Of version 2.
    pub(super) v2: Option<Mount>,
}

/// # Errors
/// It can't be read.
pub(super) fn read() -> Result<Mounts, ProbeError> {
    source::load(Path::new("/proc/self/mountinfo"), parse)
}

/// Looks only at lines about control groups: others may have anything in their names.
pub(crate) fn parse(bytes: &[u8]) -> Result<Mounts, ParseError> {
    let text = source::text(bytes);
    let mut mounts = Mounts::default();
    for line in text.lines().filter(|line| line.contains(" - cgroup")) {
        let info = MountInfo::from_line(line).map_err(ParseError::of_procfs)?;
        let place = match info.fs_type.as_str() {
            "cgroup2" => &mut mounts.v2,
            "cgroup" if info.super_options.contains_key("memory") => &mut mounts.v1,
            _ => continue,
        };
        // The first one: others are copies that a container was given.
        place.get_or_insert(Mount { root: info.root, folder: info.mount_point });
    }
    Ok(mounts)
}
