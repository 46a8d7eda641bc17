//! The levers, and the ladder: in which order they are pulled.

use plimsoll_config::units::Bytes;

use crate::ledger::AccountId;

/// A knob of a serving worker that frees or gives back bytes of one account. Its position is the bytes that it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lever {
    /// Finished prompts and idle sessions.
    PrefixCache,
    /// Experts held on a card. The reserve is its other side: what the one gives up, the other has.
    ExpertCache,
    /// Layers of a dense model on a card.
    GpuLayers,
    /// Keys and values kept on a card; all of them are in host memory too.
    KvWindow,
    /// Experts held in host memory.
    ResidentBudget,
    /// The drafting layer's head.
    Draft,
    /// Keys and values that new work may take. What runs keeps its own.
    KvCapacity,
    /// The type of keys and values of new sequences, as the bytes that a full capacity takes in it. Changes answers.
    KvType,
}

impl Lever {
    /// One word, as metrics, logs and `ctl levers` write it.
    pub fn name(self) -> &'static str {
        match self {
            Lever::PrefixCache => "prefix_cache",
            Lever::ExpertCache => "expert_cache",
            Lever::GpuLayers => "gpu_layers",
            Lever::KvWindow => "kv_window",
            Lever::ResidentBudget => "resident_budget",
            Lever::Draft => "draft",
            Lever::KvCapacity => "kv_capacity",
            Lever::KvType => "kv_type",
        }
    }

    /// Whether it is either at home or at its floor, with nothing between.
    pub fn is_whole(self) -> bool {
        match self {
            Lever::Draft | Lever::KvType => true,
            Lever::PrefixCache
            | Lever::ExpertCache
            | Lever::GpuLayers
            | Lever::KvWindow
            | Lever::ResidentBudget
            | Lever::KvCapacity => false,
        }
    }
}

/// How pressing it is: how dear a lever may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Something cheap is worth it.
    Soon,
    /// Any lever.
    Now,
}

/// Whose memory a rule or a lever is about. The account of files has no lever of its own: its pressure is answered by the
/// host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Host memory.
    Host,
    /// A card's.
    Vram,
}

/// One rung of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// Which lever.
    pub lever: Lever,
    /// Whose bytes it frees.
    pub kind: Kind,
    /// From which urgency on.
    pub from: Urgency,
    /// What it costs, for a person.
    pub price: &'static str,
}

/// The ladder, cheapest first; recovery goes the other way. What only moves data between tiers comes before what shortens
/// chats, and what changes answers is the last.
pub const LADDER: [Rung; 8] = [
    Rung {
        lever: Lever::PrefixCache,
        kind: Kind::Host,
        from: Urgency::Soon,
        price: "a next turn reads its chat again",
    },
    Rung { lever: Lever::ExpertCache, kind: Kind::Vram, from: Urgency::Now, price: "some speed" },
    Rung { lever: Lever::GpuLayers, kind: Kind::Vram, from: Urgency::Now, price: "speed, a layer at a time" },
    Rung { lever: Lever::KvWindow, kind: Kind::Vram, from: Urgency::Now, price: "speed of long chats" },
    Rung { lever: Lever::ResidentBudget, kind: Kind::Host, from: Urgency::Now, price: "experts read from the file" },
    Rung { lever: Lever::Draft, kind: Kind::Vram, from: Urgency::Now, price: "no drafting" },
    Rung { lever: Lever::KvCapacity, kind: Kind::Host, from: Urgency::Now, price: "shorter chats for new work" },
    Rung { lever: Lever::KvType, kind: Kind::Host, from: Urgency::Now, price: "quality of new chats" },
];

/// Where a lever of the worker stands. A lever that the model or the build does not have is absent, not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeverReading {
    /// Which one.
    pub lever: Lever,
    /// Whose bytes.
    pub account: AccountId,
    /// Where it stands: the most that it may hold.
    pub now: Bytes,
    /// What it holds: less while it fills, more where it did not free what it was told to.
    pub held: Bytes,
    /// The least it can work with.
    pub floor: Bytes,
    /// What the plan wants.
    pub home: Bytes,
    /// The most that it could use: all experts, all layers.
    pub ceiling: Bytes,
}
