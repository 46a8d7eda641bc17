//! What recorded and other kernels say.

use plimsoll_config::units::Bytes;

use super::machine::file;
use crate::probe::meminfo::{self, Zswap};
use crate::probe::pressure;
use crate::probe::process::status::Resident;
use crate::probe::process::{io, smaps_rollup, stat, status};
use crate::probe::swap::{self, Zram};
use crate::probe::vmstat::{self, Vmstat};

const RECORDED: &str = "recorded-6.18";
const OLD: &str = "linux-3.10";
const SWAPPING: &str = "linux-6.8-swap";

const fn kib(n: u64) -> Bytes {
    Bytes(n << 10)
}

#[test]
fn meminfo_of_three_kernels() {
    let read = |machine| meminfo::parse(&file(machine, "proc/meminfo")).unwrap();
    let recorded = read(RECORDED);
    assert_eq!((recorded.total, recorded.swap_used()), (kib(24_683_652), Bytes(0)));
    assert!(recorded.free <= recorded.obtainable() && recorded.obtainable() <= recorded.total, "{recorded:?}");
    assert_eq!(recorded.zswap, Some(Zswap { pool: Bytes(0), stored: Bytes(0) }));
    let old = read(OLD);
    assert_eq!((old.available, old.obtainable(), old.zswap), (None, kib(1_612_112), None));
    let swapping = read(SWAPPING);
    assert_eq!(swapping.swap_used(), kib(16_777_212 - 12_582_908));
    assert_eq!(swapping.zswap, Some(Zswap { pool: kib(1 << 20), stored: kib(3 << 20) }));
}

#[test]
fn vmstat_of_two_kernels() {
    let recorded = vmstat::parse(&file(RECORDED, "proc/vmstat")).unwrap();
    assert!(recorded.refaults_file.unwrap() > 5_000_000 && recorded.refaults_anon == Some(0), "{recorded:?}");
    assert_eq!((recorded.swap_in, recorded.swap_out, recorded.oom_kills), (Some(0), Some(0), Some(0)));
    // One counter for both kinds of pages is neither of them.
    let old = Vmstat { swap_in: Some(1), swap_out: Some(2), ..Vmstat::default() };
    assert_eq!(vmstat::parse(&file(OLD, "proc/vmstat")), Ok(old));
}

#[test]
fn a_process_of_three_kernels() {
    let read = |machine| status::parse(&file(machine, "proc/self/status")).unwrap();
    let recorded = read(RECORDED);
    let resident = recorded.resident.unwrap();
    assert_eq!((recorded.name.as_str(), recorded.state, recorded.swapped), ("cat", 'R', Some(Bytes(0))));
    assert!(resident.anon > Bytes(0) && resident.file > resident.anon && resident.shmem == Bytes(0), "{resident:?}");
    let old = read(OLD);
    assert_eq!((old.resident, old.swapped, old.euid), (None, Some(kib(4)), 1000));
    let swapping = read(SWAPPING);
    let resident = Resident { anon: kib(524_288), file: kib(65_536), shmem: kib(4096) };
    assert_eq!((swapping.resident, swapping.swapped), (Some(resident), Some(kib(2048))));

    let faults = stat::parse(&file(SWAPPING, "proc/self/stat")).unwrap();
    assert_eq!((faults.major_faults, faults.start_ticks), (4811, 884_422));
    assert_eq!(stat::parse(&file(RECORDED, "proc/self/stat")).unwrap().major_faults, 0);
    assert_eq!(io::parse(&file(RECORDED, "proc/self/io")).unwrap().read, Bytes(0));
    let rollup = smaps_rollup::parse(&file(RECORDED, "proc/self/smaps_rollup")).unwrap();
    assert!(rollup.proportional > Bytes(0) && rollup.proportional < rollup.resident, "{rollup:?}");
}

#[test]
fn a_name_that_was_cut_inside_a_letter_does_not_hide_its_process() {
    let text = String::from_utf8(file(SWAPPING, "proc/self/status")).unwrap();
    let bytes = [b"Name:\tcaf\xc3\n", text.split_once('\n').unwrap().1.as_bytes()].concat();
    let status = status::parse(&bytes).unwrap();
    assert_eq!((status.name.as_str(), status.resident.is_some()), ("caf\u{fffd}", true));
}

#[test]
fn swap_and_compressed_disks() {
    assert_eq!(swap::parse_areas(&file(RECORDED, "proc/swaps")), Ok(Vec::new()));
    let areas = swap::parse_areas(&file(SWAPPING, "proc/swaps")).unwrap();
    let used: Vec<(&str, Bytes)> = areas.iter().map(|area| (area.name.as_str(), area.used)).collect();
    assert_eq!(used, [("/dev/zram0", kib(1 << 20)), ("/home/me/swap\\040file", kib(3 << 20))]);
    let mm_stat = |machine| swap::parse_mm_stat(&file(machine, "sys/block/zram0/mm_stat"));
    assert_eq!(mm_stat(RECORDED), Ok(Zram::default()));
    assert_eq!(mm_stat(SWAPPING), Ok(Zram { stored: Bytes(1 << 30), memory: Bytes(400 << 20) }));
}

#[test]
fn the_recorded_machine_does_not_wait_for_memory() {
    let pressure = pressure::parse(&file(RECORDED, "proc/pressure/memory")).unwrap();
    assert_eq!((pressure.some.permille_10s, pressure.full.map(|full| full.total_us)), (0, Some(0)));
}
