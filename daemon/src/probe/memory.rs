//! Host memory: what this daemon and its worker may use, and what others hold of it.
//!
//! The tightest of the machine and of every control group above us counts, version 1 or 2: under a container's limit the
//! machine's figures mean nothing. What a kernel does not have is left out.

use plimsoll_config::limits::{MAX_PROCESSES, MAX_PROGRAM_OFFERS, MIN_PROGRAM_OFFER};
use plimsoll_config::units::Bytes;
use plimsoll_decide::plan::{MachineReading, Program};

use nix::unistd::{Uid, User};

use super::process::{stat, status};
use super::source::ProbeError;
use super::{cgroup, meminfo, room};

/// # Errors
/// `/proc/meminfo` can't be read.
pub(crate) fn read() -> Result<MachineReading, ProbeError> {
    let groups = cgroup::read(None).unwrap_or_else(|e| vec![Err(e)]);
    for e in groups.iter().filter_map(|group| group.as_ref().err()) {
        tracing::debug!("a limit of memory is not known: {e}");
    }
    let tightest = room::tightest(&meminfo::read()?, groups.iter().flatten());
    Ok(MachineReading {
        host_limit: tightest.limit,
        host_foreign: tightest.used.saturating_sub(own_bytes()),
        programs: programs(),
        ..MachineReading::default()
    })
}

/// Memory that programs could have now.
///
/// # Errors
/// `/proc/meminfo` can't be read.
pub(crate) fn available() -> Result<Bytes, ProbeError> {
    meminfo::read().map(|meminfo| meminfo.obtainable())
}

/// A process's own memory, file pages not counted, and when it began in clock ticks; `None` if it is not there.
pub(crate) fn held_by(pid: u32) -> Option<(Bytes, u64)> {
    Some((status::read(pid).ok()?.resident?.anon, stat::read(pid).ok()?.start_ticks))
}

/// How many processes of our control group, where our workers are, the kernel has ended for want of memory; `None` where
/// that is not counted. A few reads of the kernel's own files: microseconds, no disk.
pub(crate) fn oom_kills() -> Option<u64> {
    cgroup::groups(None).ok()?.iter().find_map(|group| group.events().ok()?.oom_kills)
}

/// What this process holds itself: it is in the plan as `service`.
fn own_bytes() -> Bytes {
    held_by(std::process::id()).map_or(Bytes::ZERO, |(bytes, _)| bytes)
}

/// The few programs that hold most memory, for a refusal that names them. What we may not see is left out.
fn programs() -> Vec<Program> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|pid| *pid != std::process::id()).take(MAX_PROCESSES);
    let mut programs: Vec<Program> = others
        .filter_map(|pid| {
            let status = status::read(pid).ok()?;
            let bytes = status.resident?.anon;
            (bytes >= MIN_PROGRAM_OFFER).then(|| Program {
                pid,
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
    fn this_machine_can_be_read() {
        let reading = read().unwrap();
        assert!(available().unwrap() > Bytes(0) && held_by(std::process::id()).unwrap().0 > Bytes(0));
        assert!(reading.host_limit > Bytes(0) && reading.host_foreign < reading.host_limit, "{reading:?}");
    }
}
