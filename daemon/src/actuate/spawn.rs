//! Starts the worker: its own session, one inherited socket, a cleaned environment, and a death that follows the daemon's.
//!
//! The kernel sends the parent-death signal when the parent *thread* ends, so every spawn happens on one thread that lives
//! as long as the daemon: [`Spawner`] owns it. Called by the supervisor only.
//!
//! A named edge for `unsafe`: the step between fork and exec has no safe form.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid, setsid};
use plimsoll_config::limits::WORKER_OOM_SCORE_RAISE;
use tokio::sync::oneshot;

/// Variables that the worker gets. Everything else (keys, sockets of the desktop, preloads) stays here.
const KEPT_VARIABLES: [&str; 9] = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "RUST_BACKTRACE",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
];

/// Variables of our own that the worker gets too.
const KEPT_PREFIX: &str = "PLIMSOLL_";

/// A started worker.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Its handle, with both output pipes.
    pub(crate) child: Child,
    /// Our end of the socket pair.
    pub(crate) socket: UnixStream,
}

/// The thread that all workers are children of.
#[derive(Debug)]
pub(crate) struct Spawner {
    orders: mpsc::Sender<(PathBuf, oneshot::Sender<io::Result<Spawned>>)>,
}

impl Spawner {
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel::<(PathBuf, oneshot::Sender<io::Result<Spawned>>)>();
        thread::Builder::new().name("spawner".into()).spawn(move || {
            // Ends when the daemon drops its end, after the last worker was stopped.
            for (program, reply) in inbox {
                // A supervisor that has gone away drops the reply: the handle closes the socket, which ends the worker.
                drop(reply.send(spawn(&program)));
            }
        })?;
        Ok(Self { orders })
    }

    /// Asks for `program serve --fd N`; the answer comes when the process exists. Its errors: the program can't be executed,
    /// or the system has no process, pipe or socket left.
    pub(crate) fn order(&self, program: &Path) -> impl Future<Output = io::Result<Spawned>> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let is_sent = self.orders.send((program.to_owned(), reply)).is_ok();
        async move {
            let gone = || io::Error::other("the spawning thread is gone");
            if !is_sent {
                return Err(gone());
            }
            answer.await.map_err(|_| gone())?
        }
    }
}

fn spawn(program: &Path) -> io::Result<Spawned> {
    // Both ends close at exec; the child opens its own one between fork and exec, so no other child can inherit it.
    let (socket, theirs) = UnixStream::pair()?;
    let daemon = getpid();
    let mut command = Command::new(program);
    command
        .args(["serve", "--fd", &theirs.as_raw_fd().to_string()])
        .env_clear()
        .envs(kept_variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let prepare = move || become_worker(&theirs, daemon).map_err(io::Error::from);
    // SAFETY: the closure runs in the child between fork and exec. It makes only the system calls setsid, prctl, getppid,
    // close_range and fcntl, which are async-signal-safe, allocates nothing, takes no lock and touches only values that were moved into it before.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(prepare);
    }
    let child = command.spawn()?;
    drop(command); // closes the child's end here: its death is then an end of file for us
    raise_oom_score(child.id());
    Ok(Spawned { child, socket })
}

/// Runs in the child. The parent is looked at after the death signal is set: had the daemon died in between, nobody would
/// send it any more.
fn become_worker(socket: &UnixStream, daemon: Pid) -> Result<(), Errno> {
    setsid()?;
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != daemon {
        return Err(Errno::ESRCH);
    }
    close_all_at_exec();
    fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// What the daemon opened closes at exec by itself; what it inherited from whoever started it may not.
fn close_all_at_exec() {
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: only sets a flag on descriptors of the child. Kernels before 5.11 refuse it: then there is one safeguard less.
    #[allow(unsafe_code)]
    unsafe {
        libc::close_range(3, u32::MAX, flags);
    }
}

fn kept_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| KEPT_VARIABLES.contains(&name) || name.starts_with(KEPT_PREFIX))
    })
}

/// If memory runs out in spite of everything, the worker is the one to go: its answers are continued, the daemon's are lost.
fn raise_oom_score(pid: u32) {
    let own: i32 =
        fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let raised = (own + WORKER_OOM_SCORE_RAISE).min(1000);
    if let Err(e) = fs::write(format!("/proc/{pid}/oom_score_adj"), raised.to_string()) {
        tracing::warn!(pid, "oom_score_adj of the worker stays at {own}: {e}");
    }
}
