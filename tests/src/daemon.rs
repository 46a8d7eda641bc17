//! A daemon of a test's own: any free port, a state folder that goes with the test.

use crate::process::{Known, Running, SOON, plimsoll, wait_until};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A running `plimsoll serve`.
#[derive(Debug)]
pub struct Daemon {
    /// The process.
    pub process: Running,
    /// Where it listens.
    pub address: SocketAddr,
    /// The last worker that was seen, ended with the daemon.
    worker: Option<Known>,
    _home: tempfile::TempDir,
}

/// Name that the kernel shows for the worker's process (it keeps 15 bytes).
const WORKER_NAME: &str = "plimsoll-worker";

impl Daemon {
    /// Starts one and waits until it listens.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(model: &Path) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        let mut process = Running::start(serve_command(model, ANY_PORT, home.path()));
        let address = process.wait_line("the daemon tells its address", SOON, |line| {
            let (_, rest) = line.split_once("http://")?;
            let end = rest.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(rest.len());
            rest[..end].parse().ok()
        });
        Self { process, address, worker: None, _home: home }
    }

    /// Waits until it answers `/readyz` with 200.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_ready(&mut self) {
        let mut last = String::new();
        let address = self.address;
        wait_until("the daemon is ready", SOON, || {
            let reply = crate::http::get(address, "/readyz");
            last.clone_from(&reply.body);
            reply.status == 200
        });
        self.worker = self.find_worker();
    }

    /// Waits for a worker other than `before` and gives it.
    ///
    /// # Panics
    /// When none comes.
    pub fn wait_worker(&mut self, before: Option<Known>) -> Known {
        wait_until("a worker runs", SOON, || {
            self.worker = self.find_worker();
            self.worker.is_some() && self.worker != before
        });
        self.worker.expect("just seen")
    }

    fn find_worker(&self) -> Option<Known> {
        Known::child_of(self.process.pid(), WORKER_NAME)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Found first: once the daemon is gone nobody knows whose child it was.
        let worker = self.find_worker().or(self.worker);
        let _ = self.process.kill();
        worker.into_iter().for_each(Known::end);
    }
}

/// Any free port of the loopback.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// `plimsoll serve` with the model at an address, with nothing of the user's own configuration.
#[must_use]
pub fn serve_command(model: &Path, listen: SocketAddr, home: &Path) -> Command {
    let mut command = Command::new(plimsoll());
    command.arg("serve").arg("--model").arg(model).arg("--listen").arg(listen.to_string());
    command.env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
    // The worker lies beside the daemon, in the folder that was just built.
    command.env_remove("XDG_CONFIG_HOME").env_remove("PLIMSOLL_WORKER");
    command
}

/// A chat request of one user message, greedy unless `more` says otherwise.
#[must_use]
pub fn chat_request(content: &str, max_tokens: u32, more: &Value) -> Value {
    let mut request = json!({
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
    });
    if let (Some(request), Some(more)) = (request.as_object_mut(), more.as_object()) {
        request.extend(more.clone());
    }
    request
}
