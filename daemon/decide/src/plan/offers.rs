//! The make-room list: changes in order of price, each one tried alone, and what they reach together. An offer says what
//! trying it showed: what it frees by itself where the ladder ended, and whether the next plan would fit. Nothing is added
//! up.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};

use super::choose::choose;
use super::ladder::steps_below;
use super::load::{Choice, Inputs, Load, Reserve, Resident, load};
use super::machine::{MachineReading, Program};
use super::wish::{Draft, Images, KvSharing, Mode, Policy, Wish};
use super::{Adapt, Cause, Combination, Shortage};
use crate::ledger::AccountId;

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What to change.
    pub change: Change,
    /// The account it helps: the first one that is short and gets anything of it.
    pub account: AccountId,
    /// What it frees there.
    pub frees: Bytes,
    /// Whether the plan fits with this change alone.
    pub is_enough: bool,
}

/// A change that makes room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// End somebody's program. Nobody but its user does that.
    CloseProgram {
        /// Which one.
        program: Program,
        /// The account that its bytes are in.
        account: AccountId,
    },
    /// Fewer sessions at once.
    Sessions {
        /// Now.
        from: u32,
        /// Then.
        to: u32,
    },
    /// Fewer tokens of keys and values on the card.
    KvWindow {
        /// Now.
        from: Tokens,
        /// Then.
        to: Tokens,
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
    /// Less of the card kept free.
    Reserve {
        /// Now.
        from: Bytes,
        /// Then.
        to: Bytes,
    },
    /// Fewer layers on the card.
    GpuLayers {
        /// Now.
        from: u32,
        /// Then.
        to: u32,
    },
    /// Another place to read images.
    Images {
        /// Now.
        from: Images,
        /// Then.
        to: Images,
    },
    /// A smaller vocabulary to draft from.
    Draft {
        /// Now.
        from: Draft,
        /// Then.
        to: Draft,
    },
    /// Fewer experts in host memory.
    ResidentBudget {
        /// Now.
        from: Bytes,
        /// Then.
        to: Bytes,
    },
}

impl Change {
    /// What it costs the user.
    pub fn price(&self) -> &'static str {
        match self {
            Change::CloseProgram { .. } => "costs the model nothing",
            Change::Sessions { .. } => "requests wait for one another",
            Change::KvWindow { .. } => "long chats are slower",
            Change::Context { .. } => "long chats are cut or summarised",
            Change::KvType { to: KvType::Q4_0, .. } => "quality; not for long prose",
            Change::KvType { to: KvType::F16 | KvType::Q8_0, .. } => "quality, a little",
            Change::Reserve { .. } => "yours, explicit: only if you change it",
            Change::GpuLayers { .. } => "those layers run on the CPU",
            Change::Images { .. } => "images take longer to read",
            Change::Draft { .. } => "drafts only English well",
            Change::ResidentBudget { .. } => "more experts are read from the file",
        }
    }
}

/// What a change is tried on.
#[derive(Debug, Clone)]
struct Trial {
    machine: MachineReading,
    wish: Wish,
    /// Where the ladder ended.
    choice: Choice,
}

impl Trial {
    /// What the change does by itself, where the ladder ended.
    fn load(&self, inputs: Inputs<'_>) -> Option<Load> {
        load(Inputs { machine: &self.machine, ..inputs }, &self.choice)
    }

    /// The next plan after the change, from the top of the ladder, on whichever card.
    fn plan_again(&self, inputs: Inputs<'_>) -> Option<Load> {
        choose(Inputs { machine: &self.machine, wish: &self.wish, ..inputs }).map(|outcome| outcome.last)
    }

    fn with(&self, change: &Change) -> Trial {
        let mut trial = self.clone();
        let Trial { wish, choice, .. } = &mut trial;
        match change {
            Change::CloseProgram { program, account } => trial.close(program, *account),
            Change::Sessions { to, .. } => (wish.max_sessions, choice.max_sessions) = (*to, *to),
            Change::KvWindow { to, .. } => {
                (wish.kv_window, choice.kv_window) = (Some(Setting::Exactly(*to)), Some(*to));
            }
            Change::Context { to, .. } => (wish.context, choice.n_ctx) = (Setting::Exactly(*to), *to),
            Change::KvType { to, .. } => (wish.kv_type, choice.kv_type) = (*to, *to),
            Change::Reserve { to, .. } => {
                (wish.reserve, choice.reserve) = (Setting::Exactly(*to), Reserve::Exactly(*to));
            }
            Change::GpuLayers { to, .. } => {
                (wish.gpu_layers, choice.gpu_layers) = (Setting::Exactly(*to), Setting::Exactly(*to));
            }
            Change::Images { to, .. } => (wish.images, choice.images) = (Setting::Exactly(*to), *to),
            Change::Draft { to, .. } => (wish.draft, choice.draft) = (Setting::Exactly(*to), *to),
            Change::ResidentBudget { to, .. } => {
                (wish.resident_budget, choice.resident) = (Some(Setting::Exactly(*to)), Resident::Exactly(*to));
            }
        }
        trial
    }

