//! From what the user typed to what the commands use: configuration, model and the worker's program. Each failure has its
//! words and its exit code; nothing is started here.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_config::limits::MAX_CONFIG_BYTES;
use plimsoll_config::{Config, Problem};
use plimsoll_model::file::OpenError;

use crate::exit::ExitCode;

/// Why a command can't begin.
#[derive(Debug)]
pub(crate) enum SetupError {
    /// The configuration file can't be read.
    ConfigUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// It has problems: all of them.
    Config(Vec<Problem>),
    /// Neither the command line nor the file names a model.
    NoModel,
    /// The model can't be opened.
    Open(OpenError),
    /// The model is of a kind that this build does not know, or damaged.
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The worker's program is not there.
    NoWorker {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Somebody else listens at the address, or it is not ours.
    Bind {
        /// Where.
        address: std::net::SocketAddr,
        /// Whether it is taken.
        in_use: bool,
        /// Who or what is in the way.
        why: String,
    },
    /// The system refuses something that every process may have.
    System(String),
}

impl SetupError {
    /// The code to end with.
    pub(crate) const fn exit_code(&self) -> ExitCode {
        match self {
            Self::ConfigUnreadable { .. } | Self::Config(_) | Self::NoModel | Self::NoWorker { .. } => {
                ExitCode::Configuration
            }
            Self::Open(OpenError::Missing { .. }) => ExitCode::ModelMissing,
            Self::Open(OpenError::Io { .. } | OpenError::Gguf { .. } | OpenError::Parts { .. })
            | Self::Model { .. } => ExitCode::BadModel,
            Self::Bind { in_use: true, .. } => ExitCode::AddressInUse,
            Self::Bind { in_use: false, .. } => ExitCode::Configuration,
            Self::System(_) => ExitCode::System,
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigUnreadable { path, why } => {
                write!(f, "the configuration {} can't be read: {why}", path.display())
            }
            Self::Config(problems) => {
                let n = problems.len();
                write!(f, "the configuration has {n} problem{}", if n == 1 { "" } else { "s" })?;
                problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
            }
            Self::NoModel => write!(f, "no model is named: give --model FILE, or model.path in the configuration"),
            Self::Open(e) => write!(f, "{e}"),
            Self::Model { path, why } => write!(f, "{}: {why}", path.display()),
            Self::NoWorker { path } => write!(
                f,
                "the worker's program is not at {}: install plimsoll-worker beside plimsoll, or name it by worker.path or \
                 PLIMSOLL_WORKER",
                path.display()
            ),
            Self::Bind { address, why, .. } => write!(f, "can't listen at {address}: {why}"),
            Self::System(why) => write!(f, "{why}"),
        }
    }
}

/// Reads the configuration, or takes the defaults.
///
/// # Errors
/// It can't be read, or has problems: all of them at once.
pub(crate) fn config(path: Option<&Path>) -> Result<Config, SetupError> {
    let Some(path) = path else { return Ok(Config::default()) };
    let unreadable = |why: String| SetupError::ConfigUnreadable { path: path.to_owned(), why };
    let mut text = String::new();
    let file = File::open(path).map_err(|e| unreadable(e.to_string()))?;
    // One byte more than allowed is enough to find out that it is the wrong file.
    file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text).map_err(|e| unreadable(e.to_string()))?;
    if text.len() > MAX_CONFIG_BYTES {
        return Err(unreadable(format!("it is longer than {MAX_CONFIG_BYTES} bytes; is it a configuration?")));
    }
    Config::from_yaml(&text, &path.display().to_string()).map_err(SetupError::Config)
}

/// Where the worker's program is: as configured, as in the environment, beside our own.
pub(crate) fn worker_program(configured: Option<&Path>) -> PathBuf {
    if let Some(path) = configured {
        return path.to_owned();
    }
    if let Some(path) = std::env::var_os("PLIMSOLL_WORKER") {
        return path.into();
    }
    let name = "plimsoll-worker";
    std::env::current_exe().map_or_else(|_| name.into(), |own| own.with_file_name(name))
}

/// The worker's program, if it is there.
///
/// # Errors
/// It is not.
pub(crate) fn existing_worker(configured: Option<&Path>) -> Result<PathBuf, SetupError> {
    let path = worker_program(configured);
    if path.is_file() { Ok(path) } else { Err(SetupError::NoWorker { path }) }
}
