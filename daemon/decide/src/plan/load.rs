//! What one choice of knobs costs: every account with its objects, and what is missing of each.
//!
//! The planner calls this once for each step down the ladder and for each offer, so that no figure is ever derived from
//! another one by hand: what is shown is what was computed.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens, thousands};

use super::card::{self, CardLoad};
use super::machine::{CardReading, MachineReading};
use super::model::ModelSizes;
use super::placement::{ExpertRow, Uses};
use super::wish::{Draft, Images, KvSharing, Policy, Wish};
use super::{Cause, ExpertPlacement, Placement, Shortfall};
use crate::ledger::{Account, AccountId, Basis, Bounds, Entry, Ledger, Object, host_line};

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) model: &'a ModelSizes,
    pub(super) machine: &'a MachineReading,
    pub(super) wish: &'a Wish,
    pub(super) row: &'a ExpertRow,
    /// The card that is used, by its index.
    pub(super) card: Option<u32>,
}

/// The knobs that the ladder moves. What follows from them (the expert cache, the resident budget's rest) is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) n_ctx: Tokens,
    pub(super) kv_type: KvType,
    pub(super) max_sessions: u32,
    pub(super) kv_window: Option<Tokens>,
    pub(super) resident: Resident,
    pub(super) reserve: Reserve,
    pub(super) images: Images,
    pub(super) draft: Draft,
    pub(super) gpu_layers: Setting<u32>,
    pub(super) policy: Policy,
}

/// Experts in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resident {
    /// All that are not on the card.
    Everything,
    /// As written.
    Exactly(Bytes),
    /// What is left under the line, but not less than this.
    Rest { floor: Bytes },
}

/// What stays free of the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    /// As written, or that of benchmarks.
    Exactly(Bytes),
    /// What is allocated later, and the line's bytes free beside it.
    Ample,
    /// The same with less free: just not LOW.
    Tight,
}

/// A choice and what it costs.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) choice: Choice,
    pub(super) ledger: Ledger,
    pub(super) placement: Placement,
    pub(super) card: Option<CardLoad>,
    pub(super) resident_budget: Option<Bytes>,
    /// What is left under the host line before `auto` takes it for experts, or missing when negative.
    pub(super) host_margin_bytes: i128,
    pub(super) shortfalls: Vec<Shortfall>,
}

impl Load {
    pub(super) fn fits(&self) -> bool {
        self.shortfalls.is_empty()
    }

    /// What is missing of an account.
    pub(super) fn short(&self, account: AccountId) -> Bytes {
        self.shortfalls.iter().filter(|short| short.account == account).map(|short| short.bytes).sum()
    }

    /// What is left of an account before the planner fills it up, or missing when negative.
    pub(super) fn margin_bytes(&self, account: AccountId) -> i128 {
        match account {
            AccountId::Host => self.host_margin_bytes,
            AccountId::Vram(index) => {
                self.card.as_ref().filter(|card| card.index == index).map_or(0, |card| card.margin_bytes)
            }
            AccountId::Disk => 0,
        }
    }
}

impl Inputs<'_> {
    /// The card that is used.
    pub(super) fn gpu(&self) -> Option<&CardReading> {
        self.machine.gpus.iter().find(|gpu| Some(gpu.index) == self.card)
    }

    /// The host line: the rule's, or lower where memory can vanish faster than we answer. What was written is kept.
    pub(super) fn host_bounds(&self) -> Bounds {
        let limit = self.machine.host_limit;
        let line = host_line(limit, self.wish.host_line);
        let margin = self.machine.reaction.map_or(Bytes::ZERO, |reaction| reaction.margin());
        let line = match self.wish.host_line {
            Setting::Exactly(_) => line,
            Setting::Auto => line.min(limit.saturating_sub(margin)),
        };
        Bounds { limit, line }
    }
}

impl Choice {
    /// Tokens whose keys and values all sessions hold together.
    pub(super) fn capacity(&self, sharing: KvSharing) -> u64 {
        match sharing {
            KvSharing::Each => u64::from(self.n_ctx.0) * u64::from(self.max_sessions),
            KvSharing::Shared => u64::from(self.n_ctx.0),
        }
    }

    pub(super) fn kv_detail(&self, sharing: KvSharing) -> String {
        let Choice { n_ctx, kv_type, max_sessions, .. } = self;
        match sharing {
            KvSharing::Shared if *max_sessions > 1 => {
                let part = Tokens(n_ctx.0 / max_sessions);
                format!("1 × {n_ctx} or {max_sessions} × {part}, {kv_type}")
            }
            KvSharing::Shared | KvSharing::Each => format!("{max_sessions} × {n_ctx} tokens, {kv_type}"),
        }
    }
}

