//! What a card holds when nobody but the desktop uses it.

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use crate::gpu::{Gpu, GpuMemory, listed};

/// A card at a clean start, before our worker. Stored, and compared with from then on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    /// Which card.
    pub gpu_uuid: String,
    /// What was held, as the zero check counts it.
    pub held: Bytes,
    /// By program, all processes of one command together; the [`limits::MAX_BASELINE_PROGRAMS`] largest.
    pub programs: BTreeMap<String, Bytes>,
    /// What nobody was named for.
    pub unattributed: Bytes,
}

/// A baseline from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBaseline {
    /// It.
    pub baseline: Baseline,
    /// How long ago it was taken, by the clock on the wall.
    pub age: Millis,
}

impl Baseline {
    /// The card as it is.
    pub fn of(gpu: &Gpu, memory: &GpuMemory) -> Baseline {
        let holders = memory.holders();
        let mut by_program: BTreeMap<&str, Bytes> = BTreeMap::new();
        for holder in &holders {
            let bytes = by_program.entry(holder.process.program()).or_default();
            *bytes = bytes.saturating_add(holder.process.bytes.unwrap_or(Bytes::ZERO));
        }
        let mut programs: Vec<(&str, Bytes)> = by_program.into_iter().collect();
        programs.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes)); // stable: equal ones stay in the order of names
        programs.truncate(limits::MAX_BASELINE_PROGRAMS);
        Baseline {
            gpu_uuid: gpu.uuid.clone(),
            held: memory.held().max(listed(&holders)),
            programs: programs.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect(),
            unattributed: memory.unattributed(),
        }
    }
}
