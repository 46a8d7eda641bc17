//! What comes out of planning: a plan with everything that it promises, or a refusal with everything that would help.

use std::collections::BTreeMap;

use plimsoll_config::config::KvType;
use plimsoll_config::units::{Bytes, Tokens};

use super::caps::CapLever;
use super::offers::{Change, Offer};
use super::wish::{Draft, Images, Mode};
use crate::ledger::{AccountId, Ledger};
use crate::measured::Estimate;

/// The knobs of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// Context of one session.
    pub n_ctx: Tokens,
    /// Storage of keys and values.
    pub kv_type: KvType,
    /// Sessions at once.
    pub max_sessions: u32,
    /// Tokens of keys and values on the card, where they live in two tiers.
    pub kv_window: Option<Tokens>,
    /// Experts in host memory, where the model has some.
    pub resident_budget: Option<Bytes>,
    /// What stays free of the card when the expert cache is sized, where there is a card.
    pub reserve: Option<Bytes>,
    /// Experts on the card, where there is a card and the model has some.
    pub expert_cache: Option<Bytes>,
    /// Where images are read, if there is a card and the model reads any.
    pub images: Option<Images>,
    /// The vocabulary to draft from, where there is speculation.
    pub draft: Option<Draft>,
}

/// What lies where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The card in use.
    pub gpu: Option<u32>,
    /// The layers whose dense weights are on it, in order.
    pub gpu_layers: Vec<u32>,
    /// Whether the output matrix is.
    pub output_on_gpu: bool,
    /// The experts; `None` for a dense model.
    pub experts: Option<ExpertPlacement>,
}

/// Where the experts lie: the row of all of them, cut in three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertPlacement {
    /// On the card.
    pub n_cached: u64,
    /// Their bytes.
    pub cached: Bytes,
    /// In host memory.
    pub n_resident: u64,
    /// Their bytes.
    pub resident: Bytes,
    /// In the file alone.
    pub n_file_only: u64,
    /// Their bytes.
    pub file_only: Bytes,
}

/// What to expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Experts that are read on demand; `None` if there are none.
    pub file_tier: Option<FileTier>,
    /// Tokens a second; `None` where a tier in use was not measured.
    pub speed: Option<Speed>,
}

/// What a token costs the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileTier {
    /// How many of all expert uses miss, in thousandths; `None` without a profile.
    pub uses_permille: Option<u64>,
    /// Bytes read for a token: by the profile where there is one.
    pub reads_per_token: Bytes,
    /// The same if every expert is used as often as any other.
    pub reads_without_profile: Bytes,
    /// What that means.
    pub verdict: DiskVerdict,
}

/// Whether the disk is the slowest tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskVerdict {
    /// It reads faster than the other tiers compute.
    KeepsUp,
    /// Every token waits for it: nothing fails, and all is slow.
    SetsThePace,
    /// Not all tiers were measured.
    Unmeasured,
}

/// A range of speeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    /// At the end of a whole context.
    pub full_context: TokensPerSecond,
    /// At its beginning.
    pub empty_context: TokensPerSecond,
    /// At the end of a whole context, if the profile says nothing about what is asked. `None`: no profile, or no slower.
    pub if_profile_is_wrong: Option<TokensPerSecond>,
}

/// A speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokensPerSecond {
    /// In hundredths of a token a second.
    pub hundredths: u64,
}

/// A plan that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The knobs.
    pub knobs: Knobs,
    /// What is measured is labelled, and never compared with daily use.
    pub mode: Mode,
    /// What lies where.
    pub placement: Placement,
    /// What it costs.
    pub ledger: Ledger,
    /// What its estimated objects were estimated at, by account, before earlier starts corrected them. For
    /// [`crate::measured::Truth::note`], so that no correction is learned from itself.
    pub estimates: BTreeMap<AccountId, Vec<Estimate>>,
    /// What to expect.
    pub forecast: Forecast,
    /// What the ladder took of the best, in order of price.
    pub given_up: Vec<Change>,
    /// What the user should know.
    pub notes: Vec<Note>,
    /// What the usual rough table says of all memory together. Shown beside the ledger, used for nothing.
    pub rough_rule: Bytes,
    /// What can vanish of host memory before our answer takes effect; `None`: not measured.
    pub reaction_margin: Option<Bytes>,
}

