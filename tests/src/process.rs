//! Real processes in tests: built once, started, listened to, and gone when the test ends, however it ends.

use crate::places::{repository_root, target_folder};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for anything that a healthy system does at once. Generous: other tests share the machine.
pub const SOON: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within `limit`: `what` is in the words.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        // A look costs microseconds; there is no event to wait for where this is used.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The daemon's binary.
///
/// # Panics
/// When it can't be built.
#[must_use]
pub fn plimsoll() -> PathBuf {
    BINARIES.join("plimsoll")
}

/// The worker's binary.
///
/// # Panics
/// When it can't be built.
#[must_use]
pub fn plimsoll_worker() -> PathBuf {
    BINARIES.join("plimsoll-worker")
}

/// The folder of the binaries, in the profile of the running test. Built here, because a test of one package can't ask cargo
/// for another's binaries. With the same selection as a test run of the workspace: after one, all is fresh and this takes a
/// fraction of a second; another selection has other features of the same crates, and would build them again.
static BINARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let running = std::env::current_exe().unwrap_or_default();
    let folder = running.parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_path_buf();
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(repository_root()).args(["build", "--locked", "--workspace", "--all-targets"]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let built = build.env("CARGO_TARGET_DIR", target_folder()).output().expect("cargo starts");
    assert!(built.status.success(), "the binaries can't be built:\n{}", String::from_utf8_lossy(&built.stderr));
    folder
});

/// Runs a program to its end.
///
/// # Panics
/// When it can't be started or takes longer than [`SOON`].
pub fn run<S: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments);
    let mut running = Running::start(command);
    let status = running.wait(SOON);
    Output { status, stdout: running.stdout().into_bytes(), stderr: running.stderr().into_bytes() }
}

/// A process of ours. Killed and reaped when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Lines of stdout that nobody has asked for yet; ends with the pipe.
    lines: Receiver<String>,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Starts it, with no standard input, and collects what it writes.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} can't be started: {error}"));
        let (sender, lines) = channel();
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let readers = vec![
            // A test that stopped listening is no reason to stop reading: the pipe would fill.
            collect(child.stdout.take(), Arc::clone(&stdout), move |line| drop(sender.send(line))),
            collect(child.stderr.take(), Arc::clone(&stderr), drop),
        ];
        Self { child, lines, stdout, stderr, readers }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of stdout that `wanted` takes.
    ///
    /// # Panics
    /// When none comes within `limit`, or the process ends before.
    pub fn wait_line<T>(&mut self, what: &str, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> T {
        let end = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return found;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("{what}: not within {limit:?}\n{}", self.said()),
                Err(RecvTimeoutError::Disconnected) => panic!("{what}: the process ended before\n{}", self.said()),
            }
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) {
        signal_to(self.pid(), signal);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours can be waited for") {
                break status;
            }
            assert!(Instant::now() < end, "{} has not ended within {limit:?}\n{}", self.pid(), self.said());
            std::thread::park_timeout(Duration::from_millis(2));
        };
        // What it wrote before it ended is in the pipes.
        self.readers.drain(..).for_each(|reader| reader.join().expect("a reader does not panic"));
        status
    }

    /// Kills it without a chance to clean up, and reaps it.
    ///
    /// # Errors
    /// It has ended and was reaped already.
    pub fn kill(&mut self) -> std::io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// What it has written to stdout.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.lock().expect("a reader does not panic").clone()
    }

    /// What it has written to stderr.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("a reader does not panic").clone()
    }

    /// All that it has said, for a failing test.
    #[must_use]
    pub fn said(&self) -> String {
        format!("stdout:\n{}stderr:\n{}", self.stdout(), self.stderr())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only when it has ended and was reaped already.
        let _ = self.kill();
    }
}

fn collect(
    pipe: Option<impl Read + Send + 'static>,
    text: Arc<Mutex<String>>,
    on_line: impl Fn(String) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let words = String::from_utf8_lossy(&line).into_owned();
            text.lock().expect("nobody panics with it").push_str(&words);
            on_line(words.trim_end().to_owned());
            line.clear();
        }
    })
}

/// Sends a signal to a process that a test knows to be its own.
///
/// # Panics
/// When the system refuses.
pub fn signal_to(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id fits"));
    kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// A process that is not our child: known by its start time, so that a reused number is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its process id.
    pub pid: u32,
    start_ticks: u64,
}

impl Known {
    /// The child of `parent` whose command is `name` (at most 15 bytes of it are kept by the kernel).
    #[must_use]
    pub fn child_of(parent: u32, name: &str) -> Option<Self> {
        let processes = procfs::process::all_processes().ok()?;
        let stats = processes.filter_map(|process| process.ok()?.stat().ok());
        let mut ours =
            stats.filter(|stat| stat.ppid as u32 == parent && stat.state != 'Z' && name.starts_with(&stat.comm));
        ours.next().map(|stat| Self { pid: stat.pid as u32, start_ticks: stat.starttime })
    }

    /// Whether it still runs. One that ended and was not reaped is gone.
    #[must_use]
    pub fn is_alive(self) -> bool {
        let stat = procfs::process::Process::new(self.pid as i32).and_then(|process| process.stat());
        stat.is_ok_and(|stat| stat.starttime == self.start_ticks && !matches!(stat.state, 'Z' | 'X'))
    }
}

impl Known {
    /// Kills it if it is still alive: for the end of a test that failed.
    pub fn end(self) {
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid as i32), Signal::SIGKILL);
        }
    }
}
