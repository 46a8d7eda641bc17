//! The ledger: who holds which bytes, in which account, and what is left under the line.
//!
//! Objects are never added across accounts and never guessed from one another, and each figure says where it comes from.
//! An account exists only where the machine has it, an object only where the model and this build have it: what is absent
//! is absent, not 0. [`book`] is the ledger while it runs, as guards; [`reconcile`] holds a plan against what was measured.

pub mod book;
mod object;
pub mod reconcile;

use std::fmt;

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

pub use object::Object;

/// What bytes are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccountId {
    /// Memory of the machine, or of the group that we are limited to.
    Host,
    /// Memory of one GPU, by its index.
    Vram(u32),
    /// Files.
    Disk,
}

impl AccountId {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            AccountId::Host => "host",
            AccountId::Vram(_) => "vram",
            AccountId::Disk => "disk",
        }
    }
}

/// For a sentence: `host memory`, `GPU 0`, `disk`.
impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountId::Host => f.pad("host memory"),
            AccountId::Vram(index) => write!(f, "GPU {index}"),
            AccountId::Disk => f.pad("disk"),
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
    pub id: AccountId,
    /// What it is, for a person: the card's name, the disk's device; may be empty.
    pub title: String,
    /// Its size and line; none for the disk, where what counts is what is read.
    pub bounds: Option<Bounds>,
    /// Its objects.
    pub entries: Vec<Entry>,
    /// What a start asks for beside the objects before it may begin. Nothing in a plan that fits.
    pub asked_beside: Bytes,
}

impl Account {
    /// Bytes held by everybody.
    pub fn used(&self) -> Bytes {
        self.sum(Object::is_held)
    }

    /// Bytes held by other programs and by the driver.
    pub fn foreign(&self) -> Bytes {
        self.sum(|object| object.is_held() && !object.is_ours())
    }

    /// Bytes held, or to be held, by us.
    pub fn own(&self) -> Bytes {
        self.sum(|object| object.is_held() && object.is_ours())
    }

    /// The bytes of one object, all its entries together; `None` where it does not exist.
    pub fn object(&self, object: Object) -> Option<Bytes> {
        let mut found = self.entries.iter().filter(|entry| entry.object == object).peekable();
        found.peek()?;
        Some(found.map(|entry| entry.bytes).sum())
    }

    /// What is left under the line; 0 over it. `None` where there is no line.
    pub fn headroom(&self) -> Option<Bytes> {
        self.bounds.map(|bounds| bounds.line.saturating_sub(self.demand()))
    }

    /// What is missing; 0 where it fits, or where there is no line.
    pub fn shortfall(&self) -> Bytes {
        self.bounds.map_or(Bytes::ZERO, |bounds| self.demand().saturating_sub(bounds.line))
    }

    fn demand(&self) -> Bytes {
        self.used().saturating_add(self.asked_beside)
    }

    fn sum(&self, counts: impl Fn(Object) -> bool) -> Bytes {
        self.entries.iter().filter(|entry| counts(entry.object)).map(|entry| entry.bytes).sum()
    }
}

/// All accounts that exist: host, then each GPU, then disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The accounts.
    pub accounts: Vec<Account>,
}

impl Ledger {
    /// An account, where the machine has it.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.iter().find(|account| account.id == id)
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
            // In 128 bits, because dividing first would let the line fall by a few bytes when the limit grows by one.
            let share = u128::from(limit.0) * u128::from(limits::HOST_MARGIN_PERCENT) / 100;
            let share = Bytes(u64::try_from(share).unwrap_or(u64::MAX));
            limit.saturating_sub(share.clamp(limits::HOST_MARGIN_MIN, limits::HOST_MARGIN_MAX))
        }
    }
}
