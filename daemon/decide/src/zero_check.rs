//! The zero check: is a card as empty as it should be before a worker starts?
//!
//! It decides on the free counter *and* on the process lists, against a [`Baseline`] of the desktop, because a desktop is
//! never 0 MiB. Called for each card before each start; [`policy::decide`] turns the verdicts into what to do. It ends
//! nobody: what may be done about a process of ours is said by [`crate::identity`].
//!
//! ```text
//!                ┌ no answer, an old one, a contradiction ───────────────────────────────────► Blind
//!   reading ─────┤
//!                │         ┌ within the allowance, no worker of ours left ───────────────────► Clean
//!                └ seen ───┤ a worker of ours lives, is listed, or is just gone; nobody else
//!                          │ is named for what is too much ──────────────────────────────────► Releasing
//!                          └ else ───────────────────────────────────────────────────────────► Dirty
//! ```

mod baseline;
mod look;
pub mod policy;
mod verdict;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use crate::gpu::{GpuReading, Holder};
use crate::identity::{Mismatch, ProcessState, Standing, WorkerRecord};

use look::Look;

pub use baseline::{Baseline, StoredBaseline};
pub use verdict::{Clean, Culprit, Dirty, Leaving, Releasing, Verdict, Yardstick};

/// A worker of which there is a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWorker {
    /// Its record.
    pub record: WorkerRecord,
    /// What it is now.
    pub standing: Standing,
    /// When it was told to end, or when its end was noticed.
    pub since: Millis,
}

impl KnownWorker {
    /// Whether it can still hold and take memory.
    fn is_alive(&self) -> bool {
        match self.standing {
            Standing::Ours { state: ProcessState::Running | ProcessState::Uninterruptible } => true,
            Standing::Ours { state: ProcessState::Zombie }
            | Standing::Gone
            | Standing::Stranger(_)
            | Standing::Guarded
            | Standing::Unproven { .. } => false,
        }
    }

    /// Whether memory that nobody is named for may be its own, on the way back: it is not collected yet, or has not been
    /// gone for long.
    fn may_explain(&self, now: Millis) -> bool {
        match self.standing {
            Standing::Ours { .. } => true,
            Standing::Gone | Standing::Stranger(Mismatch::StartTime) => now.since(self.since) < limits::RELEASE_TIMEOUT,
            Standing::Stranger(Mismatch::Boot | Mismatch::Pid | Mismatch::Instance)
            | Standing::Guarded
            | Standing::Unproven { .. } => false,
        }
    }

    /// Whether a process in a driver's list is this worker. The driver may name it for a while after it has gone.
    fn is_listed_as(&self, holder: &Holder) -> bool {
        let may_be = match self.standing {
            Standing::Ours { .. } | Standing::Gone => true,
            Standing::Stranger(_) | Standing::Guarded | Standing::Unproven { .. } => false,
        };
        may_be && holder.process.may_be(self.record.pid, self.record.start_ticks)
    }

    fn state(&self) -> Option<ProcessState> {
        match self.standing {
            Standing::Ours { state } => Some(state),
            Standing::Gone | Standing::Stranger(_) | Standing::Guarded | Standing::Unproven { .. } => None,
        }
    }
}

/// Judges one card. `stored` is the baseline of this card; another card's is as good as none.
pub fn zero_check(
    now: Millis,
    reading: &GpuReading,
    stored: Option<&StoredBaseline>,
    workers: &[KnownWorker],
) -> Verdict {
    let memory = match reading.seen(now) {
        Ok(memory) => memory,
        Err(blindness) => return Verdict::Blind(blindness),
    };
    let stored = stored.filter(|stored| stored.baseline.gpu_uuid == reading.gpu.uuid);
    let look = Look::new(memory, workers);
    let finding = match stored {
        Some(stored) => look.against(stored),
        None => look.first(),
    };
    let leaving = leaving(now, &look, finding.is_over(), workers);

    match leaving.iter().map(|worker| worker.since).min() {
        None if !finding.is_over() => {
            let is_fresh = stored.is_some_and(|stored| stored.age < limits::BASELINE_RENEWAL_AGE);
            let store = (!is_fresh).then(|| Baseline::of(&reading.gpu, memory));
            Verdict::Clean(Clean { foreign: look.foreign_bytes, yardstick: finding.yardstick, store })
        }
        // Somebody else who is named won't leave by our waiting; what nobody is named for may well be ours.
        Some(since) if !(finding.is_over() && finding.names_enough) => {
            Verdict::Releasing(Releasing { since, over: finding.over, leaving })
        }
        Some(_) | None => Verdict::Dirty(look.dirty(finding, leaving)),
    }
}

/// The workers of ours that are in the way: those that live, those that the driver still lists, and, if there is too
/// much on the card, those that ended a moment ago.
fn leaving(now: Millis, look: &Look<'_>, is_over: bool, workers: &[KnownWorker]) -> Vec<Leaving> {
    let in_the_way = |worker: &KnownWorker| {
        let listed = look.ours.iter().find(|holder| worker.is_listed_as(holder));
        let is_in_the_way = worker.is_alive() || listed.is_some() || (is_over && worker.may_explain(now));
        is_in_the_way.then(|| Leaving {
            pid: worker.record.pid,
            since: worker.since,
            state: worker.state(),
            bytes: listed.and_then(|holder| holder.process.bytes),
        })
    };
    workers.iter().filter_map(in_the_way).collect()
}

/// What is too much, measured with a yardstick.
struct Finding {
    yardstick: Yardstick,
    /// What has to go.
    over: Bytes,
    /// Who grew, the largest growth first.
    culprits: Vec<Culprit>,
    /// Whether what is too much has names that are not ours.
    names_enough: bool,
    /// Beyond the baseline, and nobody is named for it.
    unattributed: Bytes,
}

impl Finding {
    fn is_over(&self) -> bool {
        match self.yardstick {
            Yardstick::Baseline { .. } => self.over > Bytes::ZERO,
            // Whoever computes is too much without a baseline, also where the driver gives no figure.
            Yardstick::FirstLook { .. } => self.over > Bytes::ZERO || !self.culprits.is_empty(),
        }
    }
}
