//! From a wish to a loaded engine on the CPU: the one way in, for `serve` and for the offline commands.

use crate::engine::{Engine, EngineOptions};
use crate::exit::ExitCode;
use crate::load::{LoadError, LoadProgress};
use crate::schedule::Bounds;
use plimsoll_config::limits::{MAX_CONTEXT, MAX_PREFILL_CHUNK, MAX_SESSIONS, MAX_THREADS, MAX_WAITING};
use plimsoll_kernels::backend::{BackendError, KvType};
use plimsoll_kernels::cpu::{Cpu, CpuOptions, Simd};
use plimsoll_model::facts::ModelFacts;
use plimsoll_model::file::{ModelFile, OpenError};
use plimsoll_model::tokenizer::Tokenizer;
use plimsoll_wire::{LoadErrorClass, Start};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// Why there is no engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// No model file where it was looked for.
    ModelMissing(String),
    /// The file is damaged, or of a kind this build does not know.
    BadModel(String),
    /// A knob is impossible.
    BadPlan(String),
    /// Memory could not be had.
    OutOfMemory(String),
    /// Reading failed.
    Io(String),
    /// Stopped from outside.
    Stopped,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModelMissing(s) | Self::BadModel(s) | Self::BadPlan(s) | Self::OutOfMemory(s) | Self::Io(s) => {
                write!(f, "{s}")
            }
            Self::Stopped => write!(f, "the load was stopped"),
        }
    }
}

impl std::error::Error for StartError {}

impl StartError {
    /// As the daemon hears it.
    pub fn class(&self) -> LoadErrorClass {
        match self {
            Self::ModelMissing(_) => LoadErrorClass::ModelMissing,
            Self::BadModel(_) => LoadErrorClass::BadModel,
            Self::BadPlan(_) => LoadErrorClass::BadPlan,
            Self::OutOfMemory(_) => LoadErrorClass::OutOfMemory,
            Self::Io(_) | Self::Stopped => LoadErrorClass::Io,
        }
    }

    /// As the system sees it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::ModelMissing(_) => ExitCode::ModelMissing,
            Self::BadModel(_) => ExitCode::BadModel,
            Self::BadPlan(_) => ExitCode::Configuration,
            Self::OutOfMemory(_) => ExitCode::DoesNotFit,
            Self::Io(_) => ExitCode::System,
            Self::Stopped => ExitCode::Ok,
        }
    }
}

/// The knobs of one start, each possible in itself. Whether the model can have them, [`load`] sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The model file, or the first part of a split one.
    pub model_path: PathBuf,
    /// Context of one session, in tokens.
    pub n_ctx_tokens: u32,
    /// Sessions that may run at once.
    pub max_sessions: u32,
    /// Storage of K and V.
    pub kv_type: KvType,
    /// Compute threads.
    pub n_threads: u32,
    /// Most prompt tokens in one step.
    pub prefill_chunk_tokens: u32,
    /// Instruction set.
    pub simd: Simd,
}

