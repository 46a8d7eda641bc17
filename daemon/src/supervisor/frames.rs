//! What a worker says, and what it is told: frames to events of its life and of its requests, and back.

use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::admission::RequestId;
use plimsoll_decide::lifecycle::death::OomAccount;
use plimsoll_decide::lifecycle::{self, ErrorClass, Generation, WorkerEvent};
use plimsoll_wire::{FailureClass, Finish, FromWorker, LoadErrorClass, ToWorker, WIRE_VERSION, encode};

use super::owner::Owner;
use crate::journal::{End, Failure};

impl Owner {
    pub(super) fn frame(&mut self, generation: Generation, message: FromWorker) {
        if self.worker.as_ref().is_none_or(|worker| worker.generation != generation) {
            return; // the last words of one that was given up
        }
        let event = match message {
            FromWorker::Hello { wire_version, .. } if wire_version != WIRE_VERSION => WorkerEvent::LoadFailed {
                class: ErrorClass::Permanent,
                why: format!(
                    "the worker speaks version {wire_version} of the wire, this daemon {WIRE_VERSION}: install both from one build"
                ),
            },
            FromWorker::Hello { .. } => WorkerEvent::Hello,
            FromWorker::Loading { done_bytes, total_bytes } => WorkerEvent::Loading { done_bytes, total_bytes },
            FromWorker::Ready(ready) => {
                self.weights = Bytes(ready.weight_bytes);
                self.status.send_modify(|status| {
                    status.backend = ready.backend;
                    status.load_ms = ready.load_ms;
                });
                WorkerEvent::Ready
            }
            FromWorker::LoadFailed { class: LoadErrorClass::OutOfMemory, message } => {
                WorkerEvent::Exhausted { account: OomAccount::Host, why: message }
            }
            FromWorker::LoadFailed { class, message } => {
                WorkerEvent::LoadFailed { class: error_class(class), why: message }
            }
            FromWorker::Progress { request, n_prompt_done } => {
                self.admission.came_to(RequestId(request), Tokens(n_prompt_done));
                WorkerEvent::HeartbeatSeen
            }
            FromWorker::Heartbeat(heartbeat) => {
                self.note_holdings();
                self.note_truth(heartbeat);
                WorkerEvent::HeartbeatSeen
            }
            FromWorker::Tokens { request, ids } => {
                self.tokens(RequestId(request), &ids);
                WorkerEvent::HeartbeatSeen
            }
            FromWorker::Done { request, finish, timing } => {
                let was_recalled = finish == Finish::Cancelled && self.admission.recalled(RequestId(request));
                if !was_recalled {
                    self.end(RequestId(request), End::Finished(finish, timing));
                }
                WorkerEvent::HeartbeatSeen
            }
            FromWorker::Failed { request, class, message } => {
                let failure = match class {
                    FailureClass::BadRequest => Failure::Impossible(message),
                    FailureClass::OutOfMemory | FailureClass::Engine => Failure::Engine(message),
                };
                self.end(RequestId(request), End::Failed(failure));
                WorkerEvent::HeartbeatSeen
            }
        };
        self.step(lifecycle::Event::Worker { generation, event });
    }

    fn tokens(&mut self, request: RequestId, ids: &[u32]) {
        if !self.requests.push(request, ids) {
            self.give_up(request, "the engine sent more tokens than were asked for");
        }
        if let Some(position) = self.requests.position(request) {
            self.admission.came_to(request, position);
        }
    }

    fn give_up(&mut self, request: RequestId, why: &str) {
        self.send(&ToWorker::Cancel { request: request.0 });
        self.end(request, End::Failed(Failure::Engine(why.into())));
    }

    pub(super) fn send(&mut self, message: &ToWorker) {
        match encode(message) {
            Ok(frame) => self.send_frame(frame),
            Err(e) => tracing::error!("a frame for the worker was not sent: {e}"),
        }
    }

    /// A worker that does not take its frames is lost.
    pub(super) fn send_frame(&mut self, frame: Vec<u8>) {
        let Some(worker) = &self.worker else { return };
        if !worker.link.send(frame) {
            let event = WorkerEvent::SocketClosed { why: "it does not read what it is sent".into() };
            self.pending.push_back(lifecycle::Event::Worker { generation: worker.generation, event });
        }
    }
}

fn error_class(class: LoadErrorClass) -> ErrorClass {
    match class {
        LoadErrorClass::ModelMissing | LoadErrorClass::BadModel | LoadErrorClass::BadPlan => ErrorClass::Permanent,
        LoadErrorClass::OutOfMemory | LoadErrorClass::Io => ErrorClass::MayPass,
    }
}
