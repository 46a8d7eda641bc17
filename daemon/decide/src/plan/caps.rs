//! Upper bounds beside the wish, learned from workers that ran out of memory.
//!
//! A knob that was left to the planner stays under its bound. One that was written is never lowered: a plan that would be
//! over a bound because of it is refused and says so.

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};

use super::{Plan, Wish};

/// A knob that can have a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapLever {
    /// Experts in host memory, in bytes.
    ResidentBudget,
    /// Context of one session, in tokens.
    Context,
    /// Experts on the card, in bytes.
    ExpertCache,
    /// Layers of a dense model on the card.
    GpuLayers,
    /// Keys and values on the card, in tokens.
    KvWindow,
}

/// The bounds; `None`: none. The same shape says which knobs of a plan may be lowered, and where they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// Experts in host memory.
    pub resident_budget: Option<Bytes>,
    /// Context of one session.
    pub n_ctx: Option<Tokens>,
    /// Experts on the card.
    pub expert_cache: Option<Bytes>,
    /// Layers of a dense model on the card.
    pub gpu_layers: Option<u32>,
    /// Keys and values on the card.
    pub kv_window: Option<Tokens>,
}

impl CapLever {
    /// All of them.
    pub const ALL: [CapLever; 5] =
        [CapLever::ResidentBudget, CapLever::Context, CapLever::ExpertCache, CapLever::GpuLayers, CapLever::KvWindow];

    /// The word for it, in stored files and for a person.
    pub fn name(self) -> &'static str {
        match self {
            CapLever::ResidentBudget => "resident budget",
            CapLever::Context => "context",
            CapLever::ExpertCache => "expert cache",
            CapLever::GpuLayers => "gpu layers",
            CapLever::KvWindow => "kv window",
        }
    }
}

impl Caps {
    /// Where a lever stands, as it counts.
    pub fn get(&self, lever: CapLever) -> Option<u64> {
        match lever {
            CapLever::ResidentBudget => self.resident_budget.map(|bytes| bytes.0),
            CapLever::Context => self.n_ctx.map(|tokens| u64::from(tokens.0)),
            CapLever::ExpertCache => self.expert_cache.map(|bytes| bytes.0),
            CapLever::GpuLayers => self.gpu_layers.map(u64::from),
            CapLever::KvWindow => self.kv_window.map(|tokens| u64::from(tokens.0)),
        }
    }

    /// The same with a bound more; the lower one counts.
    #[must_use]
    pub fn with(mut self, lever: CapLever, most: u64) -> Caps {
        let most = self.get(lever).map_or(most, |already| already.min(most));
        let narrow = u32::try_from(most).unwrap_or(u32::MAX);
        match lever {
            CapLever::ResidentBudget => self.resident_budget = Some(Bytes(most)),
            CapLever::Context => self.n_ctx = Some(Tokens(narrow)),
            CapLever::ExpertCache => self.expert_cache = Some(Bytes(most)),
            CapLever::GpuLayers => self.gpu_layers = Some(narrow),
            CapLever::KvWindow => self.kv_window = Some(Tokens(narrow)),
        }
        self
    }

    /// The first written value that is over its bound: which, what was written, what is allowed.
    pub(super) fn overruled_by(&self, wish: &Wish) -> Option<(CapLever, u64, u64)> {
        let of = |lever| match lever {
            CapLever::ResidentBudget => wish.resident_budget.and_then(written).map(|bytes| bytes.0),
            CapLever::Context => written(wish.context).map(|tokens| u64::from(tokens.0)),
            CapLever::ExpertCache => None,
            CapLever::GpuLayers => written(wish.gpu_layers).map(u64::from),
            CapLever::KvWindow => wish.kv_window.and_then(written).map(|tokens| u64::from(tokens.0)),
        };
        CapLever::ALL.into_iter().find_map(|lever| {
            let (written, cap) = (of(lever)?, self.get(lever)?);
            (written > cap).then_some((lever, written, cap))
        })
    }
}

fn written<T>(setting: Setting<T>) -> Option<T> {
    match setting {
        Setting::Exactly(value) => Some(value),
        Setting::Auto => None,
    }
}

impl Plan {
    /// The knobs of this plan that may be lowered after a death, and where they stand: what the wish left to us and this
    /// build can move.
    pub fn ours(&self, wish: &Wish) -> Caps {
        let knobs = &self.knobs;
        let n_layers = u32::try_from(self.placement.gpu_layers.len()).unwrap_or(u32::MAX);
        let layers_are_ours = wish.gpu_layers == Setting::Auto && self.placement.experts.is_none() && n_layers > 0;
        Caps {
            resident_budget: knobs.resident_budget.filter(|_| wish.resident_budget == Some(Setting::Auto)),
            n_ctx: (wish.context == Setting::Auto && knobs.n_ctx > limits::AUTO_CONTEXT_FLOOR).then_some(knobs.n_ctx),
            expert_cache: knobs.expert_cache,
            gpu_layers: layers_are_ours.then_some(n_layers),
            kv_window: knobs.kv_window.filter(|_| wish.kv_window == Some(Setting::Auto)),
        }
    }
}
