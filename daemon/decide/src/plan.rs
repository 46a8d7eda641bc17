//! Whether a model fits, with which knobs, and what to do when it does not.
//!
//! Inputs are the model's sizes (from its header alone), the machine's readings and the user's wish. This plan knows the
//! host account and chooses one knob, the context; whatever the user wrote is kept. When it does not fit, the refusal
//! says by how much, and offers each change that would make room, in order of price, each computed alone.

mod offers;

use plimsoll_config::config::{Config, KvType, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens, thousands};

use crate::ledger::{Account, AccountKind, Basis, Bounds, Entry, Ledger, Object, host_line};

pub use offers::{Change, Offer};

/// The sizes of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSizes {
    /// Its files, all parts together.
    pub file_bytes: Bytes,
    /// Weights that every token uses.
    pub dense_weights: Bytes,
    /// Its experts; `None` for a dense model.
    pub experts: Option<Experts>,
    /// The context it was trained for.
    pub n_ctx_train: Tokens,
    /// Keys and values, layer by layer.
    pub kv_layers: Vec<KvLayer>,
    /// Work buffers of the largest step. An estimate.
    pub activations: Bytes,
}

/// The experts of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// All layers together.
    pub bytes: Bytes,
    /// (layer, expert) pairs.
    pub n_experts: u32,
}

/// Keys and values of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayer {
    /// Bytes for one token as `f16`.
    pub f16: Bytes,
    /// As `q8_0`; `None` where a head is not made of whole blocks of 32.
    pub q8_0: Option<Bytes>,
    /// As `q4_0`; likewise.
    pub q4_0: Option<Bytes>,
    /// Tokens that the layer looks back; `None`: all.
    pub window: Option<Tokens>,
}

impl ModelSizes {
    /// Keys and values of one session of `n_ctx` tokens: the sum over layers of min(window, tokens) × bytes per token.
    /// `None` where a layer can't be stored in that type.
    pub fn kv_bytes(&self, kv_type: KvType, n_ctx: Tokens) -> Option<Bytes> {
        let of_layer = |layer: &KvLayer| {
            let per_token = match kv_type {
                KvType::F16 => Some(layer.f16),
                KvType::Q8_0 => layer.q8_0,
                KvType::Q4_0 => layer.q4_0,
            };
            let n_tokens = layer.window.map_or(n_ctx, |window| window.min(n_ctx));
            per_token.map(|bytes| bytes.saturating_mul(u64::from(n_tokens.0)))
        };
        self.kv_layers.iter().map(of_layer).sum()
    }
}

/// What the machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineReading {
    /// Memory that this group of processes may use: the smallest of the machine's and its cgroups'.
    pub host_limit: Bytes,
    /// Memory in use that can't be reclaimed and is not ours.
    pub host_foreign: Bytes,
    /// Programs that hold much of it, if they were looked for.
    pub programs: Vec<Program>,
}

/// A program of somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its process id.
    pub pid: u32,
    /// Its command.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// What would come back if it ended.
    pub bytes: Bytes,
}

/// What the user wants.
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
}

impl From<&Config> for Wish {
    fn from(config: &Config) -> Wish {
        Wish {
            context: config.context.tokens,
            kv_type: config.kv.kv_type,
            max_sessions: config.worker.max_sessions,
            host_line: config.host.line,
        }
    }
}

/// The knobs of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// Context of one session.
    pub n_ctx: Tokens,
    /// Storage of keys and values.
    pub kv_type: KvType,
    /// Sessions at once, each with a whole context.
    pub max_sessions: u32,
}

/// A plan that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The knobs.
    pub knobs: Knobs,
    /// What they cost.
    pub ledger: Ledger,
    /// What the user should know.
    pub notes: Vec<Note>,
}

/// Something that works, but not quite as one might think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The context is longer than what the model was trained for.
    ContextBeyondTraining {
        /// Asked for.
        n_ctx: Tokens,
        /// Trained for.
        n_ctx_train: Tokens,
    },
    /// `auto` took less than it would have liked.
    ContextReduced {
        /// Taken.
        n_ctx: Tokens,
        /// Liked.
        wanted: Tokens,
    },
    /// The line was written above what there is.
    LineAboveLimit {
        /// Written.
        line: Bytes,
        /// There is.
        limit: Bytes,
    },
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// This model's keys and values can't be stored in this type. No waiting changes that.
    KvTypeImpossible {
        /// The type.
        kv_type: KvType,
    },
    /// An account would be over its line. It may fit later.
    DoesNotFit(Box<Shortage>),
}

/// What is missing, and what would make room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The knobs that were tried last, the cheapest that the wish allows.
    pub knobs: Knobs,
    /// What they would cost.
    pub ledger: Ledger,
    /// The account that is over its line.
    pub account: AccountKind,
    /// By how much.
    pub shortfall: Bytes,
    /// Changes that free something, in order of price, each computed alone.
    pub offers: Vec<Offer>,
    /// What is still missing when every offer is taken; 0 if they are enough together.
    pub short_with_all: Bytes,
}

