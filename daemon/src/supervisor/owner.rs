//! The one task that owns the worker. Each event goes through the pure parts; what they say is carried out at once.

use std::collections::VecDeque;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use plimsoll_config::limits::{EVENT_QUEUE, HEARTBEAT_SILENCE};
use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::{Admission, Cancelled, Capacity, DenyReason, Facts, RequestId, Verdict};
use plimsoll_decide::lifecycle::{self, Action, ErrorClass, Exit, Generation, Lifecycle, State, WorkerEvent};
use plimsoll_wire::{Start, Submit, ToWorker, encode};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::ending::Ending;
use super::event::Event;
use super::link::{self, Link};
use super::requests::Requests;
use super::{Guard, Handle, Status, Ticket};
use crate::actuate::spawn::{Spawned, Spawner};
use crate::actuate::stop;
use crate::clock::Clock;
use crate::journal::{End, Failure, Order};
use crate::plan::{Planner, Verdict as PlanVerdict};

/// What the supervisor needs to begin.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The daemon's clock.
    pub(crate) clock: Clock,
    /// The worker's program.
    pub(crate) program: PathBuf,
    /// Makes the plan before each start.
    pub(crate) planner: Arc<Planner>,
    /// Context before the first plan, slots and queue.
    pub(crate) capacity: Capacity,
}

/// Starts the supervisor, which asks for a worker at once. The task ends after a drain or a stop, when no worker is left.
///
/// # Errors
/// The system has no thread or signal handler left.
pub(crate) fn start(setup: Setup) -> io::Result<(Handle, JoinHandle<()>)> {
    let (events, inbox) = mpsc::channel(EVENT_QUEUE);
    let (dropped, drops) = mpsc::unbounded_channel();
    let (status, follow) = watch::channel(Status {
        ready: false,
        state: "absent",
        reason: "starting".into(),
        heard: None,
        n_ctx: None,
        backend: String::new(),
        load_ms: 0,
    });
    let owner = Owner {
        spawner: Spawner::start()?,
        lifecycle: Lifecycle::new(),
        admission: Admission::new(setup.capacity),
        requests: Requests::default(),
        worker: None,
        pending: VecDeque::new(),
        is_ending: false,
        events: events.clone(),
        dropped,
        status,
        setup,
    };
    let children = signal(SignalKind::child())?;
    let task = tokio::spawn(owner.run(inbox, drops, children));
    Ok((Handle { events, status: follow }, task))
}

pub(super) struct Owner {
    pub(super) setup: Setup,
    pub(super) spawner: Spawner,
    pub(super) lifecycle: Lifecycle,
    pub(super) admission: Admission,
    pub(super) requests: Requests,
    pub(super) worker: Option<Worker>,
    /// Events for the lifecycle that arose while actions were carried out.
    pub(super) pending: VecDeque<lifecycle::Event>,
    /// The daemon is on its way out.
    pub(super) is_ending: bool,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) dropped: mpsc::UnboundedSender<RequestId>,
    pub(super) status: watch::Sender<Status>,
}

/// The process that exists.
pub(super) struct Worker {
    pub(super) generation: Generation,
    pub(super) link: Link,
    ending: Ending,
}

