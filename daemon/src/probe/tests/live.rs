//! This machine: every source is read, and what they say goes together.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use plimsoll_config::units::Bytes;

use crate::probe::disk::{device, space};
use crate::probe::process::{smaps_rollup, status};
use crate::probe::sample::{HostSample, sample};

#[test]
fn what_this_machine_says_goes_together() {
    let own = std::process::id();
    let HostSample { meminfo, vmstat, pressure, swap, groups, process, .. } = &sample(Some(own));
    let meminfo = meminfo.as_ref().unwrap();
    assert!(meminfo.free <= meminfo.total && meminfo.obtainable() <= meminfo.total, "{meminfo:?}");
    let areas: Bytes = swap.as_ref().unwrap().iter().map(|area| area.size).sum();
    assert_eq!(areas, meminfo.swap_total, "{swap:?}");
    assert!(vmstat.as_ref().unwrap().swap_in.is_some(), "{vmstat:?}");
    if let Some(pressure) = pressure.as_ref().unwrap() {
        assert!(pressure.full.is_none_or(|full| full.total_us <= pressure.some.total_us), "{pressure:?}");
    }
    for group in groups.as_ref().unwrap() {
        let group = group.as_ref().unwrap();
        assert!(group.unreclaimable() <= group.usage && group.usage <= meminfo.total, "{group:?}");
    }
    let process = process.as_ref().unwrap();
    let (status, stat) = (process.status.as_ref().unwrap(), process.stat.as_ref().unwrap());
    assert!(status.resident.unwrap().anon > Bytes(0) && stat.start_ticks > 0, "{process:?}");
    let rollup = smaps_rollup::read(own).unwrap();
    assert!(rollup.proportional <= rollup.resident && rollup.resident < meminfo.total, "{rollup:?}");
}

#[test]
fn headroom_is_the_least_of_all_rooms() {
    let sample = sample(None);
    assert!(sample.failures().is_empty(), "{:?}", sample.failures());
    let headroom = sample.headroom().unwrap();
    let meminfo = sample.meminfo.as_ref().unwrap();
    assert!(headroom.left() <= meminfo.obtainable() && headroom.limit <= meminfo.total, "{headroom:?}");
    for group in sample.groups() {
        let left = group.bound().map(|bound| bound.saturating_sub(group.unreclaimable()));
        assert!(left.is_none_or(|left| headroom.left() <= left), "{headroom:?} beside {group:?}");
    }
}

/// A child that holds this much and ends when its input closes.
fn holder(n_bytes: u64) -> Child {
    let script = format!("x=$(head -c {n_bytes} /dev/zero | tr '\\0' x); echo ready; read -r _");
    let mut child =
        Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn what_a_child_allocates_is_seen_and_gone_after_it() {
    const HELD: u64 = 48 << 20;
    let mut child = holder(HELD);
    let read = sample(Some(child.id()));
    let process = read.process.as_ref().unwrap();
    let anon = process.status.as_ref().unwrap().resident.unwrap().anon;
    assert!(anon >= Bytes(HELD) && anon < Bytes(4 * HELD), "{anon}");
    assert!(process.io.is_ok() && process.stat.is_ok() && read.failures().is_empty(), "{read:?}");
    drop(child.stdin.take().map(|mut stdin| stdin.write_all(b"\n")));
    // It has ended before it is collected: its memory is gone, and its number is still taken.
    nix::sys::wait::waitid(
        nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(child.id() as i32)),
        nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
    )
    .unwrap();
    let ended = status::read(child.id()).unwrap();
    assert_eq!((ended.state, ended.resident), ('Z', None));
    child.wait().unwrap();
    assert!(status::read(child.id()).unwrap_err().is_absent());
    let gone = sample(Some(child.id()));
    let words: Vec<String> = gone.failures().iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), 4, "its groups and its three files: {words:?}");
    assert!(words.iter().all(|words| words.ends_with("is not there")), "{words:?}");
}

#[test]
fn the_disk_of_a_file_and_of_a_folder_that_is_not_made_yet() {
    let folder = tempfile::tempdir().unwrap();
    let space = space::read(&folder.path().join("state/of/plimsoll")).unwrap();
    assert!(space.free > Bytes(0) && space.free <= space.total, "{space:?}");
    // A folder in memory or of an overlay has no device: then that is said, with its number.
    match device::read(folder.path()) {
        Ok(device) => assert!(!device.name.is_empty()),
        Err(e) => assert!(e.is_absent() && e.to_string().starts_with("/sys/dev/block/"), "{e}"),
    }
    assert!(device::read(&folder.path().join("nothing")).is_err());
}
