//! Host memory at one moment: every source that changes while a worker runs, each with its figures or its own failure.
//!
//! Cheap enough to be asked several times a second. It judges nothing and keeps nothing: rates come from two samples.

use plimsoll_config::units::Bytes;

use super::cgroup::{self, GroupReading};
use super::meminfo::{self, Meminfo};
use super::pressure::{self, Pressure};
use super::process::{io, stat, status};
use super::room::{self, Room};
use super::source::ProbeError;
use super::swap::{self, SwapArea, Zram};
use super::vmstat::{self, Vmstat};

/// What each source says.
#[derive(Debug)]
pub(crate) struct HostSample {
    /// The machine's memory.
    pub(crate) meminfo: Result<Meminfo, ProbeError>,
    /// Its counters.
    pub(crate) vmstat: Result<Vmstat, ProbeError>,
    /// Waits for memory; `None`: this kernel does not measure them.
    pub(crate) pressure: Result<Option<Pressure>, ProbeError>,
    /// Swap areas.
    pub(crate) swap: Result<Vec<SwapArea>, ProbeError>,
    /// Compressed disks in memory; `None`: there is none.
    pub(crate) zram: Result<Option<Zram>, ProbeError>,
    /// Control groups that count the memory of the process that was asked for, the innermost first.
    pub(crate) groups: Result<Vec<Result<GroupReading, ProbeError>>, ProbeError>,
    /// That process.
    pub(crate) process: Option<ProcessSample>,
}

/// What each of a process's sources says.
#[derive(Debug)]
pub(crate) struct ProcessSample {
    /// What it holds.
    pub(crate) status: Result<status::Status, ProbeError>,
    /// When it began, and its faults.
    pub(crate) stat: Result<stat::Stat, ProbeError>,
    /// What it has read.
    pub(crate) io: Result<io::Io, ProbeError>,
}

/// Looks at the machine and, if one is named, at a process and its control groups; else at the groups of our own.
pub(crate) fn sample(pid: Option<u32>) -> HostSample {
    HostSample {
        meminfo: meminfo::read(),
        vmstat: vmstat::read(),
        pressure: pressure::read("/proc/pressure/memory".as_ref()),
        swap: swap::areas(),
        zram: swap::zram(),
        groups: cgroup::read(pid),
        process: pid.map(|pid| ProcessSample { status: status::read(pid), stat: stat::read(pid), io: io::read(pid) }),
    }
}

