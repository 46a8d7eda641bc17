//! From what the simulated sensors say to what the governor reads.

use super::super::lever::{Account, Card, Lever as SimLever, MAX_CARDS};
use super::super::policy::{CardFacts, Facts};
use super::super::sight::{Sight, WorkerReport};
use plimsoll_config::units::Bytes;
use plimsoll_decide::governor::{
    CardReading, DiskReading, HostReading, Lever, LeverReading, Sample, Timed, WorkerReading,
};
use plimsoll_decide::ledger::AccountId;

/// What is known of the worker beside its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// There is none.
    None,
    /// It loads, and will hold so much host memory.
    Loads {
        /// In all.
        bytes: Bytes,
        /// And of each card.
        cards: [Bytes; MAX_CARDS],
    },
    /// It serves; whether it has run a prompt yet.
    Serves {
        /// And so holds its prompt path on the cards.
        has_run: bool,
    },
}

/// The governor's name of an account.
pub(super) fn account_of(account: Account) -> AccountId {
    match account {
        Account::Host => AccountId::Host,
        Account::Vram(card) => AccountId::Vram(u32::from(card.0)),
    }
}

/// The governor's name of a lever.
fn lever_of(lever: SimLever) -> Lever {
    match lever {
        SimLever::PrefixCache => Lever::PrefixCache,
        SimLever::ResidentBudget => Lever::ResidentBudget,
        SimLever::KvCapacity => Lever::KvCapacity,
        SimLever::KvWindow(_) => Lever::KvWindow,
        SimLever::ExpertCache(_) => Lever::ExpertCache,
        SimLever::GpuLayers(_) => Lever::GpuLayers,
        SimLever::Draft(_) => Lever::Draft,
    }
}

/// The simulator's name of a lever.
pub(super) fn sim_lever(facts: &Facts, lever: Lever, account: AccountId) -> Option<SimLever> {
    let same = |fact: &&super::super::lever::LeverFacts| {
        lever_of(fact.lever) == lever && account_of(fact.lever.account()) == account
    };
    facts.levers.iter().find(same).map(|fact| fact.lever)
}

/// All readings in the governor's words.
pub(super) fn sample(facts: &Facts, sight: &Sight, life: Life) -> Sample {
    let host = sight.host.map(|reading| Timed {
        at: reading.taken_at,
        value: HostReading {
            free: Bytes(reading.value.headroom().max(0) as u64),
            room: reading.value.room_to_line(),
            swap_used: reading.value.swap_used,
            refaults_per_second: reading.value.refaults_per_s,
            stalled_permille: reading.value.psi_some_permille,
        },
    });
    let cards = sight.cards.iter().enumerate().filter_map(|(index, reading)| {
        let reading = (*reading)?;
        Some(Timed { at: reading.taken_at, value: CardReading { index: index as u32, free: reading.value.free } })
    });
    let disk = sight.host.map(|reading| Timed {
        at: reading.taken_at,
        value: DiskReading { per_token: reading.value.disk_bytes_per_token },
    });
    Sample { host, cards: cards.collect(), disk, worker: worker(facts, sight, life) }
}

fn worker(facts: &Facts, sight: &Sight, life: Life) -> Option<Timed<WorkerReading>> {
    match life {
        Life::None => None,
        Life::Loads { bytes, cards } => {
            let host = sight.host?;
            let left = bytes.saturating_sub(host.value.ours);
            // All parts arrive together.
            let share =
                |all: Bytes| Bytes((u128::from(all.0) * u128::from(left.0) / u128::from(bytes.0.max(1))) as u64);
            let on_card = |card: &CardFacts| (account_of(Account::Vram(card.card)), share(cards[card.card.index()]));
            let to_load = facts.cards.iter().map(on_card).chain([(AccountId::Host, left)]).collect();
            Some(Timed { at: host.taken_at, value: WorkerReading { levers: Vec::new(), to_load, work: Vec::new() } })
        }
        Life::Serves { has_run } => {
            let report = sight.worker?;
            let work = facts.cards.iter().filter(|_| has_run);
            let value = WorkerReading {
                levers: levers(facts, &report.value),
                to_load: Vec::new(),
                work: work.map(|card| (account_of(Account::Vram(card.card)), card.prompt_path)).collect(),
            };
            Some(Timed { at: report.taken_at, value })
        }
    }
}

fn levers(facts: &Facts, report: &WorkerReport) -> Vec<LeverReading> {
    let reading = |fact: &super::super::lever::LeverFacts| LeverReading {
        lever: lever_of(fact.lever),
        account: account_of(fact.lever.account()),
        now: report.positions.get(fact.lever),
        held: report.held.get(fact.lever),
        floor: fact.floor,
        home: fact.home,
        ceiling: fact.home,
    };
    facts.levers.iter().map(reading).collect()
}

/// Bytes of each card that shall be free before a prompt runs: the line, and what the prompt takes.
pub(super) fn vram_line(facts: &Facts) -> Bytes {
    facts.cards.iter().map(|card| card.request_line.saturating_add(card.prompt_path)).max().unwrap_or_default()
}

/// The card of an account.
#[must_use]
pub(super) fn card_of(account: Account) -> Option<Card> {
    match account {
        Account::Host => None,
        Account::Vram(card) => Some(card),
    }
}