/// What a choice costs; `None` if the model's keys and values can't be stored in that type.
pub(super) fn load(inputs: Inputs<'_>, choice: &Choice) -> Option<Load> {
    let capacity = choice.capacity(inputs.wish.kv_sharing);
    let of_layer = |n_tokens| {
        let layers = inputs.model.layers.iter();
        layers
            .map(|layer| layer.kv.bytes(choice.kv_type, n_tokens, choice.max_sessions))
            .collect::<Option<Vec<Bytes>>>()
    };
    let kv_layers = of_layer(capacity)?;
    let windowed = match (choice.kv_window, inputs.gpu()) {
        (Some(window), Some(_)) => Some(of_layer(capacity.min(u64::from(window.0)))?),
        (Some(_), None) | (None, _) => None,
    };
    let card = inputs.gpu().map(|gpu| card::load(inputs, choice, gpu, windowed.as_ref().unwrap_or(&kv_layers)));
    let mut host = host(inputs, choice, &kv_layers, windowed.is_some(), card.as_ref());
    let n_cached = card.as_ref().map_or(0, |card| card.n_cached);
    let (resident_budget, host_margin_bytes) = place_experts(inputs, choice, n_cached, &mut host);
    let experts = experts(inputs, n_cached, resident_budget.unwrap_or_default());

    let mut shortfalls = Vec::new();
    if host.shortfall() > Bytes::ZERO {
        shortfalls.push(Shortfall { account: AccountId::Host, bytes: host.shortfall(), cause: Cause::OverLine });
    }
    shortfalls.extend(card.iter().filter_map(|card| card.shortfall));
    let mut accounts = vec![host];
    for gpu in &inputs.machine.gpus {
        let used = card.as_ref().filter(|card| card.account.id == AccountId::Vram(gpu.index));
        accounts.push(used.map_or_else(|| card::idle(gpu), |card| card.account.clone()));
    }
    accounts.push(disk(inputs, experts.as_ref()));
    let placement = Placement {
        gpu: card.as_ref().filter(|card| card.is_used).map(|card| card.index),
        gpu_layers: card.as_ref().map_or_else(Vec::new, |card| card.layers.clone()),
        output_on_gpu: card.as_ref().is_some_and(|card| card.has_output),
        experts,
    };
    Some(Load {
        choice: *choice,
        ledger: Ledger { accounts },
        placement,
        card,
        resident_budget,
        host_margin_bytes,
        shortfalls,
    })
}

/// The host account without its experts.
fn host(
    inputs: Inputs<'_>,
    choice: &Choice,
    kv_layers: &[Bytes],
    has_window: bool,
    card: Option<&CardLoad>,
) -> Account {
    let model = inputs.model;
    let on_card = |layer: usize| card.is_some_and(|card| card.layers.contains(&(layer as u32)));
    let kv: Bytes = match has_window {
        true => kv_layers.iter().copied().sum(),
        false => kv_layers.iter().enumerate().filter(|(layer, _)| !on_card(*layer)).map(|(_, bytes)| *bytes).sum(),
    };
    let entry = |object, bytes, basis, detail: &str| Entry { object, bytes, basis, detail: detail.to_owned() };
    let estimated = |object, detail| entry(object, inputs.estimated(AccountId::Host, object), Basis::Estimated, detail);
    let images_on_card = card.is_some_and(|card| card.is_used) && choice.images == Images::Card;
    let images = model.image_encoder.filter(|_| !images_on_card).unwrap_or_default();
    let dense = model.dense_weights.saturating_sub(moved_to_card(model, card)).saturating_add(images);
    let mut entries = vec![
        entry(Object::DenseWeights, dense, Basis::Planned, ""),
        entry(Object::Kv, kv, Basis::Planned, &choice.kv_detail(inputs.wish.kv_sharing)),
        estimated(Object::Activations, "work buffers of the largest step"),
        estimated(Object::Service, "both processes beside tensors"),
    ];
    if card.is_some_and(|card| card.is_used && card.layers.len() == model.layers.len() && !has_window) {
        entries.retain(|entry| entry.object != Object::Kv); // all of it is on the card
    }
    if needs_staging(inputs, card) {
        entries.push(estimated(Object::Staging, "bytes between tiers"));
    }
    entries.push(entry(Object::Foreign, inputs.machine.host_foreign, Basis::Measured, "other programs"));
    Account {
        id: AccountId::Host,
        title: String::new(),
        bounds: Some(inputs.host_bounds()),
        entries,
        asked_beside: Bytes::ZERO,
    }
}