impl Plan {
    /// From the daemon's frame.
    ///
    /// # Errors
    /// [`StartError::BadPlan`], naming the knob, its value and what is possible.
    pub fn from_start(start: &Start) -> Result<Self, StartError> {
        let plan = Self {
            model_path: PathBuf::from(&start.model_path),
            n_ctx_tokens: start.n_ctx_tokens,
            max_sessions: start.max_sessions,
            kv_type: parse_kv_type(&start.kv_type)?,
            n_threads: start.n_threads,
            prefill_chunk_tokens: start.prefill_chunk_tokens,
            simd: Simd::Auto,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Checks each count against its bound.
    ///
    /// # Errors
    /// As [`Plan::from_start`].
    pub fn check(&self) -> Result<(), StartError> {
        let rows = [
            ("n_threads", self.n_threads, MAX_THREADS),
            ("max_sessions", self.max_sessions, MAX_SESSIONS),
            ("prefill_chunk_tokens", self.prefill_chunk_tokens, MAX_PREFILL_CHUNK),
            ("n_ctx_tokens", self.n_ctx_tokens, MAX_CONTEXT.0),
        ];
        match rows.into_iter().find(|&(_, value, max)| value == 0 || value > max) {
            Some((knob, value, max)) => {
                Err(StartError::BadPlan(format!("{knob} is {value}; it must be from 1 to {max}")))
            }
            None => Ok(()),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            max_sessions: self.max_sessions as usize,
            max_waiting: MAX_WAITING as usize,
            prefill_tokens: self.prefill_chunk_tokens,
        }
    }
}

/// Reads `f16`, `q8_0` or `q4_0`.
///
/// # Errors
/// [`StartError::BadPlan`] for anything else.
pub fn parse_kv_type(text: &str) -> Result<KvType, StartError> {
    match text {
        "f16" => Ok(KvType::F16),
        "q8_0" => Ok(KvType::Q8_0),
        "q4_0" => Ok(KvType::Q4_0),
        other => Err(StartError::BadPlan(format!("kv_type is `{other}`; it must be f16, q8_0 or q4_0"))),
    }
}

/// A file that was opened and understood, without its weights on a device yet.
pub struct OpenModel {
    /// The mapped file.
    pub file: ModelFile,
    /// The sizes of everything in it.
    pub facts: ModelFacts,
}

impl OpenModel {
    /// Maps the file and reads its header.
    ///
    /// # Errors
    /// [`StartError::ModelMissing`], [`StartError::BadModel`] or [`StartError::Io`], with the path in the sentence.
    pub fn open(path: &std::path::Path) -> Result<Self, StartError> {
        let file = ModelFile::open(path).map_err(|error| {
            let words = error.to_string();
            match error {
                OpenError::Missing { .. } => StartError::ModelMissing(words),
                OpenError::Io { .. } => StartError::Io(words),
                OpenError::Gguf { .. } | OpenError::Parts { .. } => StartError::BadModel(words),
            }
        })?;
        let facts = ModelFacts::from_header(file.header())
            .map_err(|error| StartError::BadModel(format!("{}: {error}", path.display())))?;
        Ok(Self { file, facts })
    }

    /// The file's tokenizer.
    ///
    /// # Errors
    /// [`StartError::BadModel`].
    pub fn tokenizer(&self) -> Result<Tokenizer, StartError> {
        Tokenizer::from_header(self.file.header()).map_err(|error| StartError::BadModel(error.to_string()))
    }
}

/// What a load gives.
pub struct Loaded {
    /// The engine.
    pub engine: Engine<Cpu>,
    /// The scheduler's bounds, for which the engine's buffers were made.
    pub bounds: Bounds,
    /// Ids that end an answer.
    pub end_ids: BTreeSet<u32>,
}

/// Loads the plan's model.
///
/// # Errors
/// [`StartError`].
pub fn load(plan: &Plan, progress: &mut LoadProgress<'_>) -> Result<Loaded, StartError> {
    let model = OpenModel::open(&plan.model_path)?;
    let tokenizer = model.tokenizer()?;
    let end_ids = tokenizer.end_of_generation().iter().copied().collect();
    let engine = load_engine(&model, plan, progress)?;
    Ok(Loaded { engine, bounds: plan.bounds(), end_ids })
}

/// Loads an opened model's weights.
///
/// # Errors
/// [`StartError`].
pub fn load_engine(model: &OpenModel, plan: &Plan, progress: &mut LoadProgress<'_>) -> Result<Engine<Cpu>, StartError> {
    plan.check()?;
    check_against(plan, &model.facts)?;
    let device = Cpu::new(CpuOptions { n_threads: plan.n_threads as usize, simd: plan.simd });
    let options = EngineOptions {
        n_ctx_tokens: plan.n_ctx_tokens,
        max_step_tokens: plan.bounds().max_step_tokens(),
        kv_type: plan.kv_type,
    };
    let path = plan.model_path.display();
    Engine::load(device, &model.file, &model.facts, options, progress).map_err(|error| {
        let words = format!("{path}: {error}");
        match error {
            LoadError::Missing { .. }
            | LoadError::Shape { .. }
            | LoadError::Format { .. }
            | LoadError::Unused { .. }
            | LoadError::Unsupported(_)
            | LoadError::Backend(BackendError::Shape(_)) => StartError::BadModel(words),
            LoadError::Backend(BackendError::OutOfMemory { .. }) => StartError::OutOfMemory(words),
            LoadError::Stopped => StartError::Stopped,
        }
    })
}

/// What a knob asks must be possible for this model.
fn check_against(plan: &Plan, facts: &ModelFacts) -> Result<(), StartError> {
    if plan.n_ctx_tokens > facts.n_ctx_train {
        return Err(StartError::BadPlan(format!(
            "n_ctx_tokens is {}, but the model was trained for {}: ask for that or less",
            plan.n_ctx_tokens, facts.n_ctx_train
        )));
    }
    let is_in_blocks = |dim: u32| dim.is_multiple_of(32);
    let odd = facts.layers.iter().find(|l| !is_in_blocks(l.k_dim) || !is_in_blocks(l.v_dim));
    match (plan.kv_type, odd) {
        (KvType::F16, _) | (_, None) => Ok(()),
        (KvType::Q8_0 | KvType::Q4_0, Some(l)) => Err(StartError::BadPlan(format!(
            "kv_type q8_0 and q4_0 need heads of whole blocks of 32; this model's have {} and {}: use f16",
            l.k_dim, l.v_dim
        ))),
    }
}
