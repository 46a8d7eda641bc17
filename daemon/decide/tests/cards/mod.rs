//! A 12 GiB workstation's card, for the tests of the verdicts.

// Each test program uses its own part of this.
#![allow(dead_code)]

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::gpu::{Gpu, GpuMemory, GpuProcess, GpuReading, Sight};
use plimsoll_decide::identity::{ProcessState, Standing, WorkerRecord};
use plimsoll_decide::zero_check::{Baseline, KnownWorker, StoredBaseline};

/// The point in time at which tests look.
pub(crate) const NOW: Millis = Millis(1_000_000);

/// The card, in MiB.
pub(crate) const TOTAL_MIB: u64 = 12_282;

/// What the desktop holds, all in all.
pub(crate) const DESKTOP_MIB: u64 = 2_367;

pub(crate) fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

pub(crate) fn gpu(index: u32) -> Gpu {
    Gpu { index, uuid: format!("GPU-{index}") }
}

/// A process that began at tick 10 × pid, of alice.
pub(crate) fn process(pid: u32, command: &str, held_mib: impl Into<Option<u64>>) -> GpuProcess {
    GpuProcess {
        pid,
        start_ticks: Some(u64::from(pid) * 10),
        command: Some(command.to_owned()),
        user: Some("alice".to_owned()),
        bytes: held_mib.into().map(mib),
    }
}

/// What draws on the workstation after a login; 490 MiB of small things are not listed one by one.
pub(crate) fn desktop() -> Vec<GpuProcess> {
    vec![
        process(2001, "gnome-shell", 587),
        process(2002, "chat", 573),
        process(2003, "chromium", 430),
        process(2004, "chromium", 4),
        process(2005, "nautilus", 139),
        process(2006, "resources", 73),
        process(2007, "ptyxis", 71),
    ]
}

/// A card of the workstation on which this much is held.
pub(crate) fn card(held_mib: u64, compute: Vec<GpuProcess>, graphics: Vec<GpuProcess>) -> GpuMemory {
    GpuMemory {
        total: mib(TOTAL_MIB),
        free: mib(TOTAL_MIB - held_mib),
        driver_reserved: None,
        compute,
        graphics,
        blocked: Vec::new(),
    }
}

/// The card with the desktop and these, each with the bytes that the driver gives.
pub(crate) fn desktop_and(compute: Vec<GpuProcess>) -> GpuMemory {
    let held: Bytes = compute.iter().filter_map(|process| process.bytes).sum();
    card(DESKTOP_MIB + held.mib_rounded_up(), compute, desktop())
}

pub(crate) fn reading(memory: GpuMemory) -> GpuReading {
    reading_at(NOW, memory)
}

pub(crate) fn reading_at(at: Millis, memory: GpuMemory) -> GpuReading {
    GpuReading { gpu: gpu(0), at, sight: Sight::Seen(memory) }
}

/// The desktop, three days ago.
pub(crate) fn stored() -> StoredBaseline {
    let baseline = Baseline::of(&gpu(0), &desktop_and(Vec::new()));
    StoredBaseline { baseline, age: Millis::from_secs(3 * 24 * 60 * 60) }
}

pub(crate) fn record(pid: u32) -> WorkerRecord {
    WorkerRecord { boot_id: "boot-7".to_owned(), pid, start_ticks: u64::from(pid) * 10, instance: format!("w-{pid}") }
}

/// A worker that was told to end, or ended, some time before [`NOW`].
pub(crate) fn worker(pid: u32, standing: Standing, ago: Millis) -> KnownWorker {
    KnownWorker { record: record(pid), standing, since: Millis(NOW.0 - ago.0) }
}

pub(crate) fn alive() -> Standing {
    Standing::Ours { state: ProcessState::Running }
}
