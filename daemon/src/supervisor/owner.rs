//! The one task that owns the worker. Each event goes through the pure parts; what they say is carried out at once.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_config::limits::{EVENT_QUEUE, HEARTBEAT_SILENCE};
use plimsoll_config::units::{Bytes, Millis, Tokens};
use plimsoll_decide::admission::{
    Admission, Cancelled, Capacity, DenyReason, Facts, Order as Turn, RequestId, Verdict,
};
use plimsoll_decide::lifecycle::learned::Learned;
use plimsoll_decide::lifecycle::{self, Generation, Lifecycle, State};
use plimsoll_wire::{Submit, ToWorker, encode};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::ending::Ending;
use super::event::Event;
use super::link::Link;
use super::plans::Plans;
use super::release::Holdings;
use super::requests::Requests;
use super::{Guard, Handle, Status, Ticket};
use crate::actuate::spawn::Spawner;
use crate::clock::Clock;
use crate::journal::{End, Failure, Order};
use crate::plan::{Planned, Planner};
use crate::state::StateWriter;

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
    /// What earlier daemons learned of this model.
    pub(crate) learned: Learned,
    /// What is kept over the daemon's life.
    pub(crate) state: StateWriter,
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
        lifecycle: Lifecycle::with_learned(setup.learned.clone()),
        admission: Admission::new(setup.capacity),
        requests: Requests::default(),
        plans: Plans::default(),
        planned: None,
        weights: Bytes::ZERO,
        holdings: None,
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
    pub(super) plans: Plans,
    /// What the last plan said of host memory, until it was held against what its worker holds.
    pub(super) planned: Option<Box<Planned>>,
    /// Weights of the worker, in its words.
    pub(super) weights: Bytes,
    /// What the worker held when it was last looked at; also after its end.
    pub(super) holdings: Option<Holdings>,
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
    pub(super) ending: Ending,
    /// Processes of our control group that the kernel had ended for want of memory when this one was started.
    pub(super) oom_kills: Option<u64>,
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
            Event::Release { generation, held } => self.released(generation, held),
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
        self.let_in();
        self.settle(); // what arose on the way
    }

    fn next_wake(&self) -> Option<Millis> {
        let ending = self.worker.as_ref().and_then(|worker| worker.ending.next_wake());
        [self.lifecycle.next_wake(), self.admission.next_wake(), ending].into_iter().flatten().min()
    }

    fn is_at_rest(&self) -> bool {
        match self.lifecycle.state() {
            // What a worker held comes back without us.
            State::Absent | State::Failed(_) | State::Releasing(_) => self.worker.is_none(),
            State::Checking(_)
            | State::Starting(_)
            | State::Ready(_)
            | State::Draining(_)
            | State::Stopping(_)
            | State::Backoff { .. } => false,
        }
    }

    pub(super) fn publish(&self) {
        let (state, reason) = (self.lifecycle.state().name(), self.lifecycle.sentence());
        let heard = match self.lifecycle.state() {
            State::Ready(ready) => Some(Millis(ready.silent_until.0.saturating_sub(HEARTBEAT_SILENCE.0))),
            State::Absent
            | State::Checking(_)
            | State::Starting(_)
            | State::Draining(_)
            | State::Stopping(_)
            | State::Releasing(_)
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
        let now = self.setup.clock.now();
        let facts = Facts {
            request,
            client: order.client,
            session: None, // the API has none: each request brings its whole chat
            n_prompt,
            max_tokens: Tokens(order.max_tokens),
            deadline: order.wait.map(|wait| now.saturating_add(wait)),
        };
        let answer = match self.admission.offer(now, &self.lifecycle.gate(now), facts) {
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

    /// Gives a running request to the worker, from its first token or from where its answer is.
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

    /// Does what the admission orders: parked requests go on, waiting ones get in while there is room. Tells a drain that is
    /// done.
    pub(super) fn let_in(&mut self) {
        let now = self.setup.clock.now();
        for (request, reason) in self.admission.expire(now) {
            self.requests.end(request, End::Failed(Failure::Denied(reason)));
        }
        while let Some(order) = self.admission.next(&self.lifecycle.gate(now)) {
            match order {
                Turn::Submit(facts) => self.run_first(facts),
                Turn::Resume(request) => self.dispatch(request),
                Turn::Recall(request) => self.send(&ToWorker::Cancel { request: request.0 }),
            }
        }
        if self.requests.is_empty() && matches!(self.lifecycle.state(), State::Draining(_)) {
            self.pending.push_back(lifecycle::Event::Drained);
        }
    }
}
