//! Why a worker is gone, and what its requests are told.

use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// Exit codes of the worker that no second try changes, and what they mean.
const PERMANENT_CODES: [(i32, &str); 4] = [
    (2, "it was called wrongly: daemon and worker are of different versions"),
    (6, "the model file is damaged or of a kind that this build does not know"),
    (64, "its configuration is wrong"),
    (66, "the model file is missing"),
];

/// What signals mean to a person. No word of "out of memory" for SIGKILL: only the kernel's log can tell.
const SIGNAL_NAMES: [(i32, &str); 7] = [
    (4, "SIGILL: this processor lacks an instruction"),
    (6, "SIGABRT: the worker gave up, a bug"),
    (7, "SIGBUS: a mapped file became shorter or could not be read"),
    (9, "SIGKILL: from outside; the kernel's log tells whether it was for memory"),
    (11, "SIGSEGV: a bug in the worker, not a lack of memory"),
    (15, "SIGTERM: from outside"),
    (31, "SIGSYS: a system call was forbidden"),
];

impl Exit {
    /// The meaning of an exit code that no second try changes.
    pub fn permanent(self) -> Option<&'static str> {
        match self {
            Exit::Code(code) => PERMANENT_CODES.iter().find(|(known, _)| *known == code).map(|(_, meaning)| *meaning),
            Exit::Signal(_) => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "ended with exit code {code}"),
            Exit::Signal(signal) => match SIGNAL_NAMES.iter().find(|(known, _)| known == signal) {
                Some((_, name)) => write!(f, "ended by signal {signal} ({name})"),
                None => write!(f, "ended by signal {signal}"),
            },
        }
    }
}

/// Why a worker was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeathCause {
    /// It ended, and nobody had asked it to.
    Exited(Exit),
    /// It could not be spawned.
    SpawnFailed {
        /// One sentence.
        why: String,
    },
    /// No first frame came.
    NoHello,
    /// No byte arrived during the load.
    LoadStalled,
    /// The load took too long.
    LoadTooLong,
    /// It said that it can't load the model now.
    LoadFailed {
        /// One sentence.
        why: String,
    },
    /// It was silent while it should serve.
    Hung,
    /// Its socket closed, or carried nonsense.
    SocketClosed {
        /// One sentence.
        why: String,
    },
}

impl fmt::Display for DeathCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeathCause::Exited(exit) => write!(f, "{exit}"),
            DeathCause::SpawnFailed { why } => write!(f, "could not be started: {why}"),
            DeathCause::NoHello => write!(f, "said nothing for {} after its start", limits::HELLO_DEADLINE),
            DeathCause::LoadStalled => write!(f, "loaded nothing for {}", limits::LOAD_SILENCE),
            DeathCause::LoadTooLong => write!(f, "was not ready after {} of loading", limits::LOAD_DEADLINE),
            DeathCause::LoadFailed { why } => write!(f, "could not load the model: {why}"),
            DeathCause::Hung => write!(f, "hung: nothing was heard of it for {}", limits::HEARTBEAT_SILENCE),
            DeathCause::SocketClosed { why } => write!(f, "lost its socket: {why}"),
        }
    }
}

/// Why nothing more is tried, for good or for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The same would happen again.
    Permanent {
        /// One sentence.
        why: String,
    },
    /// Too many deaths in too short a time.
    BudgetSpent {
        /// How many.
        n_deaths: u32,
        /// The last one.
        last: DeathCause,
        /// When that was.
        at: Millis,
        /// When the oldest of them leaves the window, and it is tried again.
        until: Millis,
    },
}

impl Failure {
    /// What a client is told to wait: nothing when waiting does not help.
    pub fn retry_after(&self, now: Millis) -> Option<Millis> {
        match self {
            Failure::Permanent { .. } => None,
            Failure::BudgetSpent { until, .. } => Some(until.since(now)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Permanent { why } => write!(f, "{why}"),
            Failure::BudgetSpent { n_deaths, last, at, until } => write!(
                f,
                "{n_deaths} workers died within {}, so none is started for {} after the last one, which {last}",
                limits::DEATH_WINDOW,
                until.since(*at)
            ),
        }
    }
}

/// What requests are told that end with their worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestsEnd {
    /// The daemon was told to stop.
    Stopped,
    /// The drain's deadline passed.
    DrainDeadline,
    /// No worker will come by itself.
    NotReady {
        /// One sentence.
        why: String,
        /// When to ask again; `None` when waiting does not help.
        retry_after: Option<Millis>,
    },
}

impl fmt::Display for RequestsEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestsEnd::Stopped => write!(f, "the server was stopped"),
            RequestsEnd::DrainDeadline => {
                write!(f, "the server is ending and this answer took longer than it may wait")
            }
            RequestsEnd::NotReady { why, .. } => write!(f, "no model is ready: {why}"),
        }
    }
}
