//! Replaces this process by the worker, for its offline commands: same arguments, same terminal, its own exit code.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Returns only if it fails, with the reason.
pub(crate) fn become_worker(program: &Path, command: &str, args: &[OsString]) -> io::Error {
    Command::new(program).arg(command).args(args).exec()
}
