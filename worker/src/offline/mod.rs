//! The commands that work without a daemon: they open a model, do one thing and say it on stdout.
//!
//! With `--json` stdout holds exactly one line of JSON, whose names are a contract with scripts. Everything else, errors
//! too, goes to stderr.

pub mod bench;
pub mod generate;
pub mod perplexity;
pub mod tokenize;

use crate::cli::EngineArgs;
use crate::engine::{Engine, Flow, ForwardError, Segment};
use crate::exit::ExitCode;
use crate::sampler::{Params, SampleError};
use crate::session::Session;
use crate::start::{self, OpenModel, Plan, StartError};
use plimsoll_kernels::backend::BackendError;
use plimsoll_kernels::cpu::Cpu;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum OfflineError {
    /// The model can't be loaded.
    Start(StartError),
    /// An argument is impossible.
    Usage(String),
    /// The engine did not compute a step.
    Forward(ForwardError),
    /// No token could be chosen.
    Sample(SampleError),
    /// The input file can't be read.
    Input {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "{error}"),
            Self::Usage(why) => write!(f, "{why}"),
            Self::Forward(error) => write!(f, "{error}"),
            Self::Sample(error) => write!(f, "{error}"),
            Self::Input { path, error } => write!(f, "{} can't be read: {error}", path.display()),
        }
    }
}

impl std::error::Error for OfflineError {}

impl From<StartError> for OfflineError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl From<ForwardError> for OfflineError {
    fn from(error: ForwardError) -> Self {
        Self::Forward(error)
    }
}

impl From<BackendError> for OfflineError {
    fn from(error: BackendError) -> Self {
        Self::Forward(ForwardError::Backend(error))
    }
}

impl From<SampleError> for OfflineError {
    fn from(error: SampleError) -> Self {
        Self::Sample(error)
    }
}

impl OfflineError {
    /// As the system sees it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            // A knob that came from the command line is a matter of usage.
            Self::Start(StartError::BadPlan(_)) | Self::Usage(_) => ExitCode::Usage,
            Self::Start(error) => error.exit_code(),
            Self::Forward(ForwardError::Backend(BackendError::OutOfMemory { .. })) => ExitCode::DoesNotFit,
            Self::Sample(SampleError::Parameter { .. }) => ExitCode::Usage,
            Self::Forward(_) | Self::Sample(_) | Self::Input { .. } => ExitCode::System,
        }
    }
}

/// Loads an opened model for one session of up to `n_ctx_tokens`.
fn load(model: &OpenModel, path: &Path, args: &EngineArgs, n_ctx_tokens: u32) -> Result<Engine<Cpu>, OfflineError> {
    let plan = Plan {
        model_path: path.to_owned(),
        n_ctx_tokens,
        max_sessions: 1,
        kv_type: start::parse_kv_type(&args.kv_type)?,
        n_threads: args.n_threads(),
        prefill_chunk_tokens: args.chunk,
        simd: args.simd.into(),
    };
    Ok(start::load_engine(model, &plan, &mut |_, _| Flow::Continue)?)
}

/// Computes all pending ids of a session in chunks; the logits of the last one.
fn prefill(engine: &mut Engine<Cpu>, session: &mut Session<Cpu>, chunk: u32) -> Result<Vec<f32>, ForwardError> {
    let mut last = Vec::new();
    while !session.pending().is_empty() {
        let n_tokens = session.pending().len().min(chunk as usize);
        engine.forward(&mut [Segment::next(session, n_tokens)], &mut |_| Flow::Continue, &mut |logits| {
            last = logits.values.to_vec();
        })?;
    }
    Ok(last)
}

/// A session with `ids` pending.
fn session_of(engine: &mut Engine<Cpu>, params: Params, ids: &[u32]) -> Result<Session<Cpu>, BackendError> {
    let mut session = engine.session(params)?;
    session.extend(ids);
    Ok(session)
}
