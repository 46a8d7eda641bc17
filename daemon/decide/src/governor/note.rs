//! What the governor did and why, one event each: for the log, `ctl events` and the counters.

use std::fmt;

use plimsoll_config::units::{Bytes, Millis};

use super::lever::Lever;
use super::rule::Alarm;
use crate::ledger::AccountId;

/// The number of a move; each one takes the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveId(pub u64);

/// An order to move one lever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Its number: the answer carries it.
    pub id: MoveId,
    /// Which lever.
    pub lever: Lever,
    /// Whose bytes.
    pub account: AccountId,
    /// Where it stands.
    pub from: Bytes,
    /// Where it shall stand. A later order for the same lever replaces this one.
    pub to: Bytes,
}

impl Move {
    /// Whether it takes bytes from us.
    pub fn is_down(&self) -> bool {
        self.to < self.from
    }

    /// How far it goes.
    pub fn distance(&self) -> Bytes {
        Bytes(self.from.0.abs_diff(self.to.0))
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lever {} {} → {}", self.lever.name(), self.from, self.to)?;
        match self.account {
            AccountId::Host | AccountId::Disk => Ok(()),
            AccountId::Vram(_) => write!(f, " on {}", self.account),
        }
    }
}

/// Why a lever moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A rule spoke.
    Alarm(Alarm),
    /// It was quiet for long enough, and there is room.
    Quiet(Millis),
    /// The file is read more than planned, and host memory has room for more experts.
    FileReads {
        /// Bytes a token.
        per_token: Bytes,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Alarm(alarm) => write!(f, "{alarm}"),
            Why::Quiet(span) => write!(f, "quiet for {span} and room again"),
            Why::FileReads { per_token } => {
                write!(f, "disk.file_tier_reads {per_token}/token (rule D1), and host room")
            }
        }
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// A lever was told to move.
    Moved(Move, Why),
    /// It would have been told, if the governor did not only watch.
    WouldMove(Move, Why),
    /// What came of a move.
    Relief {
        /// Of which.
        moved: Move,
        /// What the worker says that it freed, or took.
        said: Bytes,
        /// What the account shows.
        measured: Bytes,
        /// From the order to the reading that shows it.
        took: Millis,
    },
    /// The worker has not answered in time. It is waited for: it has one job loop, and no other lever would answer sooner.
    Late(Move),
    /// A recovery had to be undone.
    Undone {
        /// Of which account.
        account: AccountId,
        /// Quiet time before the next.
        quiet: Millis,
    },
    /// No lever is left that would help.
    Exhausted(AccountId, Alarm),
    /// New work waits.
    Paused(Alarm),
    /// New work runs again.
    Resumed,
    /// The worker is ended before the kernel or the driver does it, and starts again on a smaller plan.
    Restart {
        /// For which account.
        account: AccountId,
        /// What is free.
        free: Bytes,
        /// It does not answer, and is killed.
        at_once: bool,
    },
    /// A request starts although its card is under the line: nothing more can be freed in time.
    StartedUnderLine(AccountId),
    /// The file is read more than planned and host memory has no room: only a person can change that.
    DiskBound {
        /// Bytes a token.
        per_token: Bytes,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Moved(moved, why) => write!(f, "{moved}  because {why}  promised {}", moved.distance()),
            Note::WouldMove(moved, why) => write!(f, "would: {moved}  because {why}  promised {}", moved.distance()),
            Note::Relief { moved, said, measured, took } => {
                write!(f, "{moved}  promised {}  said {said}  got {measured} in {took}", moved.distance())
            }
            Note::Late(moved) => write!(f, "{moved}  has not answered in time"),
            Note::Undone { account, quiet } => {
                write!(f, "{account}: recovery undone; the next one after {quiet} of quiet")
            }
            Note::Exhausted(account, alarm) => write!(f, "{account}: no lever is left, and {alarm}"),
            Note::Paused(alarm) => write!(f, "admission paused  because {alarm}"),
            Note::Resumed => write!(f, "admission goes on"),
            Note::Restart { account, free, at_once: false } => {
                write!(f, "{account}: {free} free and no lever left: the worker is stopped cleanly, to start smaller")
            }
            Note::Restart { account, free, at_once: true } => {
                write!(f, "{account}: {free} free and the worker does not answer: it is killed, to start smaller")
            }
            Note::StartedUnderLine(account) => {
                write!(f, "{account}: a request starts under the line: nothing more could be freed in time")
            }
            Note::DiskBound { per_token } => write!(
                f,
                "disk: {per_token} read from the file for each token, more than planned, and host memory has no room for \
                 more experts"
            ),
        }
    }
}
