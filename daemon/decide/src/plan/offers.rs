//! The make-room list: changes in order of price, each computed alone against the refused plan.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};

use super::{Knobs, MachineReading, ModelSizes, Program, Shortage, Wish, steps_below};
use crate::ledger::{AccountKind, Ledger};

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What to change.
    pub change: Change,
    /// The account it helps.
    pub account: AccountKind,
    /// What it frees.
    pub frees: Bytes,
    /// Whether it is enough without the others.
    pub is_enough: bool,
}

/// A change that makes room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// End somebody's program. Nobody but its user does that.
    CloseProgram(Program),
    /// Fewer sessions at once.
    Sessions {
        /// Now.
        from: u32,
        /// Then.
        to: u32,
    },
    /// A shorter context.
    Context {
        /// Now.
        from: Tokens,
        /// Then.
        to: Tokens,
    },
    /// A coarser storage of keys and values.
    KvType {
        /// Now.
        from: KvType,
        /// Then.
        to: KvType,
    },
}

impl Change {
    /// What it costs the user.
    pub fn price(&self) -> &'static str {
        match self {
            Change::CloseProgram(_) => "costs the model nothing",
            Change::Sessions { .. } => "requests wait for one another",
            Change::Context { .. } => "long chats are cut or summarised",
            Change::KvType { to: KvType::Q4_0, .. } => "quality; not for long prose",
            Change::KvType { to: KvType::F16 | KvType::Q8_0, .. } => "quality, a little",
        }
    }
}

/// Describes a plan that is over its host line.
pub(super) fn shortage(
    model: &ModelSizes,
    machine: &MachineReading,
    wish: &Wish,
    knobs: Knobs,
    ledger: Ledger,
) -> Shortage {
    let account = AccountKind::Host;
    let shortfall = ledger.account(account).map_or(Bytes::ZERO, |host| host.shortfall());
    let kv = |knobs: &Knobs| kv_of(model, knobs);
    let offer = |change: Change, frees: Bytes| Offer { change, account, frees, is_enough: frees >= shortfall };
    let freed_by =
        |changed: &Knobs| kv(changed).map_or(Bytes::ZERO, |bytes| kv(&knobs).unwrap_or(bytes).saturating_sub(bytes));

    let mut offers: Vec<Offer> = Vec::new();
    for program in largest_programs(machine) {
        offers.push(offer(Change::CloseProgram(program.clone()), program.bytes));
    }
    let fewer = (1..knobs.max_sessions).rev().map(|to| Knobs { max_sessions: to, ..knobs });
    let shorter = match wish.context {
        Setting::Exactly(_) => steps_below(knobs.n_ctx).map(|to| Knobs { n_ctx: to, ..knobs }).collect(),
        Setting::Auto => Vec::new(), // it went down to the floor already
    };
    let coarser = KvType::ALL.into_iter().filter(|to| *to > knobs.kv_type).map(|to| Knobs { kv_type: to, ..knobs });

    if let Some(to) = gentlest(fewer, |to| freed_by(to) >= shortfall) {
        offers.push(offer(Change::Sessions { from: knobs.max_sessions, to: to.max_sessions }, freed_by(&to)));
    }
    if let Some(to) = gentlest(shorter.iter().copied(), |to| freed_by(to) >= shortfall) {
        offers.push(offer(Change::Context { from: knobs.n_ctx, to: to.n_ctx }, freed_by(&to)));
    }
    for to in coarser {
        offers.push(offer(Change::KvType { from: knobs.kv_type, to: to.kv_type }, freed_by(&to)));
    }
    offers.retain(|offer| offer.frees > Bytes::ZERO);

    let freed_together = freed_together(&offers, &knobs, |changed| freed_by(changed));
    Shortage { knobs, ledger, account, shortfall, offers, short_with_all: shortfall.saturating_sub(freed_together) }
}

/// Keys and values of all sessions.
fn kv_of(model: &ModelSizes, knobs: &Knobs) -> Option<Bytes> {
    model.kv_bytes(knobs.kv_type, knobs.n_ctx).map(|bytes| bytes.saturating_mul(u64::from(knobs.max_sessions)))
}

/// The first of a row of ever harder changes that is enough, else the hardest.
fn gentlest(row: impl Iterator<Item = Knobs>, is_enough: impl Fn(&Knobs) -> bool) -> Option<Knobs> {
    let mut hardest = None;
    for knobs in row {
        if is_enough(&knobs) {
            return Some(knobs);
        }
        hardest = Some(knobs);
    }
    hardest
}

/// What all offers free when they are taken together. The knobs multiply, so their sum would count bytes twice.
fn freed_together(offers: &[Offer], knobs: &Knobs, freed_by: impl Fn(&Knobs) -> Bytes) -> Bytes {
    let mut changed = *knobs;
    let mut programs = Bytes::ZERO;
    for offer in offers {
        match &offer.change {
            Change::CloseProgram(program) => programs = programs.saturating_add(program.bytes),
            Change::Sessions { to, .. } => changed.max_sessions = *to,
            Change::Context { to, .. } => changed.n_ctx = *to,
            Change::KvType { to, .. } => changed.kv_type = *to,
        }
    }
    programs.saturating_add(freed_by(&changed))
}

/// The programs that are worth closing, the largest first.
fn largest_programs(machine: &MachineReading) -> Vec<&Program> {
    let mut programs: Vec<&Program> =
        machine.programs.iter().filter(|program| program.bytes >= limits::MIN_PROGRAM_OFFER).collect();
    programs.sort_by_key(|program| (std::cmp::Reverse(program.bytes), program.pid));
    programs.truncate(limits::MAX_PROGRAM_OFFERS);
    programs
}
