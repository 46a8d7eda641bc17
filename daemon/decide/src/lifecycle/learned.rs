//! What deaths for want of memory have taught: upper bounds of the knobs concerned, one step under what died.
//!
//! The lifecycle lowers one lever after each such death and gives the latest step up after a calm time of serving, one after
//! the other. [`Learned`] is plain data: the daemon stores it at each [`Action::StoreLearned`](super::Action::StoreLearned)
//! and begins with it at its next start, so that a restart of the daemon does not try what killed the machine before.
//! The [`Caps`] go into the planner beside the wish; here nobody plans.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis, Tokens};

use super::death::OomAccount;
use crate::plan::{CapLever, Caps};

/// The levers of each account, the first that can be lowered is: experts before the length of chats.
const HOST: [CapLever; 2] = [CapLever::ResidentBudget, CapLever::Context];
const VRAM: [CapLever; 4] = [CapLever::ExpertCache, CapLever::GpuLayers, CapLever::KvWindow, CapLever::Context];

/// One step down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lowered {
    /// Which account ran out.
    pub account: OomAccount,
    /// What was lowered for it.
    pub lever: CapLever,
    /// What died: bytes, tokens or layers, as the lever counts.
    pub from: u64,
    /// The most that is allowed since.
    pub to: u64,
}

/// All steps that hold, the oldest first, at most [`limits::MAX_LEARNED_STEPS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Learned {
    /// The steps.
    pub steps: Vec<Lowered>,
    /// Time of serving since the latest step, or since one was given up.
    pub calm: Millis,
}

impl Learned {
    /// The bounds that hold.
    pub fn caps(&self) -> Caps {
        self.steps.iter().fold(Caps::default(), |caps, step| caps.with(step.lever, step.to))
    }

    /// A plan ran out of an account: lowers one lever of `ours`, the knobs of that plan that may be lowered. `None`: nothing
    /// can be.
    pub fn lower(&mut self, account: OomAccount, ours: &Caps) -> Option<Lowered> {
        let levers: &[CapLever] = match account {
            OomAccount::Host => &HOST,
            OomAccount::Vram => &VRAM,
        };
        let step = levers.iter().find_map(|&lever| {
            let from = ours.get(lever)?;
            Some(Lowered { account, lever, from, to: step_under(lever, from)? })
        })?;
        // Many small steps of one lever: the earlier ones say nothing more than the latest.
        if self.steps.len() >= limits::MAX_LEARNED_STEPS {
            self.steps.remove(0);
        }
        self.steps.push(step);
        self.calm = Millis(0);
        Some(step)
    }

    /// The calm time is over: the latest step is given up.
    pub fn give_up(&mut self) -> Option<Lowered> {
        self.calm = Millis(0);
        self.steps.pop()
    }

    /// When the latest step is given up if a worker serves from `now` on.
    pub(super) fn calm_until(&self, now: Millis) -> Option<Millis> {
        let left = limits::LEARNED_CALM.since(self.calm);
        (!self.steps.is_empty()).then(|| now.saturating_add(left))
    }

    /// A worker served until now; its calm time would have been over at `calm_until`.
    pub(super) fn pause(&mut self, now: Millis, calm_until: Option<Millis>) {
        if let Some(until) = calm_until {
            self.calm = limits::LEARNED_CALM.since(until.since(now));
        }
    }
}

/// One step under what died; `None` at the end of the lever.
fn step_under(lever: CapLever, from: u64) -> Option<u64> {
    let power_under = |floor: Tokens| {
        let below = from.saturating_sub(1).checked_ilog2().map(|exponent| 1 << exponent);
        below.filter(|to| *to >= u64::from(floor.0))
    };
    match lever {
        CapLever::ResidentBudget | CapLever::ExpertCache => {
            let step = (from / limits::LEARNED_STEP_SHARE).max(limits::LEARNED_STEP_MIN.0);
            from.checked_sub(step).filter(|to| Bytes(*to) > Bytes::ZERO)
        }
        CapLever::GpuLayers => from.checked_sub((from / limits::LEARNED_STEP_SHARE).max(1)),
        CapLever::KvWindow => power_under(limits::KV_WINDOW_FLOOR),
        CapLever::Context => power_under(limits::AUTO_CONTEXT_FLOOR),
    }
}
