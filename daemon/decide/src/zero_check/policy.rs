//! What to do with the verdicts: start, start dirty, wait, or refuse.
//!
//! | verdict   | strict                   | wait                 | adapt                          |
//! |-----------|--------------------------|----------------------|--------------------------------|
//! | clean     | start                    | start                | start                          |
//! | releasing | wait for the release     | wait                 | wait for the release           |
//! | dirty     | refuse                   | wait, then refuse    | start with what is left        |
//! | blind     | refuse                   | wait, then refuse    | wait, then refuse              |
//!
//! Our own memory on its way back is no dirt: every policy gives it [`limits::RELEASE_TIMEOUT`], because it is a matter of
//! a second and a plan made before it would be a bad one. Nobody plans for a card of which nothing is known.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use super::{Baseline, Verdict};
use crate::gpu::Gpu;
use crate::plan::Policy;
use crate::text::mib;

/// One card with its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Which card.
    pub gpu: Gpu,
    /// What it is.
    pub verdict: Verdict,
}

/// When a start was asked for, and how long it may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// When.
    pub at: Millis,
    /// How long; [`limits::START_WAIT`] by default.
    pub wait: Millis,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Plan and start.
    Start {
        /// Baselines to be stored.
        store: Vec<Baseline>,
    },
    /// Plan for what there is, start, and mark the run dirty: it says nothing about the configuration.
    StartDirty {
        /// For the log.
        words: String,
    },
    /// Look again soon.
    Wait {
        /// When it is refused if nothing changes.
        until: Millis,
        /// One line.
        progress: String,
    },
    /// Not now. A later look may say otherwise.
    Refuse {
        /// All of it.
        words: String,
    },
}

/// Decides on one start. Without a card there is nothing to be clean: it starts.
pub fn decide(now: Millis, policy: Policy, asked: Asked, cards: &[Checked]) -> Outcome {
    let Some(worst) = cards.iter().max_by_key(|card| card.verdict.rank()) else {
        return Outcome::Start { store: Vec::new() };
    };
    let patience_until = asked.at.saturating_add(asked.wait);
    let last_to_leave = cards.iter().flat_map(|card| card.verdict.leaving()).map(|worker| worker.since).max();
    let release_until = last_to_leave.map_or(Millis(0), |since| since.saturating_add(limits::RELEASE_TIMEOUT));
    let wait_or_refuse = |until: Millis| match now < until {
        true => Outcome::Wait { until, progress: progress(now, until, cards) },
        false => Outcome::Refuse { words: format!("{}{}", not_clean(now, cards), advice(&worst.verdict)) },
    };
    match (&worst.verdict, policy) {
        (Verdict::Clean(_), Policy::Strict | Policy::Wait | Policy::Adapt) => Outcome::Start { store: to_store(cards) },
        (Verdict::Releasing(_), Policy::Strict) => wait_or_refuse(release_until),
        (Verdict::Releasing(_), Policy::Wait) => wait_or_refuse(release_until.max(patience_until)),
        (Verdict::Releasing(_) | Verdict::Dirty(_), Policy::Adapt) if now < release_until => {
            wait_or_refuse(release_until)
        }
        (Verdict::Releasing(_) | Verdict::Dirty(_), Policy::Adapt) => {
            Outcome::StartDirty { words: not_clean(now, cards) }
        }
        (Verdict::Dirty(_), Policy::Wait) | (Verdict::Blind(_), Policy::Wait | Policy::Adapt) => {
            wait_or_refuse(patience_until)
        }
        (Verdict::Dirty(_) | Verdict::Blind(_), Policy::Strict) => wait_or_refuse(now),
    }
}

/// One line: how long, and for what.
fn progress(now: Millis, until: Millis, cards: &[Checked]) -> String {
    let lines: Vec<String> = cards.iter().filter_map(|card| awaited(now, card)).collect();
    format!("waiting, {} s left: {}", until.since(now).secs_rounded_up(), lines.join("; "))
}

/// What one card is waited for; `None` for a clean one.
fn awaited(now: Millis, card: &Checked) -> Option<String> {
    let gpu = &card.gpu;
    match &card.verdict {
        Verdict::Clean(_) => None,
        Verdict::Releasing(releasing) => {
            let workers: Vec<String> = releasing.leaving.iter().map(|worker| worker.words(now)).collect();
            Some(format!("{gpu} is releasing: {}", workers.join(", ")))
        }
        Verdict::Dirty(dirty) => {
            let names: Vec<String> = dirty.culprits.iter().map(|culprit| culprit.process.to_string()).collect();
            let who = if names.is_empty() { "nobody that the driver names".to_owned() } else { names.join(", ") };
            Some(format!("{gpu} is dirty by {} MiB, held by {who}", mib(dirty.over)))
        }
        Verdict::Blind(why) => Some(format!("{gpu} is blind: {why}")),
    }
}

/// The words of every card that is not clean.
fn not_clean(now: Millis, cards: &[Checked]) -> String {
    let is_clean = |card: &&Checked| match card.verdict {
        Verdict::Clean(_) => true,
        Verdict::Releasing(_) | Verdict::Dirty(_) | Verdict::Blind(_) => false,
    };
    cards.iter().filter(|card| !is_clean(card)).map(|card| card.verdict.words(now, &card.gpu)).collect()
}

/// What the user can do about the worst of them.
fn advice(worst: &Verdict) -> &'static str {
    match worst {
        Verdict::Clean(_) => "",
        Verdict::Releasing(_) => "No start while a worker of ours holds the card: it starts when that is gone.\n",
        Verdict::Dirty(_) => {
            "No start on a dirty card: close what is named, or start with the policy adapt, which plans for what is left and \
             marks the run dirty.\n"
        }
        Verdict::Blind(_) => "No start on a card that can't be seen: it starts when the driver answers.\n",
    }
}

fn to_store(cards: &[Checked]) -> Vec<Baseline> {
    let of_card = |card: &Checked| match &card.verdict {
        Verdict::Clean(clean) => clean.store.clone(),
        Verdict::Releasing(_) | Verdict::Dirty(_) | Verdict::Blind(_) => None,
    };
    cards.iter().filter_map(of_card).collect()
}
