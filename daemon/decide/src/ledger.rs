//! The ledger: who holds which bytes, in which account, and what is left under the line.
//!
//! Objects are never added across accounts and never guessed from one another, and each figure says where it comes from.
//! An account exists only where the machine has it, an object only where the model and this build have it: what is absent
//! is absent, not 0.

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

/// What bytes are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccountKind {
    /// Memory of the machine, or of the group that we are limited to.
    Host,
    /// Memory of a GPU.
    Vram,
    /// Files.
    Disk,
}

impl AccountKind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [AccountKind; 3] = [AccountKind::Host, AccountKind::Vram, AccountKind::Disk];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            AccountKind::Host => "host",
            AccountKind::Vram => "vram",
            AccountKind::Disk => "disk",
        }
    }
}

/// A named holder of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// Weights that every token uses.
    DenseWeights,
    /// Experts held in memory.
    ExpertResident,
    /// Keys and values.
    Kv,
    /// Work buffers of a step.
    Activations,
    /// Code, stacks, vocabulary, requests in flight.
    Service,
    /// Everybody else.
    Foreign,
    /// The model's file.
    ModelFile,
}

impl Object {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Object::DenseWeights => "dense_weights",
            Object::ExpertResident => "expert_resident",
            Object::Kv => "kv",
            Object::Activations => "activations",
            Object::Service => "service",
            Object::Foreign => "foreign",
            Object::ModelFile => "model_file",
        }
    }
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Computed from the model's header and the knobs.
    Planned,
    /// Read from the machine.
    Measured,
    /// A bound or a rule of thumb.
    Estimated,
}

impl Basis {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Planned => "planned",
            Basis::Measured => "measured",
            Basis::Estimated => "estimated",
        }
    }
}

/// One line of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who holds the bytes.
    pub object: Object,
    /// How many.
    pub bytes: Bytes,
    /// Where the figure comes from.
    pub basis: Basis,
    /// What it is made of, for a person; may be empty.
    pub detail: String,
}

/// How much there is, and how much of it may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// All there is.
    pub limit: Bytes,
    /// The safe limit.
    pub line: Bytes,
}

/// One account. Bytes of different accounts are never added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Which one.
    pub kind: AccountKind,
    /// Its size and line; none for the disk, where what counts is what is read.
    pub bounds: Option<Bounds>,
    /// Its objects.
    pub entries: Vec<Entry>,
}

impl Account {
    /// Bytes held by everybody.
    pub fn used(&self) -> Bytes {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Bytes held by other programs.
    pub fn foreign(&self) -> Bytes {
        self.entries.iter().filter(|entry| entry.object == Object::Foreign).map(|entry| entry.bytes).sum()
    }

    /// Bytes held, or to be held, by us.
    pub fn own(&self) -> Bytes {
        self.entries.iter().filter(|entry| entry.object != Object::Foreign).map(|entry| entry.bytes).sum()
    }

    /// What is left under the line; 0 over it. `None` where there is no line.
    pub fn headroom(&self) -> Option<Bytes> {
        self.bounds.map(|bounds| bounds.line.saturating_sub(self.used()))
    }

    /// What is missing; 0 where it fits, or where there is no line.
    pub fn shortfall(&self) -> Bytes {
        self.bounds.map_or(Bytes::ZERO, |bounds| self.used().saturating_sub(bounds.line))
    }
}

/// All accounts that exist, in the order of [`AccountKind::ALL`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The accounts.
    pub accounts: Vec<Account>,
}

impl Ledger {
    /// The account of a kind, where the machine has it.
    pub fn account(&self, kind: AccountKind) -> Option<&Account> {
        self.accounts.iter().find(|account| account.kind == kind)
    }

    /// Whether every account is under its line.
    pub fn fits(&self) -> bool {
        self.accounts.iter().all(|account| account.shortfall() == Bytes::ZERO)
    }
}

/// The safe limit of host memory. `Auto`: the limit less 12 %, at least 1 and at most 7 GiB. A line that is written above
/// the limit is the limit; the plan says so.
pub fn host_line(limit: Bytes, wish: Setting<Bytes>) -> Bytes {
    match wish {
        Setting::Exactly(line) => line.min(limit),
        Setting::Auto => {
            let share = Bytes(limit.0 / 100 * limits::HOST_MARGIN_PERCENT);
            limit.saturating_sub(share.clamp(limits::HOST_MARGIN_MIN, limits::HOST_MARGIN_MAX))
        }
    }
}
