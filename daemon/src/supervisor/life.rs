//! The worker's life carried out: each action of the lifecycle, and the answers that become its events.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

use plimsoll_config::limits::HOLDINGS_INTERVAL;
use plimsoll_config::units::{Bytes, Millis, Tokens};
use plimsoll_decide::admission::{Capacity, DenyReason, RequestId};
use plimsoll_decide::ledger::Object;
use plimsoll_decide::lifecycle::death::{DeathClass, Exit, OomKills, Traces};
use plimsoll_decide::lifecycle::{self, Action, ErrorClass, Generation, PlanId, WorkerEvent};
use plimsoll_decide::plan::Caps;
use plimsoll_wire::{Heartbeat, ToWorker};

use super::ending::Ending;
use super::event::Event;
use super::link;
use super::owner::{Owner, Worker};
use super::release::Holdings;
use crate::actuate::spawn::Spawned;
use crate::actuate::stop;
use crate::journal::{End, Failure};
use crate::plan::{Ask, Verdict as PlanVerdict};
use crate::probe::memory;

impl Owner {
    /// One event for the lifecycle, and all that follows from it.
    pub(super) fn step(&mut self, event: lifecycle::Event) {
        self.pending.push_back(event);
        self.settle();
    }

    /// Works off what arose. Ends: each pass needs an event, and actions only add one when a worker or a drain is over.
    pub(super) fn settle(&mut self) {
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
            Action::Look { caps, fallback } => self.look(caps, fallback),
            Action::Spawn(generation) => self.spawn(generation),
            Action::SendStop => self.send(&ToWorker::Stop),
            Action::SignalTerm => self.signal("SIGTERM", stop::terminate),
            Action::SignalKill => self.signal("SIGKILL", stop::kill_now),
            Action::AwaitRelease(generation) => self.await_release(generation),
            Action::ParkRequests => self.admission.park(),
            Action::Died { class, had_served } => self.died(&class, had_served),
            Action::StoreLearned => self.setup.state.store_learned(self.lifecycle.learned()),
            Action::ResubmitRequests => self.let_in(),
            Action::FailRequests(end) => {
                for request in self.admission.clear() {
                    self.requests.end(request, End::Failed(Failure::Ended(end.clone())));
                }
            }
        }
    }

    fn look(&self, caps: Caps, fallback: Option<PlanId>) {
        let (planner, events) = (Arc::clone(&self.setup.planner), self.events.clone());
        let n_ctx =
            fallback.and_then(|plan| self.plans.get(plan)).map_or(self.plans.promised(), |knobs| Some(knobs.n_ctx));
        tokio::spawn(async move {
            let verdict = match tokio::task::spawn_blocking(move || planner.look(Ask { caps, n_ctx })).await {
                Ok(verdict) => verdict,
                Err(e) => PlanVerdict::unread(format!("the machine could not be read: {e}")),
            };
            drop(events.send(Event::Looked(verdict)).await);
        });
    }

    pub(super) fn looked(&mut self, verdict: PlanVerdict) {
        let event = match verdict {
            PlanVerdict::Fits { knobs, ours, planned } => {
                self.planned = planned;
                let n_kv = u64::from(knobs.n_ctx.0) * u64::from(knobs.max_sessions);
                let kv = Some(Tokens(u32::try_from(n_kv).unwrap_or(u32::MAX)));
                let capacity = Capacity { n_ctx: Some(knobs.n_ctx), kv, ..self.admission.capacity() };
                for (request, reason) in self.admission.resize(capacity) {
                    self.requests.end(request, End::Failed(Failure::Denied(reason)));
                }
                lifecycle::Event::CheckPassed { plan: self.plans.id_of(knobs), ours }
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

    pub(super) fn spawned(&mut self, generation: Generation, result: io::Result<Spawned>) {
        let opened = result.and_then(|spawned| link::open(spawned, generation, self.events.clone()));
        let event = match opened {
            Ok(link) => {
                tracing::info!(pid = link.child.id(), generation = generation.0, "worker started");
                self.holdings = None;
                let oom_kills = memory::oom_kills();
                self.worker = Some(Worker { generation, link, ending: Ending::default(), oom_kills });
                // A worker is only started after a plan that fitted: there is a context.
                let n_ctx = self.admission.capacity().n_ctx.unwrap_or_default();
                self.send(&ToWorker::Start(self.setup.planner.start_frame(n_ctx)));
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
    pub(super) fn collect(&mut self) {
        let now = self.setup.clock.now();
        let Some(worker) = &mut self.worker else { return };
        if let Some(status) = stop::collect(&mut worker.link.child) {
            let oom_kills = worker.oom_kills.zip(memory::oom_kills());
            let oom_kills = oom_kills.map(|(before, after)| OomKills { before, after });
            worker.ending.exited(now, exit_of(status), Traces { oom_kills, kernel_log: None, xid: None });
        }
        let (generation, told) = (worker.generation, worker.ending.tell(now));
        if let Some(event) = told {
            if let WorkerEvent::Exited { exit, .. } = &event {
                tracing::info!(pid = worker.link.child.id(), "worker {exit}");
                self.worker = None;
            }
            self.step(lifecycle::Event::Worker { generation, event });
        }
    }

    /// What the last worker died of is known: it may be one of its requests.
    fn died(&mut self, class: &DeathClass, had_served: bool) {
        tracing::warn!(class = class.name(), "worker {class}");
        if let Some(convicted) = self.admission.worker_died(class, had_served) {
            let request = convicted.request;
            if let Some(mut record) = self.requests.kept(request) {
                record["died_of"] = class.to_string().into();
                record["position"] = convicted.position.0.into();
                record["n_deaths"] = convicted.n_deaths.into();
                self.setup.state.keep_request(request, record);
            }
            self.requests.end(request, End::Failed(Failure::Denied(convicted.reason())));
        }
    }

    /// Remembers what the worker holds, at most once in a while: after its end nobody can ask it.
    pub(super) fn note_holdings(&mut self) {
        let now = self.setup.clock.now();
        let is_fresh = |holdings: &Holdings| now.since(holdings.at) < HOLDINGS_INTERVAL;
        if let Some(worker) = &self.worker
            && !self.holdings.as_ref().is_some_and(is_fresh)
        {
            self.holdings = Holdings::of(worker.link.child.id(), now);
        }
    }

    /// Holds the plan against what a worker that is loaded says it holds, once: keys and values grow later, its work buffers
    /// and weights do not.
    pub(super) fn note_truth(&mut self, heartbeat: Heartbeat) {
        if heartbeat.activation_bytes == 0 {
            return; // it loads
        }
        let Some(planned) = self.planned.take() else { return };
        let mut held = vec![(Object::Activations, Bytes(heartbeat.activation_bytes))];
        if !planned.has_experts() {
            held.push((Object::DenseWeights, self.weights));
        }
        let (planner, state) = (Arc::clone(&self.setup.planner), self.setup.state.clone());
        tokio::task::spawn_blocking(move || match planner.note(&planned, held) {
            Ok((report, truth)) => {
                let worst = report.worst().and_then(|error| error.permille());
                tracing::info!(worst_permille = worst, "plan against worker:\n{}", report.words().trim_end());
                state.store_truth(truth);
            }
            Err(e) => tracing::warn!("the plan could not be held against what was measured: {e}"),
        });
    }

    fn await_release(&mut self, generation: Generation) {
        let Some(holdings) = self.holdings.take() else {
            self.pending.push_back(lifecycle::Event::Released { generation }); // it was never heard to hold anything
            return;
        };
        let (clock, events) = (self.setup.clock, self.events.clone());
        let ended_at = clock.now();
        tokio::spawn(async move {
            let held = holdings.await_release(clock, ended_at).await;
            drop(events.send(Event::Release { generation, held }).await);
        });
    }

    pub(super) fn released(&mut self, generation: Generation, held: Option<String>) {
        let event = match held {
            None => lifecycle::Event::Released { generation },
            Some(held) => {
                tracing::warn!("{held}");
                lifecycle::Event::ReleaseTimedOut { generation, held }
            }
        };
        self.step(event);
    }

    pub(super) fn drain(&mut self, deadline: Millis) {
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
