//! Which processes are ours, and what may be done about them.
//!
//! A worker that outlived its daemon is ended by the next one; nobody else's process ever is. A pid proves nothing: it is
//! given out again. *Ours* is a process of this boot, with the pid, the start time and the instance id of a record that
//! was made durable before the process could run, and whose daemon no longer holds its lock. The caller asks twice: once
//! to decide, and once more on an open pidfd, directly before the signal.
//!
//! What can't be proven is left alone.

use std::fmt;

/// What is known about a worker since before it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRecord {
    /// The kernel's id of the boot.
    pub boot_id: String,
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the boot.
    pub start_ticks: u64,
    /// Drawn for this worker alone; it carries it in its environment.
    pub instance: String,
}

/// Who holds the lock of the daemon that wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonLock {
    /// Nobody: that daemon is gone.
    Free,
    /// This daemon: it is its own record.
    Mine,
    /// Another daemon, which lives and minds its own worker.
    Another,
}

/// A process as it is now, looked up by the pid of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessSight {
    /// No process has this pid.
    Absent,
    /// One has.
    Seen(ProcessReading),
    /// One has, and it can't be looked at.
    Unreadable {
        /// The error.
        why: String,
    },
}

/// What can be read of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReading {
    /// The kernel's id of the boot.
    pub boot_id: String,
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the boot.
    pub start_ticks: u64,
    /// The instance id in its environment, if it has one that can be read.
    pub instance: Option<String>,
    /// What the kernel says of it.
    pub state: ProcessState,
}

/// What the kernel says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, sleeps or is stopped: a signal reaches it.
    Running,
    /// State D: it waits in the kernel, and a signal reaches it only afterwards.
    Uninterruptible,
    /// State Z: it has ended, and nobody collected it yet.
    Zombie,
}

impl ProcessState {
    /// Why a process that was told to end may still hold memory; empty where nothing is in its way.
    pub(crate) fn obstacle(self) -> &'static str {
        match self {
            ProcessState::Running => "",
            ProcessState::Uninterruptible => {
                "it is in an uninterruptible wait in the kernel (state D): no signal reaches it, and its memory comes back \
                 when the driver lets it go; look for Xid lines in the kernel's log"
            }
            ProcessState::Zombie => "it has ended and was not collected; threads of it may still be in the driver",
        }
    }
}

/// What a recorded worker is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is this process.
    Ours {
        /// What the kernel says of it.
        state: ProcessState,
    },
    /// It has ended: no process has its pid.
    Gone,
    /// The process with its pid is somebody else's.
    Stranger(Mismatch),
    /// It is the worker of a daemon that lives.
    Guarded,
    /// It can't be told.
    Unproven {
        /// What is missing.
        why: String,
    },
}

/// In what a process differs from a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The record is of an earlier boot.
    Boot,
    /// The process has another pid: it was not the one to look at.
    Pid,
    /// The pid was given out again.
    StartTime,
    /// The process carries another instance id.
    Instance,
}

/// What may be done about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayDo {
    /// End it, after asking once more on an open pidfd.
    End,
    /// Nothing.
    Leave,
}

/// Compares a record with the process that has its pid now.
pub fn standing(record: &WorkerRecord, lock: DaemonLock, sight: &ProcessSight) -> Standing {
    let process = match sight {
        ProcessSight::Absent => return Standing::Gone,
        ProcessSight::Unreadable { why } => return Standing::Unproven { why: why.clone() },
        ProcessSight::Seen(process) => process,
    };
    if let Some(mismatch) = mismatch(record, process) {
        return Standing::Stranger(mismatch);
    }
    match (&process.instance, lock) {
        // A child that has not reached its program yet looks the same. It dies with its parent by itself.
        (None, _) => Standing::Unproven { why: "it carries no instance id that can be read".to_owned() },
        (Some(_), DaemonLock::Another) => Standing::Guarded,
        (Some(_), DaemonLock::Free | DaemonLock::Mine) => Standing::Ours { state: process.state },
    }
}

/// The first thing in which they differ, the most telling one first. An instance id that can't be read is no difference.
fn mismatch(record: &WorkerRecord, process: &ProcessReading) -> Option<Mismatch> {
    let other_instance = process.instance.as_ref().is_some_and(|instance| *instance != record.instance);
    let differences = [
        (record.boot_id != process.boot_id, Mismatch::Boot),
        (record.pid != process.pid, Mismatch::Pid),
        (record.start_ticks != process.start_ticks, Mismatch::StartTime),
        (other_instance, Mismatch::Instance),
    ];
    differences.into_iter().find(|(differs, _)| *differs).map(|(_, mismatch)| mismatch)
}

impl Standing {
    /// What may be done about the process. A zombie is left to its parent: there is nothing left to end.
    pub fn may_do(&self) -> MayDo {
        match self {
            Standing::Ours { state: ProcessState::Running | ProcessState::Uninterruptible } => MayDo::End,
            Standing::Ours { state: ProcessState::Zombie }
            | Standing::Gone
            | Standing::Stranger(_)
            | Standing::Guarded
            | Standing::Unproven { .. } => MayDo::Leave,
        }
    }

    /// Whether the worker of the record is gone for ever, so that the record has done its work.
    pub fn is_over(&self) -> bool {
        match self {
            Standing::Gone | Standing::Stranger(Mismatch::Boot | Mismatch::StartTime) => true,
            Standing::Ours { .. }
            | Standing::Stranger(Mismatch::Pid | Mismatch::Instance)
            | Standing::Guarded
            | Standing::Unproven { .. } => false,
        }
    }
}

/// What a person is told, to follow `process 4410 `.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Ours { state: ProcessState::Running } => write!(f, "is a worker of ours"),
            Standing::Ours { state: ProcessState::Uninterruptible } => write!(
                f,
                "is a worker of ours, in an uninterruptible wait in the kernel (state D): it ends when the kernel lets it go"
            ),
            Standing::Ours { state: ProcessState::Zombie } => {
                write!(f, "is a worker of ours that has ended and was not collected by its parent")
            }
            Standing::Gone => write!(f, "has ended"),
            Standing::Stranger(Mismatch::Boot) => write!(f, "is left alone: the record is of an earlier boot"),
            Standing::Stranger(Mismatch::Pid) => write!(f, "is left alone: it is not the process of the record"),
            Standing::Stranger(Mismatch::StartTime) => {
                write!(f, "is left alone: it began at another time, the number of a former worker was given out again")
            }
            Standing::Stranger(Mismatch::Instance) => {
                write!(f, "is left alone: it carries the instance id of somebody else")
            }
            Standing::Guarded => write!(f, "is left alone: it is the worker of a daemon that lives"),
            Standing::Unproven { why } => {
                write!(f, "is left alone: it can't be proven to be ours ({why}); end it yourself if you know it")
            }
        }
    }
}
