//! How much memory is left: under the machine's end and under every control group's above a process, each for itself.

use std::path::PathBuf;

use plimsoll_config::units::Bytes;

use super::cgroup::GroupReading;
use super::meminfo::Meminfo;

/// What may be used, and what is used and can't be had back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// The control group's folder; `None`: the machine itself.
    pub(crate) group: Option<PathBuf>,
    /// What may be used.
    pub(crate) limit: Bytes,
    /// What is used of it, without what the kernel could drop.
    pub(crate) used: Bytes,
}

impl Room {
    fn of_machine(meminfo: &Meminfo) -> Self {
        let used = meminfo.total.saturating_sub(meminfo.obtainable());
        Self { group: None, limit: meminfo.total, used }
    }

    /// `None` of a group without a limit: its usage bounds nobody.
    fn of_group(group: &GroupReading) -> Option<Self> {
        let limit = group.bound()?;
        Some(Self { group: Some(group.folder.clone()), limit, used: group.unreclaimable() })
    }

    /// What can still be had.
    pub(crate) fn left(&self) -> Bytes {
        self.limit.saturating_sub(self.used)
    }
}

/// The headroom: the room with the least left, of the machine and all groups. Of two that are as tight, the innermost.
pub(crate) fn tightest<'a>(meminfo: &Meminfo, groups: impl Iterator<Item = &'a GroupReading>) -> Room {
    let machine = Room::of_machine(meminfo);
    groups
        .filter_map(Room::of_group)
        .min_by_key(Room::left)
        .filter(|room| room.left() <= machine.left())
        .unwrap_or(machine)
}
