//! Ends the worker. Only our own child is ever signalled.
//!
//! Why a pid is safe to signal here: until the handle's `try_wait` has collected the child, the kernel keeps its pid for
//! it, dead or alive; and nobody but the owner of the handle collects it. So each signal is preceded by that question.

use std::io;
use std::process::{Child, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Asks the worker to end. True if it was still there to hear it.
///
/// # Errors
/// The system refuses the signal.
pub(crate) fn terminate(child: &mut Child) -> io::Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(false);
    }
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    Ok(true)
}

/// Ends the worker now.
///
/// # Errors
/// The system refuses the signal.
pub(crate) fn kill_now(child: &mut Child) -> io::Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(false);
    }
    child.kill()?;
    Ok(true)
}

/// Collects the worker if it has ended.
pub(crate) fn collect(child: &mut Child) -> Option<ExitStatus> {
    // An error here means that there is no such child: it can't happen while the handle is owned, and the supervisor's
    // deadline would follow.
    child.try_wait().ok().flatten()
}
