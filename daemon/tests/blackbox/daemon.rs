//! A daemon under test, with the lines that it and its worker write. Nothing is polled: tests wait for lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;

use crate::http::PATIENCE;
use crate::model;

/// The program under test.
pub(crate) const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// The worker without an engine.
pub(crate) fn fake_worker() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_worker.py")
}

/// How to start one.
pub(crate) struct Setup {
    pub(crate) folder: tempfile::TempDir,
    /// More lines of configuration.
    pub(crate) config: String,
    /// `PLIMSOLL_FAKE_LOAD`.
    pub(crate) load: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), config: String::new(), load: "ok" }
    }
}

impl Setup {
    /// With these lines of configuration.
    pub(crate) fn with(config: &str) -> Self {
        Self { config: config.into(), ..Self::default() }
    }

    /// With a load that goes so.
    pub(crate) fn load(load: &'static str) -> Self {
        Self { load, ..Self::default() }
    }

    /// The command, not started.
    pub(crate) fn command(&self) -> Command {
        let config = self.folder.path().join("plimsoll.yaml");
        let model = model::write(self.folder.path());
        let worker = fake_worker();
        let text = format!(
            "model:\n  path: {}\nserver:\n  listen: 127.0.0.1:0\n{}",
            model.display(),
            if self.config.contains("worker:") {
                self.config.clone()
            } else {
                format!("worker:\n  path: {}\n{}", worker.display(), self.config)
            },
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(PLIMSOLL);
        command
            .args(["serve", "--config", config.to_str().unwrap()])
            .env("PLIMSOLL_FAKE_LOAD", self.load)
            .env("SECRET_OF_THE_DESKTOP", "1")
            .env_remove("STATE_DIRECTORY")
            .env("XDG_STATE_HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it and waits until it listens.
    pub(crate) fn start(self) -> Daemon {
        let fifo = self.folder.path().join("alive");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let mut child = self.command().env("PLIMSOLL_FAKE_FIFO", &fifo).spawn().unwrap();
        let stdout = Lines::follow(child.stdout.take().unwrap());
        let log = Lines::follow(child.stderr.take().unwrap());
        let mut daemon = Daemon { child, stdout, log, address: ([127, 0, 0, 1], 0).into(), fifo, folder: self.folder };
        let line = daemon.stdout.wait_for("listen   http://");
        let text = line.trim_start_matches("listen   http://");
        daemon.address = text.split(' ').next().unwrap().parse().unwrap();
        daemon
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn ready(self) -> Daemon {
        let mut daemon = self.start();
        daemon.stdout.wait_for("ready    http://");
        daemon
    }

    /// Runs it to its end, as (exit code, stdout, stderr).
    pub(crate) fn run(self) -> (i32, String, String) {
        run(&mut self.command())
    }
}

/// Runs a command to its end, as (exit code, stdout, stderr).
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A running one.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) stdout: Lines,
    /// Its log, the worker's output in it.
    pub(crate) log: Lines,
    pub(crate) address: SocketAddr,
    fifo: PathBuf,
    pub(crate) folder: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.log.until_end();
        self.child.wait().unwrap()
    }

    /// The process id of the next worker that starts.
    pub(crate) fn worker_started(&mut self) -> i32 {
        let line = self.log.wait_for("fake started pid ");
        let pid = line.split("fake started pid ").nth(1).unwrap();
        pid.split(' ').next().unwrap().parse().unwrap()
    }

    /// The next frame of this kind that the worker gets.
    pub(crate) fn frame(&mut self, kind: &str) -> Value {
        loop {
            let line = self.log.wait_for("fake got ");
            let frame: Value = serde_json::from_str(line.split("fake got ").nth(1).unwrap()).unwrap();
            if frame["kind"] == kind {
                return frame;
            }
        }
    }

    /// Tells when no process has the FIFO open any more. To be asked for while a worker is starting or running.
    pub(crate) fn worker_death(&self) -> Receiver<()> {
        let (tell, told) = channel();
        // Opened before this returns, as the other side has it open already or is about to: after its death nobody would.
        let mut fifo = File::open(&self.fifo).unwrap();
        thread::spawn(move || {
            drop(fifo.read_to_end(&mut Vec::new()));
            let _ = tell.send(()); // the test may have ended
        });
        told
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            let log = self.log.rest();
            drop(writeln!(std::io::stderr(), "---- log of the daemon ----\n{log}"));
        }
    }
}

/// The lines of a pipe, as they come.
pub(crate) struct Lines {
    coming: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    fn follow(pipe: impl Read + Send + 'static) -> Self {
        let (line, coming) = channel();
        thread::spawn(move || {
            for text in BufReader::new(pipe).lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        Self { coming, seen: Vec::new() }
    }

    /// The next line with this in it.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        loop {
            match self.coming.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(e @ (RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) => {
                    panic!("no line with {part:?} ({e}); there were:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    /// Waits for this, unless it has come already: two pipes of one process have no order between them.
    pub(crate) fn has_or_gets(&mut self, part: &str) {
        if !self.seen.iter().any(|line| line.contains(part)) {
            self.wait_for(part);
        }
    }

    /// All lines until the pipe closes.
    pub(crate) fn until_end(&mut self) -> String {
        while let Ok(line) = self.coming.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        self.seen.join("\n")
    }

    fn rest(&mut self) -> String {
        self.seen.extend(self.coming.try_iter());
        self.seen.join("\n")
    }
}
