//! Host memory: what this daemon and its worker may use, and what others hold of it.
//!
//! The tightest of the machine and of every control group above us counts, version 1 or 2: under a container's limit the
//! machine's figures mean nothing. What a kernel does not have is left out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use plimsoll_config::limits::{MAX_CGROUP_DEPTH, MAX_PROGRAM_OFFERS, MIN_PROGRAM_OFFER};
use plimsoll_config::units::Bytes;
use plimsoll_decide::plan::{MachineReading, Program};
use procfs::process::{Process, all_processes};
use procfs::{Current, Meminfo};

/// A limit and what is used under it and can't be reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    limit_bytes: u64,
    used_bytes: u64,
}

/// # Errors
/// `/proc/meminfo` can't be read.
pub(crate) fn read() -> io::Result<MachineReading> {
    let meminfo = Meminfo::current().map_err(io::Error::other)?;
    let available_bytes = meminfo.mem_available.unwrap_or(meminfo.mem_free);
    let machine =
        Room { limit_bytes: meminfo.mem_total, used_bytes: meminfo.mem_total.saturating_sub(available_bytes) };
    let groups = fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
    let tightest = groups
        .iter()
        .filter_map(|group| group.room())
        .chain([machine])
        .min_by_key(|room| room.limit_bytes.saturating_sub(room.used_bytes))
        .unwrap_or(machine);
    Ok(MachineReading {
        host_limit: Bytes(tightest.limit_bytes),
        host_foreign: Bytes(tightest.used_bytes.saturating_sub(own_bytes())),
        programs: programs(),
        ..MachineReading::default()
    })
}

/// Memory that programs could have now.
///
/// # Errors
/// `/proc/meminfo` can't be read.
pub(crate) fn available() -> io::Result<Bytes> {
    let meminfo = Meminfo::current().map_err(io::Error::other)?;
    Ok(Bytes(meminfo.mem_available.unwrap_or(meminfo.mem_free)))
}

/// A process's own memory, file pages not counted, and when it began in clock ticks; `None` if it is not there.
pub(crate) fn held_by(pid: u32) -> Option<(Bytes, u64)> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    Some((Bytes(process.status().ok()?.rssanon? * 1024), process.stat().ok()?.starttime))
}

/// How many processes of our control group, where our workers are, the kernel has ended for want of memory; `None` where
/// that is not counted. Two reads of the kernel's own files: microseconds, no disk.
pub(crate) fn oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups(&text).iter().find_map(|group| {
        let file = match group.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        parse_oom_kills(&fs::read_to_string(group.folder.join(file)).ok()?)
    })
}

fn parse_oom_kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.trim().parse().ok())
}

/// What this process holds itself: it is in the plan as `service`.
fn own_bytes() -> u64 {
    Process::myself().and_then(|me| me.status()).ok().and_then(|status| status.rssanon).unwrap_or(0) * 1024
}

/// A control group that can limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The files of a version: limit, usage, and the lines of `memory.stat` that count page cache.
const fn files(version: Version) -> (&'static str, &'static str, [&'static str; 2]) {
    match version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", ["total_inactive_file", "total_active_file"]),
        Version::V2 => ("memory.max", "memory.current", ["inactive_file", "active_file"]),
    }
}

/// Our group and all above it, from the text of `/proc/self/cgroup`.
fn groups(text: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (mount, version) = match controllers {
            "" => ("/sys/fs/cgroup", Version::V2),
            names if names.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", Version::V1),
            _ => continue,
        };
        // In a container the path may be the host's, which is not there: the mount's own top still is.
        let below = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
        for ancestor in below.ancestors().take(MAX_CGROUP_DEPTH) {
            groups.push(Group { folder: Path::new(mount).join(ancestor), version });
        }
    }
    groups
}

impl Group {
    /// `None` without a limit, or where the group's files are not to be seen.
    fn room(&self) -> Option<Room> {
        let (limit, usage, cache) = files(self.version);
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).ok();
        let limit_bytes = parse_limit(&read(limit)?)?;
        let usage_bytes: u64 = read(usage)?.trim().parse().ok()?;
        let cache_bytes = read("memory.stat").map_or(0, |stat| sum_of(&stat, &cache));
        Some(Room { limit_bytes, used_bytes: usage_bytes.saturating_sub(cache_bytes) })
    }
}

/// `max` of version 2 and the huge number of version 1 mean that there is none.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit_bytes: &u64| *limit_bytes < 1 << 60)
}

fn sum_of(stat: &str, names: &[&str]) -> u64 {
    stat.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

/// The few programs that hold most memory, for a refusal that names them. What we may not see is left out.
fn programs() -> Vec<Program> {
    let own_pid = std::process::id();
    let Ok(processes) = all_processes() else { return Vec::new() };
    let mut programs: Vec<Program> = processes
        .flatten()
        .filter(|process| process.pid.unsigned_abs() != own_pid)
        .filter_map(|process| process.status().ok())
        .filter_map(|status| {
            let bytes = Bytes(status.rssanon?.saturating_mul(1024));
            (bytes >= MIN_PROGRAM_OFFER).then(|| Program {
                pid: status.pid.unsigned_abs(),
                name: status.name,
                user: user_name(status.euid),
                bytes,
            })
        })
        .collect();
    programs.sort_by_key(|program| std::cmp::Reverse(program.bytes));
    programs.truncate(MAX_PROGRAM_OFFERS);
    programs
}

/// The user's name, or the number of one that has none.
fn user_name(uid: u32) -> String {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ancestor_of_both_versions_is_looked_at() {
        let text = "12:memory,hugetlb:/user/one\n3:cpu:/user\n0::/a/b\nnonsense\n";
        let folders: Vec<String> = groups(text).iter().map(|group| group.folder.display().to_string()).collect();
        assert_eq!(
            folders,
            [
                "/sys/fs/cgroup/memory/user/one",
                "/sys/fs/cgroup/memory/user",
                "/sys/fs/cgroup/memory/",
                "/sys/fs/cgroup/a/b",
                "/sys/fs/cgroup/a",
                "/sys/fs/cgroup/",
            ]
        );
    }

    #[test]
    fn a_missing_limit_is_none() {
        for (text, expected) in
            [("max\n", None), ("9223372036854771712\n", None), ("1073741824\n", Some(1 << 30)), ("", None)]
        {
            assert_eq!(parse_limit(text), expected, "{text:?}");
        }
    }

    #[test]
    fn page_cache_is_not_counted_as_used() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("memory.max", "1000\n"),
            ("memory.current", "700\n"),
            ("memory.stat", "anon 1\ninactive_file 300\nactive_file 50\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let group = Group { folder: folder.path().to_owned(), version: Version::V2 };
        assert_eq!(group.room(), Some(Room { limit_bytes: 1000, used_bytes: 350 }));
    }

    #[test]
    fn kills_are_counted_in_both_versions() {
        for (text, expected) in [
            ("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n", Some(1)),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", Some(3)),
            ("oom_kill_disable 0\nunder_oom 0\n", None),
        ] {
            assert_eq!(parse_oom_kills(text), expected, "{text:?}");
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let reading = read().unwrap();
        assert!(available().unwrap() > Bytes(0) && held_by(std::process::id()).unwrap().0 > Bytes(0));
        assert!(reading.host_limit > Bytes(0) && reading.host_foreign < reading.host_limit, "{reading:?}");
    }
}
