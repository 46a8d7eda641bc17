//! What the user wants. A value that was written is kept or refused; `Auto` is the planner's to choose.

use plimsoll_config::config::{Config, KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens};

/// What the user wants, and what this build can do for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Context of one session.
    pub context: Setting<Tokens>,
    /// Storage of keys and values.
    pub kv_type: KvType,
    /// Sessions at once.
    pub max_sessions: u32,
    /// The host line.
    pub host_line: Setting<Bytes>,
    /// Whether sessions share one context's keys and values.
    pub kv_sharing: KvSharing,
    /// Tokens of keys and values on the card, while all of them are in host memory. `None`: this build keeps them in one
    /// place, the card where there is one.
    pub kv_window: Option<Setting<Tokens>>,
    /// Experts held in host memory; the others stay in the file. `None`: this build reads no expert on demand and holds
    /// all of them.
    pub resident_budget: Option<Setting<Bytes>>,
    /// What stays free of the card when the expert cache is sized.
    pub reserve: Setting<Bytes>,
    /// Layers of a dense model on the card.
    pub gpu_layers: Setting<u32>,
    /// Where images are read, if the model reads any.
    pub images: Setting<Images>,
    /// The vocabulary that is drafted from, where there is speculation.
    pub draft: Setting<Draft>,
    /// For use or for measuring.
    pub mode: Mode,
    /// What to do under the expert cache's floor.
    pub policy: Policy,
}

impl From<&Config> for Wish {
    fn from(config: &Config) -> Wish {
        Wish {
            context: config.context.tokens,
            kv_type: config.kv.kv_type,
            max_sessions: config.worker.max_sessions,
            host_line: config.host.line,
            kv_sharing: KvSharing::Each,
            kv_window: None,
            resident_budget: None,
            reserve: Setting::Auto,
            gpu_layers: Setting::Auto,
            images: Setting::Auto,
            draft: Setting::Auto,
            mode: Mode::Stable,
            policy: Policy::Wait,
        }
    }
}

/// How sessions hold their keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvSharing {
    /// Each session has a whole context of its own.
    Each,
    /// All sessions share one context: one long or many short ones.
    Shared,
}

/// What is planned for. The two are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Daily use: the reserve is what the card needs.
    Stable,
    /// Measuring: the reserve is the same on every machine, and nothing moves while figures are taken.
    Benchmark,
}

impl Mode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stable => "stable",
            Mode::Benchmark => "benchmark",
        }
    }
}

/// What to do when a start would be under its floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Refuse.
    Strict,
    /// Refuse, and look again until there is room.
    Wait,
    /// Start with one expert at least, marked dirty, and grow.
    Adapt,
}

/// Where images are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// On the card.
    Card,
    /// On the CPU.
    Cpu,
}

impl Images {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Images::Card => "card",
            Images::Cpu => "cpu",
        }
    }
}

/// The vocabulary that is drafted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draft {
    /// All of it.
    Full,
    /// English only.
    Small,
}

impl Draft {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Draft::Full => "full",
            Draft::Small => "en",
        }
    }
}