/// Something that works, but not quite as one might think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The context is longer than what the model was trained for.
    ContextBeyondTraining {
        /// Asked for.
        n_ctx: Tokens,
        /// Trained for.
        n_ctx_train: Tokens,
    },
    /// The line was written above what there is.
    LineAboveLimit {
        /// Written.
        line: Bytes,
        /// There is.
        limit: Bytes,
    },
    /// The line was written closer to the limit than memory can vanish before we answer.
    LineWithinMargin {
        /// From the line to the limit.
        gap: Bytes,
        /// What can vanish.
        margin: Bytes,
    },
    /// LOW: the reserve leaves little free beside what is allocated later.
    SlackLow {
        /// The reserve.
        reserve: Bytes,
        /// What stays free of it.
        slack: Bytes,
    },
    /// The reserve is smaller than what is allocated later: that will not find its bytes.
    ReserveTooSmall {
        /// The reserve.
        reserve: Bytes,
        /// What is allocated later.
        needed: Bytes,
    },
    /// With this reserve a request began under the line; a larger one would have kept it.
    ReserveSuggested {
        /// The reserve.
        reserve: Bytes,
        /// The one that keeps the line.
        suggested: Bytes,
        /// The fewest free bytes that were seen.
        lowest_free: Bytes,
    },
    /// DIRTY: the expert cache starts under its floor, and grows when there is room.
    CacheUnderFloor {
        /// Experts on the card.
        n_experts: u64,
        /// The floor, in slots.
        n_slots: u64,
    },
    /// Layers on the card were asked for, and it is another number of them: experts go with all dense weights on the card or
    /// none, or there is no card.
    LayersDiffer {
        /// Written.
        asked: u32,
        /// On the card.
        placed: u32,
        /// Whether the model has experts; else the card is missing.
        has_experts: bool,
    },
    /// Images were to be read on the card, and nothing of the model is on one.
    ImagesOnCpu,
    /// The reserve that was written keeps less than the line free at a request's start.
    UnderLine {
        /// The reserve.
        reserve: Bytes,
        /// What stays free of it.
        slack: Bytes,
    },
    /// There is a card, and nothing of the model is on it.
    CardUnused {
        /// Which one.
        index: u32,
    },
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// This model's keys and values can't be stored in this type. No waiting changes that.
    KvTypeImpossible {
        /// The type.
        kv_type: KvType,
    },
    /// A benchmark has one reserve on every machine, and another was written. No waiting changes that.
    ModesMixed {
        /// What was written.
        reserve: Bytes,
    },
    /// A worker ran out of memory with this knob over a bound, and a higher value is written. Nothing is lowered silently.
    OverLearnedCap {
        /// Which knob.
        lever: CapLever,
        /// What was written: bytes, tokens or layers.
        written: u64,
        /// The most that is allowed.
        cap: u64,
    },
    /// An account would be over its line. It may fit later.
    DoesNotFit(Box<Shortage>),
}

/// What is missing, and what would make room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The knobs that were tried last, the cheapest that the wish allows.
    pub knobs: Knobs,
    /// What they would cost.
    pub ledger: Ledger,
    /// Every account that is short; never empty.
    pub shortfalls: Vec<Shortfall>,
    /// Changes that free something, in order of price, each tried alone.
    pub offers: Vec<Offer>,
    /// What several of them reach together.
    pub combinations: Vec<Combination>,
    /// What is still missing when every offer is taken; nothing if they are enough together.
    pub short_with_all: Vec<Shortfall>,
    /// What the policy `adapt` would do, where the expert cache is under its floor.
    pub adapt: Option<Adapt>,
}

/// What is missing of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// Which one.
    pub account: AccountId,
    /// How much.
    pub bytes: Bytes,
    /// By which rule.
    pub cause: Cause,
}

/// The rule that an account breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// More than its line.
    OverLine,
    /// The expert cache would be under its floor: floor > free − reserve − draft head.
    UnderFloor {
        /// Free beside context, dense weights, keys and values; negative if those do not fit.
        free_bytes: i128,
        /// The reserve.
        reserve: Bytes,
        /// Whether the user wrote it.
        is_reserve_written: bool,
        /// The start asks for it beside the reserve; 0 without speculation.
        draft_head: Bytes,
        /// Experts that would find room.
        n_fit: u64,
        /// The floor in slots.
        n_slots: u64,
        /// The floor in bytes.
        floor: Bytes,
    },
    /// The layers that were asked for do not fit on the card.
    GpuLayers {
        /// Asked for.
        n_layers: u32,
        /// What they need, with context and reserve.
        needed: Bytes,
        /// What is free.
        free: Bytes,
    },
}

/// Several offers taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Combination {
    /// Their places in the list of offers.
    pub offers: Vec<usize>,
    /// What is still missing then; empty: it fits.
    pub short: Vec<Shortfall>,
}

/// A start under the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adapt {
    /// It would start, marked dirty.
    Starts {
        /// Experts on the card.
        n_experts: u64,
    },
    /// Not even with one expert.
    StillShort {
        /// The account.
        account: AccountId,
        /// What is missing.
        bytes: Bytes,
    },
}