impl HostSample {
    /// The groups that could be read, the innermost first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &GroupReading> {
        self.groups.iter().flatten().flatten()
    }

    /// The tightest room of the machine and all groups; `None` if the machine could not be read.
    pub(crate) fn headroom(&self) -> Option<Room> {
        Some(room::tightest(self.meminfo.as_ref().ok()?, self.groups()))
    }

    /// Every source that said nothing, and why.
    pub(crate) fn failures(&self) -> Vec<&ProbeError> {
        let process = self
            .process
            .as_ref()
            .map(|process| [process.status.as_ref().err(), process.stat.as_ref().err(), process.io.as_ref().err()]);
        let groups = self.groups.iter().flatten().map(|group| group.as_ref().err());
        let machine = [
            self.meminfo.as_ref().err(),
            self.vmstat.as_ref().err(),
            self.pressure.as_ref().err(),
            self.swap.as_ref().err(),
            self.zram.as_ref().err(),
            self.groups.as_ref().err(),
        ];
        machine.into_iter().chain(groups).chain(process.into_iter().flatten()).flatten().collect()
    }

    /// One event with all of it, for whoever asks later what the machine was like. A figure that is not there is left out.
    pub(crate) fn log(&self) {
        let (meminfo, vmstat) = (self.meminfo.as_ref().ok(), self.vmstat.as_ref().ok());
        let pressure = self.pressure.as_ref().ok().copied().flatten();
        let full = pressure.and_then(|pressure| pressure.full);
        let zram = self.zram.as_ref().ok().copied().flatten();
        let areas = self.swap.iter().flatten().map(|area| format!("{} {}/{}", area.name, area.used.0, area.size.0));
        let zswap = meminfo.and_then(|meminfo| meminfo.zswap);
        let headroom = self.headroom();
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        tracing::debug!(
            total_bytes = meminfo.map(|meminfo| meminfo.total.0),
            free_bytes = meminfo.map(|meminfo| meminfo.free.0),
            available_bytes = bytes(meminfo.and_then(|meminfo| meminfo.available)),
            headroom_bytes = headroom.as_ref().map(|room| room.left().0),
            headroom_of = headroom.as_ref().map(whose),
            swap_used_bytes = meminfo.map(|meminfo| meminfo.swap_used().0),
            swap_areas = areas.collect::<Vec<_>>().join(", "),
            zswap_pool_bytes = zswap.map(|zswap| zswap.pool.0),
            zswap_stored_bytes = zswap.map(|zswap| zswap.stored.0),
            zram_bytes = zram.map(|zram| zram.memory.0),
            zram_stored_bytes = zram.map(|zram| zram.stored.0),
            refaults_file = vmstat.and_then(|vmstat| vmstat.refaults_file),
            refaults_anon = vmstat.and_then(|vmstat| vmstat.refaults_anon),
            swap_in = vmstat.and_then(|vmstat| vmstat.swap_in),
            swap_out = vmstat.and_then(|vmstat| vmstat.swap_out),
            oom_kills = vmstat.and_then(|vmstat| vmstat.oom_kills),
            some_permille = pressure.map(|pressure| pressure.some.permille_10s),
            some_us = pressure.map(|pressure| pressure.some.total_us),
            full_permille = full.map(|full| full.permille_10s),
            full_us = full.map(|full| full.total_us),
            groups = self.groups().map(group_words).collect::<Vec<_>>().join("; "),
            process = self.process.as_ref().map(process_words),
            failures = self.failures().iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            "readings"
        );
    }
}

fn whose(room: &Room) -> String {
    room.group.as_ref().map_or_else(|| "machine".to_owned(), |folder| folder.display().to_string())
}

/// `name=value` of what is there.
fn words(pairs: impl IntoIterator<Item = (&'static str, Option<u64>)>) -> String {
    let pairs = pairs.into_iter().filter_map(|(name, value)| Some(format!(" {name}={}", value?)));
    pairs.collect()
}

fn group_words(group: &GroupReading) -> String {
    let events = group.events;
    let figures = words([
        ("limit_bytes", group.limit.map(|bytes| bytes.0)),
        ("high_bytes", group.high.map(|bytes| bytes.0)),
        ("usage_bytes", Some(group.usage.0)),
        ("cache_bytes", Some(group.cache.0)),
        ("oom_kills", events.oom_kills),
        ("limit_reached", events.limit_reached),
        ("slowed_down", events.slowed_down),
        ("some_permille", group.pressure.map(|pressure| pressure.some.permille_10s)),
    ]);
    format!("{}{figures}", group.folder.display())
}

fn process_words(process: &ProcessSample) -> String {
    let (status, stat) = (process.status.as_ref().ok(), process.stat.as_ref().ok());
    let resident = status.and_then(|status| status.resident);
    let figures = words([
        ("anon_bytes", resident.map(|resident| resident.anon.0)),
        ("file_bytes", resident.map(|resident| resident.file.0)),
        ("shmem_bytes", resident.map(|resident| resident.shmem.0)),
        ("swapped_bytes", status.and_then(|status| Some(status.swapped?.0))),
        ("major_faults", stat.map(|stat| stat.major_faults)),
        ("start_ticks", stat.map(|stat| stat.start_ticks)),
        ("read_bytes", process.io.as_ref().ok().map(|io| io.read.0)),
    ]);
    let who = status.map(|status| format!("{} ({})", status.name, status.state));
    format!("{}{figures}", who.unwrap_or_else(|| "gone".to_owned()))
}