impl Owner {
    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Event>,
        mut drops: mpsc::UnboundedReceiver<RequestId>,
        mut children: Signal,
    ) {
        self.step(lifecycle::Event::StartAsked);
        loop {
            self.publish();
            if self.is_ending && self.is_at_rest() {
                return;
            }
            let wake = self.next_wake();
            let event = tokio::select! {
                Some(event) = inbox.recv() => event,
                Some(request) = drops.recv() => Event::Dropped(request),
                _ = children.recv() => Event::ChildSignal,
                () = tokio::time::sleep_until(self.setup.clock.instant(wake.unwrap_or_default())), if wake.is_some() => Event::Tick,
            };
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Submit { order, reply } => self.submit(order, reply),
            Event::Dropped(request) => self.drop_request(request),
            Event::Looked(verdict) => self.looked(verdict),
            Event::Spawned { generation, result } => self.spawned(generation, result),
            Event::Frame { generation, message } => self.frame(generation, message),
            Event::Closed { generation, why } => {
                let now = self.setup.clock.now();
                if let Some(worker) = self.worker.as_mut().filter(|worker| worker.generation == generation) {
                    tracing::info!(pid = worker.link.child.id(), "worker: {why}");
                    worker.ending.socket_closed(now, why);
                    worker.link.close();
                }
                self.collect();
            }
            Event::ChildSignal => self.collect(),
            Event::Drain { deadline } => self.drain(deadline),
            Event::StopNow => {
                self.is_ending = true;
                self.step(lifecycle::Event::StopAsked);
            }
            Event::Tick => {
                self.collect();
                self.step(lifecycle::Event::Tick);
            }
        }
        self.settle(); // what arose on the way
    }

    fn next_wake(&self) -> Option<Millis> {
        let ending = self.worker.as_ref().and_then(|worker| worker.ending.next_wake());
        [self.lifecycle.next_wake(), ending].into_iter().flatten().min()
    }

    fn is_at_rest(&self) -> bool {
        match self.lifecycle.state() {
            State::Absent | State::Failed(_) => self.worker.is_none(),
            State::Checking(_)
            | State::Starting(_)
            | State::Ready(_)
            | State::Draining(_)
            | State::Stopping(_)
            | State::Backoff { .. } => false,
        }
    }

    fn publish(&self) {
        let (state, reason) = (self.lifecycle.state().name(), self.lifecycle.sentence());
        let heard = match self.lifecycle.state() {
            State::Ready(ready) => Some(Millis(ready.silent_until.0.saturating_sub(HEARTBEAT_SILENCE.0))),
            State::Absent
            | State::Checking(_)
            | State::Starting(_)
            | State::Draining(_)
            | State::Stopping(_)
            | State::Backoff { .. }
            | State::Failed(_) => None,
        };
        let ready = heard.is_some();
        let n_ctx = self.admission.capacity().n_ctx;
        self.status.send_if_modified(|status| {
            let is_news =
                (status.ready, status.state, status.n_ctx) != (ready, state, n_ctx) || status.reason != reason;
            if status.state != state {
                tracing::info!(state, "worker: {reason}");
            }
            *status = Status { ready, state, reason, heard, n_ctx, ..std::mem::take(status) };
            is_news
        });
    }

    // ---- requests ---------------------------------------------------------------------------------------------------

    fn submit(&mut self, order: Order, reply: oneshot::Sender<Result<Ticket, DenyReason>>) {
        let request = self.requests.next_id();
        let n_prompt = Tokens(u32::try_from(order.prompt.len()).unwrap_or(u32::MAX));
        let facts = Facts { request, n_prompt, max_tokens: Tokens(order.max_tokens) };
        let answer = match self.admission.offer(&self.lifecycle.gate(self.setup.clock.now()), facts) {
            Verdict::Admit => {
                let ticket = self.begin(request, order);
                self.run_first(facts);
                Ok(ticket)
            }
            Verdict::Wait { position } => {
                tracing::info!(request = request.0, n_prompt = n_prompt.0, position, "request waits");
                Ok(self.begin(request, order))
            }
            Verdict::Deny(reason) => Err(reason),
            Verdict::AlreadyPresent => {
                // Numbers are drawn one line above and never again.
                tracing::error!(request = request.0, "a request's number was given twice");
                return;
            }
        };
        // A client that left meanwhile drops the ticket, which cancels the request.
        drop(reply.send(answer));
    }

    fn begin(&mut self, request: RequestId, order: Order) -> Ticket {
        let progress = self.requests.begin(request, order);
        Ticket { request, progress, _guard: Guard { request, dropped: self.dropped.clone() } }
    }

    fn drop_request(&mut self, request: RequestId) {
        match self.admission.cancel(request) {
            Cancelled::WasRunning => self.send(&ToWorker::Cancel { request: request.0 }),
            Cancelled::WasWaiting | Cancelled::Unknown => {}
        }
        self.requests.forget(request);
        self.let_in();
    }

    /// Gives a request that just got its slot to the worker: now the context in force bounds its answer.
    fn run_first(&mut self, facts: Facts) {
        self.requests.bound(facts.request, self.admission.answer_tokens(facts).0);
        self.dispatch(facts.request);
    }

    /// Gives a running request to the worker.
    fn dispatch(&mut self, request: RequestId) {
        match self.requests.to_run(request) {
            Some(Ok(submit)) => self.send_submit(request, submit),
            Some(Err(end)) => self.end(request, end),
            None => {
                self.admission.finish(request);
            }
        }
    }

    fn send_submit(&mut self, request: RequestId, submit: Submit) {
        match encode(&ToWorker::Submit(submit)) {
            Ok(frame) => self.send_frame(frame),
            Err(e) => {
                let why = format!("the prompt is too long to hand over: {e}");
                self.end(request, End::Failed(Failure::Impossible(why)));
            }
        }
    }

    pub(super) fn end(&mut self, request: RequestId, end: End) {
        self.admission.finish(request);
        self.requests.end(request, end);
    }

    /// Lets waiting requests in while there is room, and tells a drain that is done.
    fn let_in(&mut self) {
        while let Some(facts) = self.admission.next(&self.lifecycle.gate(self.setup.clock.now())) {
            self.run_first(facts);
        }
        if self.requests.is_empty() && matches!(self.lifecycle.state(), State::Draining(_)) {
            self.pending.push_back(lifecycle::Event::Drained);
        }
    }

    // ---- the worker's life ------------------------------------------------------------------------------------------

    /// One event for the lifecycle, and all that follows from it.
    pub(super) fn step(&mut self, event: lifecycle::Event) {
        self.pending.push_back(event);
        self.settle();
    }

    /// Works off what arose. Ends: each pass needs an event, and actions only add one when a worker or a drain is over.
    fn settle(&mut self) {
        while let Some(event) = self.pending.pop_front() {
            let now = self.setup.clock.now();
            for action in self.lifecycle.step(now, event) {
                self.act(action);
            }
            self.let_in();
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Look => self.look(),
            Action::Spawn(generation) => self.spawn(generation),
            Action::SendStop => self.send(&ToWorker::Stop),
            Action::SignalTerm => self.signal("SIGTERM", stop::terminate),
            Action::SignalKill => self.signal("SIGKILL", stop::kill_now),
            Action::ParkRequests => {
                for (request, reason) in self.admission.worker_died() {
                    self.requests.end(request, End::Failed(Failure::Denied(reason)));
                }
            }
            Action::ResubmitRequests => {
                let running: Vec<RequestId> = self.admission.running().collect();
                for request in running {
                    self.dispatch(request);
                }
            }
            Action::FailRequests(end) => {
                for request in self.admission.clear() {
                    self.requests.end(request, End::Failed(Failure::Ended(end.clone())));
                }
            }
        }
    }

    fn look(&self) {
        let (planner, events) = (Arc::clone(&self.setup.planner), self.events.clone());
        tokio::spawn(async move {
            let verdict = match tokio::task::spawn_blocking(move || planner.look()).await {
                Ok(verdict) => verdict,
                Err(e) => PlanVerdict::unread(format!("the machine could not be read: {e}")),
            };
            drop(events.send(Event::Looked(verdict)).await);
        });
    }

    fn looked(&mut self, verdict: PlanVerdict) {
        let event = match verdict {
            PlanVerdict::Fits { n_ctx } => {
                let capacity = Capacity { n_ctx: Some(n_ctx), ..self.admission.capacity() };
                for (request, reason) in self.admission.resize(capacity) {
                    self.requests.end(request, End::Failed(Failure::Denied(reason)));
                }
                lifecycle::Event::CheckPassed
            }
            PlanVerdict::Refused { why, detail } => {
                let is_news = self.lifecycle.sentence() != why;
                self.step(lifecycle::Event::CheckRefused { why });
                if is_news {
                    self.publish(); // who reads the line may ask /readyz at once
                    tracing::warn!("no worker is started: {detail}");
                }
                return;
            }
            PlanVerdict::Impossible { why } => lifecycle::Event::CheckFailed { why },
        };
        self.step(event);
    }

    fn spawn(&self, generation: Generation) {
        let (answer, program, events) =
            (self.spawner.order(&self.setup.program), self.setup.program.clone(), self.events.clone());
        tokio::spawn(async move {
            let result = answer.await;
            tracing::debug!(generation = generation.0, program = %program.display(), "spawned: {}", result.is_ok());
            // A process that nobody takes is ended by the end of its socket, which closes with it.
            drop(events.send(Event::Spawned { generation, result }).await);
        });
    }

    fn spawned(&mut self, generation: Generation, result: io::Result<Spawned>) {
        let opened = result.and_then(|spawned| link::open(spawned, generation, self.events.clone()));
        let event = match opened {
            Ok(link) => {
                tracing::info!(pid = link.child.id(), generation = generation.0, "worker started");
                self.worker = Some(Worker { generation, link, ending: Ending::default() });
                self.send(&ToWorker::Start(self.start_frame()));
                WorkerEvent::Spawned
            }
            Err(e) => WorkerEvent::SpawnFailed {
                class: match e.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => ErrorClass::Permanent,
                    _ => ErrorClass::MayPass,
                },
                why: format!("{} can't be started: {e}", self.setup.program.display()),
            },
        };
        self.step(lifecycle::Event::Worker { generation, event });
    }

    fn start_frame(&self) -> Start {
        self.setup.planner.start_frame()
    }

    fn signal(&mut self, name: &str, send: fn(&mut std::process::Child) -> io::Result<bool>) {
        let Some(worker) = &mut self.worker else { return };
        let pid = worker.link.child.id();
        match send(&mut worker.link.child) {
            Ok(true) => tracing::warn!(pid, "worker got {name}"),
            Ok(false) => {} // it has ended: SIGCHLD is on its way
            Err(e) => tracing::error!(pid, "worker could not be sent {name}: {e}"),
        }
    }

    /// Looks whether the worker has ended, and tells what is known of it.
    fn collect(&mut self) {
        let now = self.setup.clock.now();
        let Some(worker) = &mut self.worker else { return };
        if let Some(status) = stop::collect(&mut worker.link.child) {
            worker.ending.exited(now, exit_of(status));
        }
        let (generation, told) = (worker.generation, worker.ending.tell(now));
        if let Some(event) = told {
            if let WorkerEvent::Exited(exit) = &event {
                tracing::info!(pid = worker.link.child.id(), "worker {exit}");
                self.worker = None;
            }
            self.step(lifecycle::Event::Worker { generation, event });
        }
    }

    fn drain(&mut self, deadline: Millis) {
        self.is_ending = true;
        let waiting: Vec<RequestId> = self.admission.waiting().map(|facts| facts.request).collect();
        for request in waiting {
            self.admission.cancel(request);
            self.requests.end(request, End::Failed(Failure::Denied(DenyReason::Draining)));
        }
        self.step(lifecycle::Event::DrainAsked { deadline });
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1), // neither: can't be for a process that was collected
    }
}
