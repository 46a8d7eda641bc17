//! What the planner gives up by itself when a wish does not fit: one lever at a time, in the order of price.
//!
//! A lever exists only where the wish left its value to us and this build has it. After each step everything is computed
//! again; a step that does not help an account that is short is not taken. A cheap lever is at its end before a dear one
//! moves; where the dear one then makes it superfluous, it is taken back.

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};

use super::load::{Choice, Inputs, Load, Reserve, Resident, load};
use super::offers::Change;
use super::wish::{Draft, Images, Mode};

/// A knob that frees bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lever {
    KvWindow,
    Context,
    Reserve,
    Images,
    DraftVocabulary,
    ResidentFloor,
}

impl Lever {
    /// A choice with this lever back where it was in the best one.
    fn restored(self, best: &Choice, choice: &Choice) -> Choice {
        match self {
            Lever::KvWindow => Choice { kv_window: best.kv_window, ..*choice },
            Lever::Context => Choice { n_ctx: best.n_ctx, ..*choice },
            Lever::Reserve => Choice { reserve: best.reserve, ..*choice },
            Lever::Images => Choice { images: best.images, ..*choice },
            Lever::DraftVocabulary => Choice { draft: best.draft, ..*choice },
            Lever::ResidentFloor => *choice, // the budget is what is left: it grows by itself
        }
    }
}

/// The cheapest first. A smaller window costs speed on long chats alone, a shorter context their beginnings, a smaller
/// reserve the room for other programs, images on the CPU seconds for each image, a smaller draft vocabulary speed in other languages; under its floor the resident
/// pool hits next to nothing.
const LADDER: [Lever; 6] =
    [Lever::KvWindow, Lever::Context, Lever::Reserve, Lever::Images, Lever::DraftVocabulary, Lever::ResidentFloor];

/// What is tried first: what was written, and the best of what was not.
fn top(inputs: Inputs<'_>) -> Choice {
    let (model, wish, caps) = (inputs.model, inputs.wish, inputs.machine.caps);
    let n_ctx = match wish.context {
        Setting::Exactly(n_ctx) => n_ctx,
        Setting::Auto => {
            model.n_ctx_train.min(limits::AUTO_CONTEXT_CAP).min(caps.n_ctx.unwrap_or(limits::AUTO_CONTEXT_CAP))
        }
    };
    Choice {
        n_ctx,
        kv_type: wish.kv_type,
        max_sessions: wish.max_sessions,
        kv_window: wish.kv_window.map(|window| match window {
            Setting::Exactly(n_tokens) => n_tokens,
            Setting::Auto => {
                let all = Tokens(u32::try_from(capacity(inputs, n_ctx)).unwrap_or(u32::MAX));
                caps.kv_window.map_or(all, |cap| all.min(cap))
            }
        }),
        resident: match wish.resident_budget {
            None => Resident::Everything,
            Some(Setting::Exactly(budget)) => Resident::Exactly(budget),
            Some(Setting::Auto) => {
                let cycle = model.token_cycle();
                Resident::Rest { floor: caps.resident_budget.map_or(cycle, |cap| cycle.min(cap)) }
            }
        },
        reserve: match (wish.mode, wish.reserve) {
            (Mode::Benchmark, _) => Reserve::Exactly(limits::BENCHMARK_RESERVE),
            (Mode::Stable, Setting::Exactly(reserve)) => Reserve::Exactly(reserve),
            (Mode::Stable, Setting::Auto) => Reserve::Ample,
        },
        images: match wish.images {
            Setting::Exactly(images) => images,
            Setting::Auto => Images::Card,
        },
        draft: match wish.draft {
            Setting::Exactly(draft) => draft,
            Setting::Auto => Draft::Full,
        },
        gpu_layers: wish.gpu_layers,
        policy: wish.policy,
    }
}

fn capacity(inputs: Inputs<'_>, n_ctx: Tokens) -> u64 {
    match inputs.wish.kv_sharing {
        super::KvSharing::Each => u64::from(n_ctx.0) * u64::from(inputs.wish.max_sessions),
        super::KvSharing::Shared => u64::from(n_ctx.0),
    }
}

/// Goes down the ladder until it fits, or to its end. Returns where it stands then, and what it gave up on the way; `None`
/// if the model's keys and values can't be stored in the type that was written.
pub(super) fn settle(inputs: Inputs<'_>) -> Option<(Load, Vec<Change>)> {
    let best = load(inputs, &top(inputs))?;
    let mut lowered: Option<Load> = None;
    for _ in 0..limits::MAX_LADDER_STEPS {
        let current = lowered.as_ref().unwrap_or(&best);
        if current.fits() {
            break;
        }
        let Some(next) = step_down(inputs, current) else { break };
        lowered = Some(next);
    }
    Some(match lowered {
        None => (best, Vec::new()),
        Some(last) => {
            let last = if last.fits() { take_back(inputs, &best.choice, last) } else { last };
            let given_up = given_up(&best, &last);
            (last, given_up)
        }
    })
}