    fn close(&mut self, program: &Program, account: AccountId) {
        match account {
            AccountId::Host => self.machine.host_foreign = self.machine.host_foreign.saturating_sub(program.bytes),
            AccountId::Vram(index) => {
                if let Some(gpu) = self.machine.gpus.iter_mut().find(|gpu| gpu.index == index) {
                    gpu.free = gpu.free.saturating_add(program.bytes).min(gpu.total);
                    gpu.programs.retain(|user| user.program.pid != program.pid);
                }
            }
            AccountId::Disk => {}
        }
    }
}

/// Describes a load that does not fit.
pub(super) fn shortage(inputs: Inputs<'_>, refused: Load) -> Shortage {
    let trial = Trial { machine: inputs.machine.clone(), wish: *inputs.wish, choice: refused.choice };
    let offers = offers(inputs, &refused, &trial);
    let all: Vec<usize> = (0..offers.len()).collect();
    let short_with_all = reaches(inputs, &trial, &offers, &all).map_or_else(Vec::new, |load| load.shortfalls);
    let combinations = combinations(inputs, &trial, &offers);
    Shortage {
        knobs: super::knobs(&refused),
        adapt: adapt(inputs, &refused),
        ledger: refused.ledger,
        shortfalls: refused.shortfalls,
        offers,
        combinations,
        short_with_all,
    }
}

fn offers(inputs: Inputs<'_>, refused: &Load, trial: &Trial) -> Vec<Offer> {
    let offer = |change: &Change| {
        let changed = trial.with(change);
        let load = changed.load(inputs)?;
        let freed = |account| load.margin_bytes(account) - refused.margin_bytes(account);
        let account = refused.shortfalls.iter().map(|short| short.account).find(|account| freed(*account) > 0)?;
        let frees = Bytes(u64::try_from(freed(account)).unwrap_or(u64::MAX));
        let is_enough = changed.plan_again(inputs).is_some_and(|load| load.fits());
        Some(Offer { change: change.clone(), account, frees, is_enough })
    };
    let mut offers: Vec<Offer> = programs(inputs, refused).iter().filter_map(offer).collect();
    for row in rows(inputs, refused) {
        // The gentlest change of a row that is enough, else the hardest that helps at all.
        let tried: Vec<Offer> = row.iter().filter_map(offer).collect();
        let enough = tried.iter().find(|offer| offer.is_enough);
        offers.extend(enough.or_else(|| tried.iter().rfind(|offer| !is_extreme(&offer.change))).cloned());
    }
    offers
}

/// A context that is cut to a fraction is offered only where it is enough by itself.
fn is_extreme(change: &Change) -> bool {
    matches!(change, Change::Context { from, to } if to.0 < from.0 / limits::OFFERED_CONTEXT_SHARE)
}

/// The programs that are worth closing, of each account that is short, the largest first. A desktop stays.
fn programs(inputs: Inputs<'_>, refused: &Load) -> Vec<Change> {
    let mut changes = Vec::new();
    for short in &refused.shortfalls {
        let mut programs: Vec<&Program> = match short.account {
            AccountId::Host => inputs.machine.programs.iter().collect(),
            AccountId::Vram(index) => {
                let gpu = inputs.machine.gpus.iter().filter(|gpu| gpu.index == index);
                let users = gpu.flat_map(|gpu| &gpu.programs).filter(|user| !user.is_desktop);
                users.map(|user| &user.program).collect()
            }
            AccountId::Disk => Vec::new(),
        };
        programs.retain(|program| program.bytes >= limits::MIN_PROGRAM_OFFER);
        programs.sort_by_key(|program| (std::cmp::Reverse(program.bytes), program.pid));
        programs.truncate(limits::MAX_PROGRAM_OFFERS);
        let account = short.account;
        changes.extend(programs.into_iter().map(|program| Change::CloseProgram { program: program.clone(), account }));
    }
    changes
}

/// What the user may change, in order of price; each row from the gentlest to the hardest. What the ladder lowers by
/// itself is at its end already.
fn rows(inputs: Inputs<'_>, refused: &Load) -> Vec<Vec<Change>> {
    let (wish, choice) = (inputs.wish, &refused.choice);
    let mut rows: Vec<Vec<Change>> = Vec::new();
    if wish.kv_sharing == KvSharing::Each {
        let from = choice.max_sessions;
        rows.push((1..from).rev().map(|to| Change::Sessions { from, to }).collect());
    }
    if let (Some(from), Some(Setting::Exactly(_))) = (choice.kv_window, wish.kv_window) {
        rows.push(steps_below(from, limits::KV_WINDOW_FLOOR).map(|to| Change::KvWindow { from, to }).collect());
    }
    if let Setting::Exactly(from) = wish.context {
        rows.push(steps_below(from, limits::AUTO_CONTEXT_FLOOR).map(|to| Change::Context { from, to }).collect());
    }
    let from = choice.kv_type;
    rows.extend(KvType::ALL.into_iter().filter(|to| *to > from).map(|to| vec![Change::KvType { from, to }]));
    rows.push(smaller_reserve(inputs, refused).into_iter().collect());
    if let Setting::Exactly(from) = wish.gpu_layers {
        rows.push(
            (0..from.min(inputs.model.layers.len() as u32)).rev().map(|to| Change::GpuLayers { from, to }).collect(),
        );
    }
    if inputs.model.image_encoder.is_some() && wish.images == Setting::Exactly(Images::Card) {
        rows.push(vec![Change::Images { from: Images::Card, to: Images::Cpu }]);
    }
    let small_head = inputs.model.speculation.and_then(|speculation| speculation.small_draft_head);
    if small_head.is_some() && wish.draft == Setting::Exactly(Draft::Full) {
        rows.push(vec![Change::Draft { from: Draft::Full, to: Draft::Small }]);
    }
    if let (Resident::Exactly(_), Some(from)) = (choice.resident, refused.resident_budget) {
        rows.push(smaller_budget(from, refused.short(AccountId::Host)).into_iter().collect());
    }
    rows
}

