//! `plimsoll-worker serve`: the job loop between the daemon's socket and the engine.
//!
//! ```text
//!   Hello ─► (Start) ─► Loading… ─► Ready ─► loop: take messages · step · tell        Stop, SIGTERM, SIGINT ─► exit 0
//!                          └──► LoadFailed ─► exit 6, 64, 66, …                       end of the socket     ─► exit 5
//! ```
//! One thread computes and decides; it looks after the socket at every hand-over inside a step, so that a heartbeat, a
//! cancel or an end never waits for a long prompt. There is no async runtime.

pub mod inherited;
pub mod jobs;
pub mod link;

use crate::engine::Flow;
use crate::exit::ExitCode;
use crate::start::{self, Plan, StartError};
use jobs::{Jobs, Outbox};
use link::{DaemonGone, Link};
use plimsoll_config::limits::WORKER_INBOX_MESSAGES;
use plimsoll_kernels::cpu::Cpu;
use plimsoll_wire::{FromWorker, LoadErrorClass, Ready, Start, ToWorker, WIRE_VERSION};
use std::collections::{BTreeSet, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Why the job loop ended.
#[derive(Debug)]
pub enum End {
    /// `Stop`, SIGTERM or SIGINT.
    Asked,
    /// Nobody reads what the worker says.
    DaemonGone(DaemonGone),
    /// The daemon broke the protocol.
    Protocol(String),
    /// The model can't be loaded. The daemon was told.
    Load(StartError),
    /// The system has no thread, descriptor or signal handler for us.
    System(std::io::Error),
}

impl From<DaemonGone> for End {
    fn from(gone: DaemonGone) -> Self {
        Self::DaemonGone(gone)
    }
}

impl End {
    /// The exit code, and the sentence for stderr if it is worth one.
    pub fn report(&self) -> (ExitCode, Option<String>) {
        match self {
            Self::Asked => (ExitCode::Ok, None),
            Self::DaemonGone(gone) => (ExitCode::NoDaemon, Some(gone.to_string())),
            Self::Protocol(why) => (ExitCode::System, Some(format!("the daemon broke the protocol: {why}"))),
            Self::Load(error) => (error.exit_code(), Some(error.to_string())),
            Self::System(error) => (ExitCode::System, Some(format!("the system refused to start the worker: {error}"))),
        }
    }
}

/// Serves the daemon at the other end of `socket` until one of the ends.
pub fn serve(socket: UnixStream) -> End {
    let term = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&term)) {
            return End::System(error);
        }
    }
    let outcome = Link::open(socket, term).map_err(End::System).and_then(|mut link| {
        link.send(&FromWorker::Hello { wire_version: WIRE_VERSION, pid: std::process::id() })?;
        let start = wait_for_start(&mut link)?;
        let jobs = load(&start, &mut link)?;
        Loop { link, jobs, pending: VecDeque::new(), is_asked_to_end: false }.run()
    });
    match outcome {
        Ok(()) => End::Asked,
        Err(end) => end,
    }
}

fn wait_for_start(link: &mut Link) -> Result<Start, End> {
    while !link.term() {
        match link.wait() {
            Some(ToWorker::Start(start)) if start.wire_version == WIRE_VERSION => return Ok(start),
            Some(ToWorker::Start(start)) => {
                let message = format!(
                    "the daemon speaks version {} of the frames, this worker {WIRE_VERSION}: install both from one build",
                    start.wire_version
                );
                link.send(&FromWorker::LoadFailed { class: LoadErrorClass::BadPlan, message: message.clone() })?;
                return Err(End::Protocol(message));
            }
            Some(ToWorker::Stop) => return Err(End::Asked),
            Some(ToWorker::Submit(_) | ToWorker::Cancel { .. }) => {
                return Err(End::Protocol("a request came before Start".to_owned()));
            }
            None => heartbeat_before_ready(link)?,
        }
    }
    Err(End::Asked)
}

fn heartbeat_before_ready(link: &mut Link) -> Result<(), DaemonGone> {
    if link.is_quiet() { link.send(&FromWorker::Heartbeat(Default::default())) } else { Ok(()) }
}

