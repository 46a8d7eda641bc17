//! The plan of a start: where each lever stands, from what is free.
//!
//! The planner of `decide` works on a model's header and a machine; a simulated world has only levers with bytes, so the
//! simulator's own small planner does it, with room to breathe and under the bounds that were learned.

use super::super::lever::{Account, Lever, MAX_CARDS, Positions};
use super::super::plan::{self, Room};
use super::super::policy::Facts;
use super::super::sight::Sight;
use super::Life;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::least::Least;
use plimsoll_decide::plan::{CapLever, Caps};

/// What each card would have free without a worker, at least, over the last minute.
pub(super) type Leasts = [Least; MAX_CARDS];

/// Takes in what the cards say: nothing while a worker loads or its memory comes back, when nobody knows what is whose.
pub(super) fn note(leasts: &mut Leasts, facts: &Facts, sight: &Sight, life: Life) {
    for card in &facts.cards {
        let Some(reading) = sight.cards.get(card.card.index()).copied().flatten() else { continue };
        let held = match (life, sight.worker) {
            (Life::None, _) => Bytes::ZERO,
            (Life::Serves { has_run }, Some(report)) => {
                let levers = facts.levers.iter().filter(|fact| fact.lever.account() == Account::Vram(card.card));
                let prompt = if has_run { card.prompt_path } else { Bytes::ZERO };
                let beside = card.fixed.saturating_add(prompt);
                levers.map(|fact| report.value.held.get(fact.lever)).sum::<Bytes>().saturating_add(beside)
            }
            (Life::Loads { .. }, _) | (Life::Serves { .. }, None) => continue,
        };
        leasts[card.card.index()].note(reading.taken_at, reading.value.free.saturating_add(held).0 as i64);
    }
}

/// Where the levers would stand now.
///
/// # Errors
/// What is missing, for a person.
pub(super) fn knobs(
    facts: &Facts,
    sight: &Sight,
    leasts: &Leasts,
    now: Millis,
    caps: &Caps,
) -> Result<Positions, String> {
    let is_old = |account| sight.taken_at(account).is_none_or(|at| now.since(at) > limits::GPU_READING_MAX_AGE);
    let mut accounts = facts.cards.iter().map(|card| Account::Vram(card.card)).chain([Account::Host]);
    if let Some(account) = accounts.find(|account| is_old(*account)) {
        return Err(format!("{account} can't be read"));
    }
    let Room(mut room) = plan::room(facts, sight).ok_or("no reading yet")?;
    room[Account::Host.index()] -= limits::HOST_BREATH.0 as i64;
    for card in &facts.cards {
        let room = &mut room[Account::Vram(card.card).index()];
        if let Some(least) = leasts[card.card.index()].get(now) {
            *room = (*room).min(least - plan::beside(card).0 as i64);
        }
        *room -= limits::VRAM_BREATH.0 as i64;
    }
    let mut bounded = facts.clone();
    for fact in &mut bounded.levers {
        fact.home = cap(caps, facts, fact.lever).map_or(fact.home, |cap| fact.home.min(cap.max(fact.floor)));
    }
    plan::fit(&bounded, &Room(room)).ok_or_else(|| "the least that works does not fit".to_owned())
}

/// The bound that was learned for a lever, in bytes.
fn cap(caps: &Caps, facts: &Facts, lever: Lever) -> Option<Bytes> {
    let tokens = |n: u64| Bytes(n.saturating_mul(facts.kv_per_token.0));
    match lever {
        Lever::ResidentBudget => caps.get(CapLever::ResidentBudget).map(Bytes),
        Lever::ExpertCache(_) | Lever::GpuLayers(_) => caps.get(CapLever::ExpertCache).map(Bytes),
        Lever::KvCapacity => caps.get(CapLever::Context).map(tokens),
        Lever::KvWindow(_) => caps.get(CapLever::KvWindow).map(tokens),
        Lever::PrefixCache | Lever::Draft(_) => None,
    }
}

/// What may be lowered after a death, and where it stands.
pub(super) fn ours(facts: &Facts, knobs: &Positions) -> Caps {
    let above_floor = facts.levers.iter().filter(|fact| knobs.get(fact.lever) > fact.floor);
    above_floor.fold(Caps::default(), |caps, fact| {
        let bytes = knobs.get(fact.lever).0;
        let tokens = bytes / facts.kv_per_token.0.max(1);
        match fact.lever {
            Lever::ResidentBudget => caps.with(CapLever::ResidentBudget, bytes),
            Lever::ExpertCache(_) | Lever::GpuLayers(_) => caps.with(CapLever::ExpertCache, bytes),
            Lever::KvCapacity => caps.with(CapLever::Context, tokens),
            Lever::KvWindow(_) => caps.with(CapLever::KvWindow, tokens),
            Lever::PrefixCache | Lever::Draft(_) => caps,
        }
    })
}

/// A number for where the levers stand: the same places have the same number.
pub(super) fn number(facts: &Facts, knobs: &Positions) -> u64 {
    // FNV-1a: no security, only "the same or not".
    let bytes = facts.levers.iter().flat_map(|fact| knobs.get(fact.lever).0.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
