//! What the machine has, as the probes read it. What was not measured is `None`, and nothing is derived from it.

use plimsoll_config::units::{Bytes, Millis};

use super::caps::Caps;
use crate::gpu::GpuProcess;
use crate::measured::Experience;
use crate::zero_check::Culprit;

/// What the machine has. The default is a machine of nothing: fill in what was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineReading {
    /// Memory that this group of processes may use: the smallest of the machine's and its cgroups'.
    pub host_limit: Bytes,
    /// Memory in use that can't be reclaimed and is not ours.
    pub host_foreign: Bytes,
    /// Programs that hold much of it, if they were looked for.
    pub programs: Vec<Program>,
    /// Bytes of host memory that the CPU reads in a second, measured.
    pub host_bytes_per_second: Option<Bytes>,
    /// The device of the model's file.
    pub disk: Option<DiskReading>,
    /// The cards. The plan uses the one that gives the best plan.
    pub gpus: Vec<CardReading>,
    /// Which experts are used most, from earlier runs of this model.
    pub profile: Option<Profile>,
    /// What earlier starts of this model showed of its estimates.
    pub experience: Option<Experience>,
    /// How fast memory was seen to vanish, and how fast we answer.
    pub reaction: Option<Reaction>,
    /// What workers that ran out of memory have taught.
    pub caps: Caps,
}

/// A program of somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its process id.
    pub pid: u32,
    /// Its command.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// What would come back if it ended.
    pub bytes: Bytes,
}

/// The device of the model's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskReading {
    /// For a person: `/models on nvme0n1 · 3.1 GB/s direct (measured)`.
    pub title: String,
    /// Bytes that the way in use reads in a second, measured on the file itself.
    pub bytes_per_second: Bytes,
}

/// One card as a plan sees it: what is free, and who could make room. What a driver said word for word, and whether it can be
/// believed, is [`crate::gpu::GpuReading`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardReading {
    /// Its number, as the driver counts.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// All of it.
    pub total: Bytes,
    /// What is free; nothing of ours is in use.
    pub free: Bytes,
    /// What the driver's context of one process takes, measured once or estimated.
    pub context: Bytes,
    /// What the driver keeps, where it says so.
    pub driver_reserved: Option<Bytes>,
    /// Who uses it, as far as the driver gives bytes.
    pub programs: Vec<GpuProgram>,
    /// Bytes of its memory that a kernel reads in a second, measured.
    pub bytes_per_second: Option<Bytes>,
    /// What the last start of this configuration saw.
    pub request_start: Option<RequestStart>,
    /// Time of a token that each layer saves when it is on this card, in nanoseconds, the output matrix last; measured.
    /// Empty: not measured, then a byte saves as much wherever it is.
    pub layer_gains_ns: Vec<u64>,
}

/// A program that uses a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProgram {
    /// Which one, with its bytes on this card.
    pub program: Program,
    /// Whether it belongs to the desktop of the stored baseline: nobody is asked to close that.
    pub is_desktop: bool,
}

/// The zero check's culprit, in place of its processes in the driver's list: what it names is what a refusal offers to close.
///
/// All of the program comes back, its part of the baseline too. Where the driver gives no figure nothing is promised.
impl From<&Culprit> for GpuProgram {
    fn from(culprit: &Culprit) -> GpuProgram {
        GpuProgram { program: Program::from(&culprit.process), is_desktop: false }
    }
}

impl From<&GpuProcess> for Program {
    fn from(process: &GpuProcess) -> Program {
        Program {
            pid: process.pid,
            name: process.program().to_owned(),
            user: process.user.clone().unwrap_or_else(|| "unknown user".to_owned()),
            bytes: process.bytes.unwrap_or_default(),
        }
    }
}

/// Free bytes when requests began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestStart {
    /// The reserve of that start.
    pub reserve: Bytes,
    /// The fewest that were seen.
    pub lowest_free: Bytes,
}

/// (layer, expert) pairs, the most used first. Those that are missing were never used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// The pairs; which expert of the layer it is does not matter for a plan.
    pub ranked: Vec<RankedExpert>,
}

/// One (layer, expert) pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedExpert {
    /// The place of its layer among all layers.
    pub layer: u32,
    /// How often it was used.
    pub uses: u32,
}

/// How fast memory vanishes, and how long our answer takes: 99th percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaction {
    /// The largest growth of others that is believed, in bytes a second.
    pub growth_per_second: Bytes,
    /// Between two samples.
    pub sample: Millis,
    /// From a sample to a decision.
    pub decide: Millis,
    /// From a decision to the worker's next hand-over point.
    pub hand_over: Millis,
    /// Until the memory is back.
    pub give_back: Millis,
}

impl Reaction {
    /// What can vanish before the first byte comes back: the line may not be closer than this to the limit.
    pub fn margin(&self) -> Bytes {
        let spans = [self.sample, self.decide, self.hand_over, self.give_back];
        let total_ms: u128 = spans.iter().map(|span| u128::from(span.0)).sum();
        let bytes = u128::from(self.growth_per_second.0) * total_ms / 1000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
