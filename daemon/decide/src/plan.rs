//! Whether a model fits, with which knobs, and what to do when it does not.
//!
//! Inputs are the model's sizes (from its header alone), the machine's readings and the user's wish. What the user wrote is
//! kept; what was left to us starts at its best and goes down a ladder of levers, one at a time, everything computed again
//! after each. When the end of the ladder does not fit, the refusal says what is missing of which account, and offers each
//! change that would make room, in order of price.
//!
//! ```text
//!   wish ──► top of the ladder ──► load ──► fits? ──yes──► Plan: knobs, placement, ledger, forecast, what was given up
//!                      ▲            │
//!                      │            no
//!                      └── one lever down ──none left──► Refusal: shortfalls, offers, what they reach together
//! ```
//!
//! Read in this order: [`ModelSizes`], [`MachineReading`], [`Wish`], then `estimates`, `load` (what a choice costs), `card`
//! (the same on a GPU), `placement` (which experts and layers lie where), `ladder`, `offers`, `forecast`.

mod caps;
mod card;
mod choose;
mod estimates;
mod forecast;
mod ladder;
mod load;
mod machine;
mod model;
mod offers;
mod outcome;
mod placement;
mod wish;

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

use choose::Outcome;
use load::{Inputs, Load, Reserve};
use placement::ExpertRow;

pub use caps::{CapLever, Caps};
pub use card::suggested_reserve;
pub use machine::{
    CardReading, DiskReading, GpuProgram, MachineReading, Profile, Program, RankedExpert, Reaction, RequestStart,
};
pub use model::{Experts, KvLayer, LayerSizes, ModelSizes, Speculation};
pub use offers::{Change, Offer};
pub use outcome::{
    Adapt, Cause, Combination, DiskVerdict, ExpertPlacement, FileTier, Forecast, Knobs, Note, Placement, Plan, Refusal,
    Shortage, Shortfall, Speed, TokensPerSecond,
};
pub use wish::{Draft, Images, KvSharing, Mode, Policy, Wish};

