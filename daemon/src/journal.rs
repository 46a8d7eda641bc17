//! What is kept of each request so that another worker can continue its answer: prompt ids, sampling with the seed, ids so far.
//!
//! The supervisor writes it, the answer's task reads it through a `watch` channel: a slow reader never holds the engine back,
//! and the bytes are bounded by the context. It lives as long as the request.

use plimsoll_config::units::Millis;
use plimsoll_decide::admission::{ClientId, DenyReason};
use plimsoll_decide::lifecycle::RequestsEnd;
use plimsoll_wire::{Finish, Submit, Timing};

/// How the next token is chosen. The seed is apart: it is drawn last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sampling {
    /// 0 = greedy.
    pub(crate) temperature: f32,
    /// 0 = all.
    pub(crate) top_k: u32,
    /// 1 = all.
    pub(crate) top_p: f32,
    /// 0 = all.
    pub(crate) min_p: f32,
    /// 1 = off.
    pub(crate) repeat_penalty: f32,
    /// How far back the penalty looks, in tokens.
    pub(crate) repeat_last_n: u32,
}

impl Default for Sampling {
    /// What the local servers that clients were tuned with use; small models wander at temperature 1 without a cut.
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1.0, repeat_last_n: 64 }
    }
}

/// The part of a request that never changes.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Who asks.
    pub(crate) client: ClientId,
    /// How long it wants to wait for its turn; for ever if it does not say.
    pub(crate) wait: Option<Millis>,
    /// Prompt token ids; not empty.
    pub(crate) prompt: Vec<u32>,
    /// How to sample.
    pub(crate) sampling: Sampling,
    /// The seed asked for or drawn.
    pub(crate) seed: u64,
    /// Most tokens in the answer.
    pub(crate) max_tokens: u32,
}

/// The part that grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// Ids of the answer so far.
    pub(crate) ids: Vec<u32>,
    /// How it ended, once it has.
    pub(crate) end: Option<End>,
}

/// The one end of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// The engine is done with it.
    Finished(Finish, Timing),
    /// It can't be answered.
    Failed(Failure),
}

/// Why a request can't be answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// Refused.
    Denied(DenyReason),
    /// It ended with its worker.
    Ended(RequestsEnd),
    /// The engine says that the request itself is impossible.
    Impossible(String),
    /// The engine failed it.
    Engine(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Denied(reason) => write!(f, "{reason}"),
            Self::Ended(end) => write!(f, "{end}"),
            Self::Impossible(why) | Self::Engine(why) => write!(f, "{why}"),
        }
    }
}

impl Order {
    /// The frame that starts or continues this request on a worker.
    pub(crate) fn submit(&self, request: u64, generated: &[u32]) -> Submit {
        Submit {
            request,
            prompt: self.prompt.clone(),
            generated: generated.to_vec(),
            sampling: plimsoll_wire::Sampling {
                temperature: self.sampling.temperature,
                top_k: self.sampling.top_k,
                top_p: self.sampling.top_p,
                min_p: self.sampling.min_p,
                repeat_penalty: self.sampling.repeat_penalty,
                repeat_last_n: self.sampling.repeat_last_n,
                seed: self.seed,
            },
            max_tokens: self.max_tokens,
        }
    }
}
