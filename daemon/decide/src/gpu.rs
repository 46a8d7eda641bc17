//! What a driver says about one card, and whether it can be believed.
//!
//! The probe fills these in as they arrive, one [`GpuReading`] for each card; the [zero check](crate::zero_check) and the
//! [release wait](crate::release) read them. Three things are kept apart that look alike: nothing is held, nothing is
//! listed, and nothing is known.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use crate::text::mib;

/// Which card. Stored things go by `uuid`, which survives a reboot; people go by `index`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// Its number in the driver's order.
    pub index: u32,
    /// Its name for life.
    pub uuid: String,
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.index)
    }
}

/// One look at one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuReading {
    /// Which card.
    pub gpu: Gpu,
    /// When the driver answered, or was given up.
    pub at: Millis,
    /// What it said.
    pub sight: Sight,
}

/// What a driver said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// An answer.
    Seen(GpuMemory),
    /// None.
    Blind(Blindness),
}

/// The memory of a card and who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuMemory {
    /// All of it.
    pub total: Bytes,
    /// What the driver would give out. The only counter that all of its versions agree on.
    pub free: Bytes,
    /// What it keeps for itself, where it says so.
    pub driver_reserved: Option<Bytes>,
    /// Its list of computing processes. A list that the driver does not have is empty: what it hides is unattributed.
    pub compute: Vec<GpuProcess>,
    /// Its list of drawing processes; many programs are in both.
    pub graphics: Vec<GpuProcess>,
    /// Processes in an uninterruptible wait that have the card's device open. The lists may lack them, and they hold what
    /// they hold.
    pub blocked: Vec<GpuProcess>,
}

/// A process that holds memory of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the boot; `None` where it could not be read, as for one that is just gone.
    pub start_ticks: Option<u64>,
    /// Its command.
    pub command: Option<String>,
    /// Whose it is.
    pub user: Option<String>,
    /// What it holds; `None` where the driver does not say (N/A).
    pub bytes: Option<Bytes>,
}

impl GpuProcess {
    /// Its command, or a word for not knowing it: what a baseline goes by.
    pub fn program(&self) -> &str {
        self.command.as_deref().unwrap_or("unknown program")
    }

    /// Whether it may be the process with this pid and start. A pid that was given out again has another start; one that
    /// can't be read, as of a process that has just gone, proves nothing.
    pub fn may_be(&self, pid: u32, start_ticks: u64) -> bool {
        self.pid == pid && self.start_ticks.is_none_or(|ticks| ticks == start_ticks)
    }
}

/// `python3 (pid 812, alice)`.
impl fmt::Display for GpuProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}", self.program(), self.pid)?;
        match &self.user {
            Some(user) => write!(f, ", {user})"),
            None => write!(f, ")"),
        }
    }
}

/// What a process does on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It draws, and nothing else.
    Graphics,
    /// It computes, and nothing else.
    Compute,
    /// Both.
    Both,
}

/// A process with what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub process: GpuProcess,
    /// Doing what.
    pub usage: Use,
}

impl GpuMemory {
    /// What is not free, whoever has it.
    pub fn held(&self) -> Bytes {
        self.total.saturating_sub(self.free)
    }

    /// Both lists as one, each process once. A process in both lists is named with one figure, not with two halves: the
    /// larger one counts.
    pub fn holders(&self) -> Vec<Holder> {
        let mut by_pid: BTreeMap<u32, Holder> = BTreeMap::new();
        for (list, usage) in [(&self.compute, Use::Compute), (&self.graphics, Use::Graphics)] {
            for process in list {
                by_pid
                    .entry(process.pid)
                    .and_modify(|known| {
                        known.process.bytes = known.process.bytes.max(process.bytes);
                        known.usage = if known.usage == usage { usage } else { Use::Both };
                    })
                    .or_insert_with(|| Holder { process: process.clone(), usage });
            }
        }
        by_pid.into_values().collect()
    }

    /// Held by nobody that the lists name with a figure. What the driver keeps for itself is not in it.
    pub fn unattributed(&self) -> Bytes {
        let reserved = self.driver_reserved.unwrap_or(Bytes::ZERO);
        self.held().saturating_sub(reserved).saturating_sub(listed(&self.holders()))
    }

    /// Neither list names anybody.
    pub fn lists_nobody(&self) -> bool {
        self.compute.is_empty() && self.graphics.is_empty()
    }
}

/// The known bytes of some holders.
pub fn listed(holders: &[Holder]) -> Bytes {
    holders.iter().filter_map(|holder| holder.process.bytes).sum()
}

/// Why nothing is known about a card. Never the same as "free".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blindness {
    /// The driver did not answer within the deadline.
    Silent {
        /// How long it was given.
        waited: Millis,
    },
    /// The driver answered with an error.
    Failed {
        /// Its words.
        why: String,
    },
    /// The last answer is too old.
    Stale {
        /// How old.
        age: Millis,
    },
    /// The figures contradict each other.
    Nonsense {
        /// Free, it says.
        free: Bytes,
        /// Of this.
        total: Bytes,
    },
}

impl fmt::Display for Blindness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blindness::Silent { waited } => {
                write!(f, "the driver did not answer within {waited}; look for Xid and GSP lines in the kernel's log")
            }
            Blindness::Failed { why } => write!(f, "the driver answered with an error: {why}"),
            Blindness::Stale { age } => {
                write!(f, "the last answer of the driver is {age} old; look for Xid and GSP lines in the kernel's log")
            }
            Blindness::Nonsense { free, total } => {
                write!(f, "the driver says {} MiB free of {}, which can't be", mib(*free), mib(*total))
            }
        }
    }
}

impl GpuReading {
    /// What is known now. A reading that is old, or contradicts itself, counts as none.
    ///
    /// # Errors
    /// [`Blindness`]: why nothing is known.
    pub fn seen(&self, now: Millis) -> Result<&GpuMemory, Blindness> {
        let age = now.since(self.at);
        match &self.sight {
            Sight::Blind(blindness) => Err(blindness.clone()),
            Sight::Seen(_) if age > limits::GPU_READING_MAX_AGE => Err(Blindness::Stale { age }),
            Sight::Seen(memory) if memory.free > memory.total || memory.total == Bytes::ZERO => {
                Err(Blindness::Nonsense { free: memory.free, total: memory.total })
            }
            Sight::Seen(memory) => Ok(memory),
        }
    }
}

/// What may differ between two looks at an unchanged card: [`limits::CLEAN_TOLERANCE_MIN`], or its share of a large card.
pub fn tolerance(total: Bytes) -> Bytes {
    Bytes(total.0 / 100 * limits::CLEAN_TOLERANCE_PERCENT).max(limits::CLEAN_TOLERANCE_MIN)
}