/// An explicit reserve, down to where it would be LOW.
fn smaller_reserve(inputs: Inputs<'_>, refused: &Load) -> Option<Change> {
    let card = refused.card.as_ref()?;
    let is_written = inputs.wish.mode == Mode::Stable && matches!(inputs.wish.reserve, Setting::Exactly(_));
    let to = card.reserve_parts.saturating_add(limits::VRAM_SLACK_LOW);
    (is_written && to < card.reserve).then_some(Change::Reserve { from: card.reserve, to })
}

/// A budget that is smaller by what is missing, in whole GiB.
fn smaller_budget(from: Bytes, missing: Bytes) -> Option<Change> {
    const GIB: u64 = Bytes::from_gib(1).0;
    let to = from.saturating_sub(Bytes(missing.0.div_ceil(GIB).saturating_mul(GIB)));
    (to < from).then_some(Change::ResidentBudget { from, to })
}

/// The next plan after several offers were taken, each on top of those before it.
fn reaches(inputs: Inputs<'_>, trial: &Trial, offers: &[Offer], taken: &[usize]) -> Option<Load> {
    let trial = taken.iter().fold(trial.clone(), |trial, at| trial.with(&offers[*at].change));
    trial.plan_again(inputs)
}

/// What the knobs reach without a reserve that was written, which is its owner's; the cheapest way out by all knobs; and, where
/// that is not enough, with the programs closed as well. A single offer that is enough says so itself.
fn combinations(inputs: Inputs<'_>, trial: &Trial, offers: &[Offer]) -> Vec<Combination> {
    let is_knob = |at: &usize| !matches!(offers[*at].change, Change::CloseProgram { .. });
    let knobs: Vec<usize> = (0..offers.len()).filter(is_knob).collect();
    let is_free = |at: &&usize| !matches!(offers[**at].change, Change::Reserve { .. });
    let free: Vec<usize> = knobs.iter().filter(is_free).copied().collect();
    let all: Vec<usize> = (0..offers.len()).collect();
    let mut found = Vec::new();
    for taken in [free, knobs, all] {
        let Some(combination) = cheapest(inputs, trial, offers, &taken) else { continue };
        let is_enough = combination.short.is_empty();
        if combination.offers.len() > 1 && !found.contains(&combination) {
            found.push(combination);
        }
        if is_enough {
            break;
        }
    }
    found
}

/// Takes offers in order of price until it fits, then leaves out, the dearest first, those that it fits without.
fn cheapest(inputs: Inputs<'_>, trial: &Trial, offers: &[Offer], from: &[usize]) -> Option<Combination> {
    let fits = |taken: &[usize]| reaches(inputs, trial, offers, taken).is_some_and(|load| load.fits());
    let enough = (1..=from.len()).find(|n| fits(&from[..*n]));
    let mut taken = from[..enough.unwrap_or(from.len())].to_vec();
    if enough.is_some() {
        for at in from.iter().rev() {
            let without: Vec<usize> = taken.iter().copied().filter(|other| other != at).collect();
            if fits(&without) {
                taken = without;
            }
        }
    }
    let load = reaches(inputs, trial, offers, &taken)?;
    Some(Combination { offers: taken, short: load.shortfalls })
}

/// What the policy `adapt` would do where the expert cache is under its floor.
fn adapt(inputs: Inputs<'_>, refused: &Load) -> Option<Adapt> {
    let is_under_floor = |cause: &Cause| matches!(cause, Cause::UnderFloor { .. });
    let is_possible =
        refused.choice.policy != Policy::Adapt && refused.shortfalls.iter().any(|short| is_under_floor(&short.cause));
    let load = load(inputs, &Choice { policy: Policy::Adapt, ..refused.choice }).filter(|_| is_possible)?;
    Some(match load.shortfalls.first() {
        None => Adapt::Starts { n_experts: load.card.map_or(0, |card| card.n_cached) },
        Some(short) => Adapt::StillShort { account: short.account, bytes: short.bytes },
    })
}