/// Loads the model and tells the daemon how it went.
fn load(start: &Start, link: &mut Link) -> Result<Jobs<Cpu>, End> {
    let began = Instant::now();
    let mut gone = None;
    let mut said_bytes = None;
    let loaded = Plan::from_start(start).and_then(|plan| {
        start::load(&plan, &mut |done_bytes, total_bytes| {
            if said_bytes.is_none() || link.is_quiet() || done_bytes == total_bytes && said_bytes != Some(done_bytes) {
                said_bytes = Some(done_bytes);
                gone = link.send(&FromWorker::Loading { done_bytes, total_bytes }).err();
            }
            if gone.is_some() || link.term() { Flow::Stop } else { Flow::Continue }
        })
    });
    if let Some(gone) = gone {
        return Err(End::DaemonGone(gone));
    }
    match loaded {
        Ok(loaded) => {
            link.send(&FromWorker::Ready(Ready {
                backend: loaded.engine.describe(),
                weight_bytes: loaded.engine.weight_bytes(),
                load_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            }))?;
            Ok(Jobs::new(loaded.engine, loaded.bounds, loaded.end_ids))
        }
        Err(StartError::Stopped) => Err(End::Asked),
        Err(error) => {
            link.send(&FromWorker::LoadFailed { class: error.class(), message: error.to_string() })?;
            Err(End::Load(error))
        }
    }
}

/// The loop's state: all that can wake it is in `link` (messages, signals, time).
struct Loop {
    link: Link,
    jobs: Jobs<Cpu>,
    /// Messages that came during a step, in order.
    pending: VecDeque<ToWorker>,
    is_asked_to_end: bool,
}

impl Loop {
    fn run(mut self) -> Result<(), End> {
        let mut out = Outbox::new();
        loop {
            if self.jobs.is_idle() && self.pending.is_empty() {
                self.pending.extend(self.link.wait());
            }
            while let Some(message) = self.pending.pop_front().or_else(|| self.link.take()) {
                self.obey(message, &mut out)?;
            }
            if self.is_asked_to_end || self.link.term() {
                return Ok(());
            }
            if !self.jobs.is_idle() {
                self.step(&mut out)?;
            }
            for message in out.drain(..) {
                self.link.send(&message)?;
            }
            if self.link.is_quiet() {
                self.link.send(&FromWorker::Heartbeat(self.jobs.heartbeat()))?;
            }
        }
    }

    fn obey(&mut self, message: ToWorker, out: &mut Outbox) -> Result<(), End> {
        match message {
            ToWorker::Submit(submit) => self.jobs.submit(submit, out),
            ToWorker::Cancel { request } => self.jobs.cancel(request, out),
            ToWorker::Stop => self.is_asked_to_end = true,
            ToWorker::Start(_) => return Err(End::Protocol("a second Start came".to_owned())),
        }
        Ok(())
    }

    /// One step. At each hand-over: take messages in, send a sign of life, and give the step up when nobody wants it any
    /// more, which is when the worker is to end or every request in it is cancelled.
    fn step(&mut self, out: &mut Outbox) -> Result<(), End> {
        let mut wanted: BTreeSet<u64> = self.jobs.next_step().into_iter().collect();
        let heartbeat = FromWorker::Heartbeat(self.jobs.heartbeat());
        let (link, pending) = (&mut self.link, &mut self.pending);
        let mut gone = None;
        self.jobs.step(
            &mut |_| {
                // What does not fit stays in the socket: the daemon waits.
                while pending.len() < WORKER_INBOX_MESSAGES
                    && let Some(message) = link.take()
                {
                    match &message {
                        ToWorker::Cancel { request } => drop(wanted.remove(request)),
                        ToWorker::Stop => wanted.clear(),
                        ToWorker::Submit(_) | ToWorker::Start(_) => {}
                    }
                    pending.push_back(message);
                }
                if link.is_quiet() {
                    gone = link.send(&heartbeat).err();
                }
                if gone.is_some() || link.term() || wanted.is_empty() { Flow::Stop } else { Flow::Continue }
            },
            out,
        );
        gone.map_or(Ok(()), |gone| Err(End::DaemonGone(gone)))
    }
}