/// Takes back what turned out not to be needed: the dearest first, each as far as it still fits. Once is enough, because none
/// of the levers that are tried later makes room for an earlier one.
fn take_back(inputs: Inputs<'_>, best: &Choice, mut last: Load) -> Load {
    for lever in LADDER.into_iter().rev() {
        let restored = lever.restored(best, &last.choice);
        let downwards = std::iter::once(restored).chain(notches(inputs, lever, &restored));
        let better = downwards.take_while(|choice| *choice != last.choice);
        if let Some(load) = better.filter_map(|choice| load(inputs, &choice)).find(Load::fits) {
            last = load;
        }
    }
    last
}

/// The next step down that helps, and what it costs then. `None`: nothing that we may change makes room.
///
/// A notch that changes nothing is passed over, not the end of its lever: a context that is still longer than the windows
/// of all layers costs the same as the next shorter one.
fn step_down(inputs: Inputs<'_>, from: &Load) -> Option<Load> {
    let helps = |to: &Load| from.shortfalls.iter().any(|short| to.short(short.account) < short.bytes);
    let notches = LADDER.into_iter().flat_map(|lever| notches(inputs, lever, &from.choice));
    notches.filter_map(|choice| load(inputs, &choice)).find(helps)
}

/// A lever's notches below where it stands, the next one first; none where the lever is not ours or at its end.
fn notches(inputs: Inputs<'_>, lever: Lever, choice: &Choice) -> Vec<Choice> {
    let wish = inputs.wish;
    let one = |is_ours: bool, to: Choice| if is_ours { vec![to] } else { Vec::new() };
    match lever {
        Lever::KvWindow => match choice.kv_window.filter(|_| wish.kv_window == Some(Setting::Auto)) {
            None => Vec::new(),
            Some(window) => {
                let steps = steps_below(window, limits::KV_WINDOW_FLOOR);
                steps.map(|to| Choice { kv_window: Some(to), ..*choice }).collect()
            }
        },
        Lever::Context if wish.context == Setting::Auto => {
            let steps = steps_below(choice.n_ctx, limits::AUTO_CONTEXT_FLOOR);
            steps.map(|to| Choice { n_ctx: to, ..*choice }).collect()
        }
        Lever::Context => Vec::new(),
        Lever::Reserve => one(choice.reserve == Reserve::Ample, Choice { reserve: Reserve::Tight, ..*choice }),
        Lever::Images => {
            let is_ours = wish.images == Setting::Auto && choice.images == Images::Card;
            one(is_ours && inputs.model.image_encoder.is_some(), Choice { images: Images::Cpu, ..*choice })
        }
        Lever::DraftVocabulary => {
            let has_small = inputs.model.speculation.is_some_and(|speculation| speculation.small_draft_head.is_some());
            let is_ours = wish.draft == Setting::Auto && choice.draft == Draft::Full;
            one(is_ours && has_small, Choice { draft: Draft::Small, ..*choice })
        }
        Lever::ResidentFloor => {
            let is_ours = matches!(choice.resident, Resident::Rest { floor } if floor > Bytes::ZERO);
            one(is_ours, Choice { resident: Resident::Rest { floor: Bytes::ZERO }, ..*choice })
        }
    }
}

/// Powers of two under a number of tokens, the largest first, down to a floor.
pub(super) fn steps_below(from: Tokens, floor: Tokens) -> impl Iterator<Item = Tokens> {
    let steps = (0..u32::BITS).rev().map(|exponent| Tokens(1 << exponent));
    steps.filter(move |step| *step < from && *step >= floor)
}

/// What was given up between two loads, in the order of price.
fn given_up(from: &Load, to: &Load) -> Vec<Change> {
    let mut changes = Vec::new();
    let reserve = |load: &Load| load.card.as_ref().map_or(Bytes::ZERO, |card| card.reserve);
    if let (Some(was), Some(is)) = (from.choice.kv_window, to.choice.kv_window)
        && was != is
    {
        changes.push(Change::KvWindow { from: was, to: is });
    }
    if from.choice.n_ctx != to.choice.n_ctx {
        changes.push(Change::Context { from: from.choice.n_ctx, to: to.choice.n_ctx });
    }
    if from.choice.reserve != to.choice.reserve {
        changes.push(Change::Reserve { from: reserve(from), to: reserve(to) });
    }
    if from.choice.images != to.choice.images {
        changes.push(Change::Images { from: from.choice.images, to: to.choice.images });
    }
    if from.choice.draft != to.choice.draft {
        changes.push(Change::Draft { from: from.choice.draft, to: to.choice.draft });
    }
    if let (Resident::Rest { floor }, Resident::Rest { floor: Bytes::ZERO }) =
        (from.choice.resident, to.choice.resident)
    {
        let budget = to.resident_budget.unwrap_or_default();
        if budget < floor {
            changes.push(Change::ResidentBudget { from: floor, to: budget });
        }
    }
    changes
}