/// Experts move between tiers while tokens are made. Layers of a dense model move once, at the load.
fn needs_staging(inputs: Inputs<'_>, card: Option<&CardLoad>) -> bool {
    inputs.row.len() > 0 && (inputs.wish.resident_budget.is_some() || card.is_some_and(|card| card.is_used))
}

/// Dense weights that need no place in host memory because the card has them. A tied output matrix is a copy.
fn moved_to_card(model: &ModelSizes, card: Option<&CardLoad>) -> Bytes {
    let Some(card) = card else { return Bytes::ZERO };
    let of_layers: Bytes = model.layers.iter().map(|layer| layer.dense).sum();
    let beside_layers = model.dense_weights.saturating_sub(of_layers).saturating_sub(model.token_embedding);
    let output = if card.has_output { model.output.min(beside_layers) } else { Bytes::ZERO };
    card.layers.iter().map(|layer| model.layers[*layer as usize].dense).sum::<Bytes>().saturating_add(output)
}

/// Adds the resident experts to the host account, and puts its objects in order. Returns their budget, and what is left
/// under the line when they take no more than they must.
fn place_experts(inputs: Inputs<'_>, choice: &Choice, n_cached: u64, host: &mut Account) -> (Option<Bytes>, i128) {
    let row = inputs.row;
    let remaining = row.stretch(n_cached, row.len());
    let least = match choice.resident {
        Resident::Everything => remaining,
        Resident::Exactly(budget) => budget.min(remaining),
        Resident::Rest { floor } => floor.min(remaining),
    };
    let budget = match choice.resident {
        Resident::Everything | Resident::Exactly(_) => least,
        Resident::Rest { .. } => {
            let most = inputs.machine.caps.resident_budget.map_or(remaining, |cap| remaining.min(cap));
            host.headroom().unwrap_or_default().max(least).min(most)
        }
    };
    let line = host.bounds.map_or(0, |bounds| i128::from(bounds.line.0));
    let margin_bytes = line - i128::from(host.used().0) - i128::from(least.0);
    if row.len() > 0 {
        let detail = resident_detail(row, n_cached, row.fill(n_cached, budget));
        host.entries.push(Entry { object: Object::ExpertResident, bytes: budget, basis: Basis::Planned, detail });
    }
    host.entries.sort_by_key(|entry| (!entry.object.is_ours(), std::cmp::Reverse(entry.bytes), entry.object));
    ((row.len() > 0).then_some(budget), margin_bytes)
}

fn resident_detail(row: &ExpertRow, n_cached: u64, n_resident: u64) -> String {
    let (n, all) = (thousands(n_resident), thousands(row.len()));
    match (n_cached, n_cached + n_resident == row.len()) {
        (0, true) => format!("all {n} experts"),
        (_, true) => format!("the other {n} of {all}"),
        (_, false) if row.has_profile() => format!("hottest {n} of {all}"),
        (_, false) => format!("{n} of {all}, no profile yet"),
    }
}

fn experts(inputs: Inputs<'_>, n_cached: u64, resident_budget: Bytes) -> Option<ExpertPlacement> {
    let row = inputs.row;
    (row.len() > 0).then(|| {
        let n_resident = row.fill(n_cached, resident_budget);
        let in_file = n_cached + n_resident;
        ExpertPlacement {
            n_cached,
            cached: row.stretch(0, n_cached),
            n_resident,
            resident: row.stretch(n_cached, in_file),
            n_file_only: row.len() - in_file,
            file_only: row.stretch(in_file, row.len()),
        }
    })
}

/// The disk account: the file, and what a token reads of it.
fn disk(inputs: Inputs<'_>, experts: Option<&ExpertPlacement>) -> Account {
    let title = inputs.machine.disk.as_ref().map_or_else(String::new, |disk| disk.title.clone());
    let file = |detail: &str| Entry {
        object: Object::ModelFile,
        bytes: inputs.model.file_bytes,
        basis: Basis::Measured,
        detail: detail.to_owned(),
    };
    let entries = match experts.filter(|experts| experts.n_file_only > 0) {
        None => vec![file("read once, then 0 B/token")],
        Some(experts) => {
            let from = experts.n_cached + experts.n_resident;
            let bytes = inputs.row.bytes_per_token(from, inputs.row.len(), Uses::Profiled);
            let basis = if inputs.row.has_profile() { Basis::Planned } else { Basis::Estimated };
            let detail = format!("a token, of {} experts", thousands(experts.n_file_only));
            vec![
                file("read once, some experts on demand"),
                Entry { object: Object::FileTierReads, bytes, basis, detail },
            ]
        }
    };
    Account { id: AccountId::Disk, title, bounds: None, entries, asked_beside: Bytes::ZERO }
}
