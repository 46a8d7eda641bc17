//! Machines of both versions: which groups count, and which of them is the tightest.

use plimsoll_config::units::Bytes;

use super::membership::parse as parse_membership;
use super::mounts::parse as parse_mounts;
use super::{Group, GroupReading, place};
use crate::probe::meminfo::Meminfo;
use crate::probe::room::tightest;
use crate::probe::tests::machine::{file, unpack};

/// A machine that is never the tightest.
const WIDE: Meminfo = Meminfo {
    total: Bytes::from_gib(64),
    free: Bytes::from_gib(60),
    available: Some(Bytes::from_gib(63)),
    swap_total: Bytes(0),
    swap_free: Bytes(0),
    zswap: None,
};

/// The groups that count memory, with their names from the top of the file system.
fn read(machine: &str) -> Vec<GroupReading> {
    let unpacked = unpack(machine);
    let membership = parse_membership(&file(machine, "proc/self/cgroup")).unwrap();
    let groups = place::groups(&membership, &parse_mounts(&file(machine, "proc/self/mountinfo")).unwrap()).unwrap();
    let read = |group: &Group| {
        let folder = unpacked.path().join(group.folder.strip_prefix("/").unwrap());
        let reading = Group { folder, version: group.version }.read().unwrap()?;
        Some(GroupReading { folder: group.folder.clone(), ..reading })
    };
    groups.iter().filter_map(read).collect()
}

#[test]
fn the_tightest_room_of_every_kind_of_machine() {
    // (machine, groups that count memory, the tightest, GiB left under it)
    let cases = [
        ("v2-desktop", 3, Some("/sys/fs/cgroup/user.slice/user-1000.slice"), 6),
        ("v2-high", 2, Some("/sys/fs/cgroup/system.slice/plimsoll.service"), 2),
        ("v2-container", 1, Some("/sys/fs/cgroup/"), 1), // and half a GiB of cache
        ("v2-host-path", 1, Some("/sys/fs/cgroup/"), 2),
        ("v2-outside", 1, Some("/sys/fs/cgroup/"), 4),
        ("v2-no-controller", 0, None, 63),
        ("v1-host", 3, Some("/sys/fs/cgroup/memory/user"), 5),
        ("v1-container", 1, Some("/sys/fs/cgroup/memory/"), 3),
        ("hybrid-v2", 1, Some("/sys/fs/cgroup/unified/x"), 5),
        ("recorded-6.18", 2, None, 63),
        ("none", 0, None, 63),
    ];
    for (machine, n_groups, group, gib) in cases {
        let groups = read(machine);
        let room = tightest(&WIDE, groups.iter());
        assert_eq!(groups.len(), n_groups, "{machine}: {groups:?}");
        assert_eq!(room.group.as_deref().and_then(std::path::Path::to_str), group, "{machine}: {room:?}");
        assert_eq!(room.left().0 >> 30, gib, "{machine}: {room:?}");
    }
}

#[test]
fn a_full_machine_is_tighter_than_its_groups() {
    let full = Meminfo { available: Some(Bytes(7)), ..WIDE };
    let room = tightest(&full, read("v2-desktop").iter());
    assert_eq!((room.group.as_ref(), room.left(), room.limit), (None, Bytes(7), full.total));
    let old = Meminfo { available: None, free: Bytes(9), ..WIDE };
    assert_eq!(tightest(&old, [].iter()).left(), Bytes(9), "free memory where the kernel says no more");
}

#[test]
fn events_and_pressure_of_both_versions() {
    let v2 = read("v2-desktop");
    let kills: Vec<Option<u64>> = v2.iter().map(|group| group.events.oom_kills).collect();
    assert_eq!(kills, [Some(2), Some(0), Some(0)]);
    assert_eq!((v2[0].events.limit_reached, v2[0].events.slowed_down), (Some(7), Some(3)));
    assert_eq!(v2[0].pressure.unwrap().some.permille_10s, 12);
    assert_eq!(read("v2-high")[0].pressure, None, "a kernel that does not measure it");
    let v1 = read("v1-host");
    let kills: Vec<Option<u64>> = v1.iter().map(|group| group.events.oom_kills).collect();
    assert_eq!(kills, [Some(3), None, None], "a kernel before 4.13 counts none");
    assert!(v1.iter().all(|group| (group.pressure, group.high, group.events.limit_reached) == (None, None, None)));
}

#[test]
fn a_group_that_lies_is_an_error_with_its_file() {
    let unpacked = unpack("v2-high");
    let folder = unpacked.path().join("sys/fs/cgroup/system.slice/plimsoll.service");
    let group = Group { folder: folder.clone(), version: super::group::Version::V2 };
    assert!(group.read().unwrap().is_some());
    for (name, text, words) in [
        ("memory.max", "-1\n", "memory.max: limit is no size or count: `-1`"),
        ("memory.stat", "anon 1\n", "memory.stat: has no inactive_file"),
        ("memory.events", "oom_kill x\n", "memory.events: oom_kill is no size or count: `x`"),
        ("memory.pressure", "some\n", "memory.pressure: has no some"),
        ("memory.current", "", "memory.current: usage is no size or count: ``"),
    ] {
        let before = std::fs::read(folder.join(name)).ok();
        std::fs::write(folder.join(name), text).unwrap();
        let said = group.read().unwrap_err().to_string();
        assert!(said.ends_with(words), "{said}");
        match before {
            Some(before) => std::fs::write(folder.join(name), before).unwrap(),
            None => std::fs::remove_file(folder.join(name)).unwrap(),
        }
    }
    std::fs::remove_file(folder.join("memory.stat")).unwrap();
    assert!(group.read().unwrap_err().is_absent(), "usage without its parts is not guessed to be all cache, or none");
}
