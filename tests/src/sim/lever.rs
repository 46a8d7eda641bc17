//! Accounts, levers and their positions: the nouns that policies, worker, world and checker share.

use super::number;
use plimsoll_config::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most cards of a world.
pub const MAX_CARDS: usize = 2;

/// A card, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Card(pub u8);

impl Card {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Where bytes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Host memory.
    Host,
    /// Memory of one card.
    Vram(Card),
}

impl Account {
    /// How many accounts there can be.
    pub const COUNT: usize = 1 + MAX_CARDS;

    /// A number in `0..COUNT`.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Account::Host => 0,
            Account::Vram(card) => 1 + card.index(),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::Host => write!(f, "host"),
            Account::Vram(card) => write!(f, "vram{}", card.0),
        }
    }
}

/// One knob of the worker. Its position is a number of bytes in its one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lever {
    /// Prompts kept for reuse. Lower: more prefill.
    PrefixCache,
    /// Experts held in RAM. Lower: more reads from the file.
    ResidentBudget,
    /// Host bytes of KV for all sessions. Lower: fewer or shorter requests at a time; running ones keep theirs until they end.
    KvCapacity,
    /// KV blocks held in VRAM beside their home in the host. Lower: attention streams more.
    KvWindow(Card),
    /// Experts held in VRAM, filled in profile order.
    ExpertCache(Card),
    /// Dense layers held in VRAM.
    GpuLayers(Card),
    /// The drafting model: wholly there or not at all (`home` or 0).
    Draft(Card),
}

impl Lever {
    /// How many levers there can be.
    pub const COUNT: usize = 3 + 4 * MAX_CARDS;

    /// A number in `0..COUNT`.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Lever::PrefixCache => 0,
            Lever::ResidentBudget => 1,
            Lever::KvCapacity => 2,
            Lever::KvWindow(card) => 3 + 4 * card.index(),
            Lever::ExpertCache(card) => 4 + 4 * card.index(),
            Lever::GpuLayers(card) => 5 + 4 * card.index(),
            Lever::Draft(card) => 6 + 4 * card.index(),
        }
    }

    /// The account whose bytes it moves.
    #[must_use]
    pub fn account(self) -> Account {
        match self {
            Lever::PrefixCache | Lever::ResidentBudget | Lever::KvCapacity => Account::Host,
            Lever::KvWindow(card) | Lever::ExpertCache(card) | Lever::GpuLayers(card) | Lever::Draft(card) => {
                Account::Vram(card)
            }
        }
    }
}

impl fmt::Display for Lever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lever::PrefixCache => write!(f, "prefix_cache"),
            Lever::ResidentBudget => write!(f, "resident_budget"),
            Lever::KvCapacity => write!(f, "kv_capacity"),
            Lever::KvWindow(card) => write!(f, "kv_window{}", card.0),
            Lever::ExpertCache(card) => write!(f, "expert_cache{}", card.0),
            Lever::GpuLayers(card) => write!(f, "gpu_layers{}", card.0),
            Lever::Draft(card) => write!(f, "draft{}", card.0),
        }
    }
}

/// Bytes by lever; 0 for a lever that the world does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Positions(#[serde(with = "number::list")] [Bytes; Lever::COUNT]);

impl Positions {
    /// The bytes of one lever.
    #[must_use]
    pub fn get(&self, lever: Lever) -> Bytes {
        self.0[lever.index()]
    }

    /// Puts one lever.
    pub fn set(&mut self, lever: Lever, bytes: Bytes) {
        self.0[lever.index()] = bytes;
    }
}

/// One lever of this world, as model and configuration give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeverFacts {
    /// Which.
    pub lever: Lever,
    /// Lowest position.
    #[serde(with = "number")]
    pub floor: Bytes,
    /// Highest position: where it stands when nothing presses.
    #[serde(with = "number")]
    pub home: Bytes,
}
