//! Waits for the memory of a worker that is gone; `decide` judges ([`plimsoll_decide::release`]), here are the readings.
//!
//! Without a card only host memory is awaited. The kernel gives it back before a process can be collected, so this takes one
//! look; what is missing then was taken by somebody else meanwhile or is held by a driver, and is not waited for longer than
//! [`HOST_RELEASE_TIMEOUT`].

use plimsoll_config::limits::HOST_RELEASE_TIMEOUT;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::release::{HostReading, Leaver, Reading, Release, Step};

use crate::clock::Clock;
use crate::probe::memory;

/// What a worker held when it was last looked at, and what the machine had beside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holdings {
    pub(super) at: Millis,
    pid: u32,
    start_ticks: u64,
    held: Bytes,
    available: Bytes,
}

impl Holdings {
    /// `None` if it can't be told. Two small files of the kernel: microseconds.
    pub(super) fn of(pid: u32, now: Millis) -> Option<Self> {
        let (held, start_ticks) = memory::held_by(pid)?;
        Some(Self { at: now, pid, start_ticks, held, available: memory::available().ok()? })
    }

    /// Waits until it is back, or long enough. Returns what is missing then, for a person.
    pub(super) async fn await_release(self, clock: Clock, ended_at: Millis) -> Option<String> {
        let leaver = Leaver {
            pid: self.pid,
            start_ticks: self.start_ticks,
            vram: std::collections::BTreeMap::new(),
            host: Some(self.held),
        };
        let reading = |at, available| Reading {
            gpus: Vec::new(),
            host: HostReading { at, available, foreign: None },
            process: None, // it was collected
        };
        let mut release = Release::new(leaver, &reading(self.at, self.available), ended_at, HOST_RELEASE_TIMEOUT);
        loop {
            let Ok(available) = memory::available() else { return Some("the machine's memory can't be read".into()) };
            let now = clock.now();
            match release.step(now, &reading(now, available)) {
                Step::Waiting { look_at, .. } => tokio::time::sleep_until(clock.instant(look_at)).await,
                Step::Released(released) => {
                    tracing::debug!("{}", released.words());
                    return None;
                }
                Step::TimedOut { words, .. } => return Some(words.trim_end().to_owned()),
            }
        }
    }
}