/// Makes the plan of one start.
///
/// # Errors
/// [`Refusal`]: the model can't be stored that way, or does not fit with any knobs that the wish allows.
pub fn plan(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Result<Plan, Refusal> {
    if let (Mode::Benchmark, Setting::Exactly(reserve)) = (wish.mode, wish.reserve)
        && reserve != limits::BENCHMARK_RESERVE
    {
        return Err(Refusal::ModesMixed { reserve });
    }
    if let Some((lever, written, cap)) = machine.caps.overruled_by(wish) {
        return Err(Refusal::OverLearnedCap { lever, written, cap });
    }
    let row = ExpertRow::new(model, machine.profile.as_ref());
    let inputs = Inputs { model, machine, wish, row: &row, card: None };
    let impossible = Refusal::KvTypeImpossible { kv_type: wish.kv_type };
    let Outcome { inputs, last, given_up } = choose::choose(inputs).ok_or(impossible)?;
    if !last.fits() {
        return Err(Refusal::DoesNotFit(Box::new(offers::shortage(inputs, last))));
    }
    let knobs = knobs(&last);
    let kv = model.kv_bytes(knobs.kv_type, knobs.n_ctx).unwrap_or_default();
    let n_contexts = match wish.kv_sharing {
        KvSharing::Each => u64::from(knobs.max_sessions),
        KvSharing::Shared => 1,
    };
    Ok(Plan {
        knobs,
        mode: wish.mode,
        forecast: forecast::forecast(inputs, &last),
        estimates: inputs.uncorrected(&last.ledger),
        given_up,
        notes: notes(inputs, &last),
        rough_rule: model.rough_rule(kv.saturating_mul(n_contexts), knobs.max_sessions),
        reaction_margin: machine.reaction.map(|reaction| reaction.margin()),
        placement: last.placement,
        ledger: last.ledger,
    })
}

fn knobs(load: &Load) -> Knobs {
    let choice = &load.choice;
    let card = load.card.as_ref().filter(|card| card.is_used);
    Knobs {
        n_ctx: choice.n_ctx,
        kv_type: choice.kv_type,
        max_sessions: choice.max_sessions,
        kv_window: choice.kv_window.filter(|_| card.is_some()),
        resident_budget: load.resident_budget,
        reserve: card.map(|card| card.reserve),
        expert_cache: card.and(load.placement.experts).map(|experts| experts.cached),
        images: card.filter(|card| card.has_images).map(|_| choice.images),
        draft: card.filter(|card| card.has_draft_head).map(|_| choice.draft),
    }
}

fn notes(inputs: Inputs<'_>, load: &Load) -> Vec<Note> {
    let (model, wish) = (inputs.model, inputs.wish);
    let (n_ctx, n_ctx_train) = (load.choice.n_ctx, model.n_ctx_train);
    let mut notes = Vec::new();
    if n_ctx > n_ctx_train {
        notes.push(Note::ContextBeyondTraining { n_ctx, n_ctx_train });
    }
    let bounds = inputs.host_bounds();
    match wish.host_line {
        Setting::Exactly(line) if line > bounds.limit => notes.push(Note::LineAboveLimit { line, limit: bounds.limit }),
        Setting::Exactly(_) | Setting::Auto => {}
    }
    let gap = bounds.limit.saturating_sub(bounds.line);
    let margin = inputs.machine.reaction.map_or(Bytes::ZERO, |reaction| reaction.margin());
    if margin > gap {
        notes.push(Note::LineWithinMargin { gap, margin });
    }
    notes.extend(card_notes(inputs, load));
    notes.extend(unkept_notes(inputs, load));
    notes
}

/// What was written and can't be had: never silently.
fn unkept_notes(inputs: Inputs<'_>, load: &Load) -> Vec<Note> {
    let (model, wish) = (inputs.model, inputs.wish);
    let mut notes = Vec::new();
    let n_layers = model.layers.len();
    let placed = load.placement.gpu_layers.len();
    match wish.gpu_layers {
        Setting::Exactly(asked) if placed != n_layers.min(asked as usize) => {
            let (placed, has_experts) = (placed as u32, inputs.gpu().is_some());
            notes.push(Note::LayersDiffer { asked, placed, has_experts });
        }
        Setting::Exactly(_) | Setting::Auto => {}
    }
    if wish.images == Setting::Exactly(Images::Card) && model.image_encoder.is_some() && load.placement.gpu.is_none() {
        notes.push(Note::ImagesOnCpu);
    }
    notes
}

fn card_notes(inputs: Inputs<'_>, load: &Load) -> Vec<Note> {
    let (Some(gpu), Some(card)) = (inputs.gpu(), load.card.as_ref()) else { return Vec::new() };
    if !card.is_used {
        return vec![Note::CardUnused { index: card.index }];
    }
    let mut notes = Vec::new();
    let (reserve, needed) = (card.reserve, card.reserve_parts);
    let slack = reserve.saturating_sub(needed);
    if needed > reserve {
        notes.push(Note::ReserveTooSmall { reserve, needed });
    }
    if slack < limits::VRAM_SLACK_LOW {
        notes.push(Note::SlackLow { reserve, slack });
    } else if slack < limits::VRAM_LINE_FREE && inputs.wish.mode == Mode::Stable && gpu.request_start.is_none() {
        notes.push(Note::UnderLine { reserve, slack });
    }
    if let (Reserve::Exactly(_), Mode::Stable, Some(seen)) = (load.choice.reserve, inputs.wish.mode, gpu.request_start)
    {
        let suggested = suggested_reserve(seen);
        if suggested > reserve {
            notes.push(Note::ReserveSuggested { reserve, suggested, lowest_free: seen.lowest_free });
        }
    }
    let (n_slots, floor) = inputs.model.cache_floor();
    let cached = load.placement.experts.map_or(floor, |experts| experts.cached);
    if cached < floor && load.choice.policy == Policy::Adapt {
        notes.push(Note::CacheUnderFloor { n_experts: card.n_cached, n_slots });
    }
    notes
}