/// Makes the plan of one start.
///
/// # Errors
/// [`Refusal`]: the model can't be stored that way, or does not fit with any knobs that the wish allows.
pub fn plan(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Result<Plan, Refusal> {
    let contexts = contexts(model.n_ctx_train, wish.context);
    let mut refused = None;
    for n_ctx in &contexts {
        let knobs = Knobs { n_ctx: *n_ctx, kv_type: wish.kv_type, max_sessions: wish.max_sessions };
        let Some(ledger) = ledger(model, machine, wish.host_line, &knobs) else {
            return Err(Refusal::KvTypeImpossible { kv_type: wish.kv_type });
        };
        if ledger.fits() {
            return Ok(Plan { knobs, ledger, notes: notes(model, machine, wish, &knobs, contexts[0]) });
        }
        refused = Some((knobs, ledger));
    }
    let (knobs, ledger) = refused.expect("contexts() is never empty");
    Err(Refusal::DoesNotFit(Box::new(offers::shortage(model, machine, wish, knobs, ledger))))
}

/// What the knobs cost; `None` if the model's keys and values can't be stored in that type.
fn ledger(model: &ModelSizes, machine: &MachineReading, line: Setting<Bytes>, knobs: &Knobs) -> Option<Ledger> {
    let kv = model.kv_bytes(knobs.kv_type, knobs.n_ctx)?.saturating_mul(u64::from(knobs.max_sessions));
    let entry = |object, bytes, basis, detail: String| Entry { object, bytes, basis, detail };
    let mut own = vec![
        entry(Object::DenseWeights, model.dense_weights, Basis::Planned, String::new()),
        entry(
            Object::Kv,
            kv,
            Basis::Planned,
            format!("{} × {} tokens, {}", knobs.max_sessions, knobs.n_ctx, knobs.kv_type),
        ),
        entry(Object::Activations, model.activations, Basis::Estimated, "work buffers of the largest step".to_owned()),
        entry(Object::Service, limits::SERVICE_ESTIMATE, Basis::Estimated, "both processes beside tensors".to_owned()),
    ];
    if let Some(experts) = model.experts {
        let detail = format!("all {} experts", thousands(u64::from(experts.n_experts)));
        own.push(entry(Object::ExpertResident, experts.bytes, Basis::Planned, detail));
    }
    own.sort_by_key(|entry| (std::cmp::Reverse(entry.bytes), entry.object));
    own.push(entry(Object::Foreign, machine.host_foreign, Basis::Measured, "other programs".to_owned()));

    let bounds = Bounds { limit: machine.host_limit, line: host_line(machine.host_limit, line) };
    let file = entry(Object::ModelFile, model.file_bytes, Basis::Measured, "read once, then 0 B/token".to_owned());
    let host = Account { kind: AccountKind::Host, bounds: Some(bounds), entries: own };
    let disk = Account { kind: AccountKind::Disk, bounds: None, entries: vec![file] };
    Some(Ledger { accounts: vec![host, disk] })
}

/// The contexts to try, the largest first; never empty. What was written is the only one. `Auto` starts at what the model
/// was trained for, at most [`limits::AUTO_CONTEXT_CAP`], and goes down by powers of two to the floor.
fn contexts(n_ctx_train: Tokens, wish: Setting<Tokens>) -> Vec<Tokens> {
    match wish {
        Setting::Exactly(n_ctx) => vec![n_ctx],
        Setting::Auto => {
            let largest = n_ctx_train.min(limits::AUTO_CONTEXT_CAP);
            let mut contexts = vec![largest];
            contexts.extend(steps_below(largest));
            contexts
        }
    }
}

/// Powers of two under a context, the largest first, down to the floor.
fn steps_below(n_ctx: Tokens) -> impl Iterator<Item = Tokens> {
    let steps = (0..u32::BITS).rev().map(|exponent| Tokens(1 << exponent));
    steps.filter(move |step| *step < n_ctx && *step >= limits::AUTO_CONTEXT_FLOOR)
}

fn notes(model: &ModelSizes, machine: &MachineReading, wish: &Wish, knobs: &Knobs, wanted: Tokens) -> Vec<Note> {
    let mut notes = Vec::new();
    if knobs.n_ctx > model.n_ctx_train {
        notes.push(Note::ContextBeyondTraining { n_ctx: knobs.n_ctx, n_ctx_train: model.n_ctx_train });
    }
    if knobs.n_ctx < wanted {
        notes.push(Note::ContextReduced { n_ctx: knobs.n_ctx, wanted });
    }
    match wish.host_line {
        Setting::Exactly(line) if line > machine.host_limit => {
            notes.push(Note::LineAboveLimit { line, limit: machine.host_limit });
        }
        Setting::Exactly(_) | Setting::Auto => {}
    }
    notes
}
