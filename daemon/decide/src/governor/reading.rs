//! What the probes and the worker say, each with the time at which it was true.

use plimsoll_config::units::{Bytes, Millis};

use super::lever::LeverReading;
use crate::ledger::AccountId;

/// A reading and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed<T> {
    /// On the clock of the daemon.
    pub at: Millis,
    /// What was read.
    pub value: T,
}

/// The newest readings of everything. What has no probe is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Host memory.
    pub host: Option<Timed<HostReading>>,
    /// The cards that the plan uses.
    pub cards: Vec<Timed<CardReading>>,
    /// Reads of the model's file.
    pub disk: Option<Timed<DiskReading>>,
    /// What the worker reports of itself.
    pub worker: Option<Timed<WorkerReading>>,
}

/// Host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostReading {
    /// The least, over the machine and every ancestor group, of limit − usage that can't be reclaimed.
    pub free: Bytes,
    /// The same against their lines, in bytes: negative beyond one. Each group has a line of its own.
    pub room: i64,
    /// Swap in use.
    pub swap_used: Bytes,
    /// Pages that came back right after they were dropped, a second.
    pub refaults_per_second: u64,
    /// Time in which somebody waited for memory, in thousandths (PSI, `some`, 10 s).
    pub stalled_permille: u64,
}

/// A card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardReading {
    /// As the driver counts.
    pub index: u32,
    /// Its free bytes.
    pub free: Bytes,
}

/// Reads of the model's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskReading {
    /// Bytes of experts that a token needed from it, over the last seconds.
    pub per_token: Bytes,
}

/// What the worker reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerReading {
    /// Its levers; empty while it loads.
    pub levers: Vec<LeverReading>,
    /// Bytes of each account that its load still has to fill.
    pub to_load: Vec<(AccountId, Bytes)>,
    /// Work memory in use on each card: what a running step takes of the reserve, and gives back at its end.
    pub work: Vec<(AccountId, Bytes)>,
}

impl WorkerReading {
    /// Bytes of one account that its load still has to fill.
    pub(super) fn to_load(&self, account: AccountId) -> Bytes {
        self.to_load.iter().filter(|(id, _)| *id == account).map(|(_, bytes)| *bytes).sum()
    }

    /// Work memory in use on one card.
    pub(super) fn work_on(&self, account: AccountId) -> Bytes {
        self.work.iter().filter(|(id, _)| *id == account).map(|(_, bytes)| *bytes).sum()
    }
}
