//! Why nothing more is tried, and what requests are told.

use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

use super::death::DeathClass;

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
        last: DeathClass,
        /// When that was.
        at: Millis,
        /// When the oldest of them leaves the window, and it is tried again.
        until: Millis,
    },
    /// A plan ran out of memory, and nothing of it may be lowered.
    SamePlan {
        /// What its worker died of.
        class: DeathClass,
        /// When it is tried again all the same.
        until: Millis,
    },
}

impl Failure {
    /// When it is tried again without anybody asking.
    pub fn until(&self) -> Option<Millis> {
        match self {
            Failure::Permanent { .. } => None,
            Failure::BudgetSpent { until, .. } | Failure::SamePlan { until, .. } => Some(*until),
        }
    }

    /// What a client is told to wait: nothing when waiting does not help.
    pub fn retry_after(&self, now: Millis) -> Option<Millis> {
        self.until().map(|until| until.since(now))
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
            Failure::SamePlan { class, .. } => write!(
                f,
                "the worker {class}, and nothing of its plan may be lowered: what the configuration says is kept; the same \
                 plan is not tried again for {} unless somebody asks: write a smaller context.tokens, or close programs",
                limits::LEARNED_CALM
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
