//! The requests of one worker and the step that moves them. Owned by the job loop; no sockets here.
//!
//! What is to be told to the daemon is pushed to an outbox. Every submitted request gets exactly one `Done` or `Failed`.

use crate::engine::{Engine, Flow, ForwardError, Point, Segment};
use crate::sampler::Params;
use crate::schedule::{Bounds, Scheduler, Share, Submitted};
use crate::session::Session;
use plimsoll_kernels::backend::{Backend, BackendError};
use plimsoll_wire::{FailureClass, Finish, FromWorker, Heartbeat, Sampling, Submit, Timing};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Frames for the daemon, in order.
pub type Outbox = Vec<FromWorker>;

/// One request.
struct Job<B: Backend> {
    /// `None` until its first step: K and V of a request that waits would be idle memory.
    session: Option<Session<B>>,
    /// Prompt and the part of the answer that an earlier worker made; moved into the session at the first step.
    ids: Vec<u32>,
    params: Params,
    /// Tokens of the answer so far, those of earlier workers included.
    n_answer: u32,
    max_tokens: u32,
    is_decoding: bool,
    n_prefilled: u32,
    n_generated: u32,
    prefill: Duration,
    decode: Duration,
}

impl<B: Backend> Job<B> {
    fn timing(&self) -> Timing {
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        Timing {
            n_prefilled: self.n_prefilled,
            prefill_us: micros(self.prefill),
            n_generated: self.n_generated,
            decode_us: micros(self.decode),
        }
    }
}

/// All requests that run or wait.
pub struct Jobs<B: Backend> {
    engine: Engine<B>,
    scheduler: Scheduler,
    jobs: BTreeMap<u64, Job<B>>,
    /// Ids that end an answer.
    end_ids: BTreeSet<u32>,
    n_steps: u64,
}

impl<B: Backend> Jobs<B> {
    /// No requests yet. `bounds` must be those that the engine's buffers were made for.
    pub fn new(engine: Engine<B>, bounds: Bounds, end_ids: BTreeSet<u32>) -> Self {
        Self { engine, scheduler: Scheduler::new(bounds), jobs: BTreeMap::new(), end_ids, n_steps: 0 }
    }

    /// The engine, to describe it.
    pub fn engine(&self) -> &Engine<B> {
        &self.engine
    }

    /// Whether there is nothing to compute.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The requests of the next step, in order.
    pub fn next_step(&self) -> Vec<u64> {
        self.scheduler.shares().iter().map(|share| share.request).collect()
    }

    /// How the worker is.
    pub fn heartbeat(&self) -> Heartbeat {
        let sessions = self.jobs.values().filter_map(|job| job.session.as_ref());
        Heartbeat {
            n_steps: self.n_steps,
            n_requests: u32::try_from(self.jobs.len()).unwrap_or(u32::MAX),
            kv_bytes: sessions.map(|session| self.engine.kv_bytes(session)).sum(),
            activation_bytes: self.engine.activation_bytes(),
        }
    }

    /// Takes a request, or answers at once that it failed or has nothing left to do.
    pub fn submit(&mut self, submit: Submit, out: &mut Outbox) {
        let request = submit.request;
        let params = params_of(&submit.sampling);
        if let Err(message) = self.check(&submit, &params) {
            out.push(FromWorker::Failed { request, class: FailureClass::BadRequest, message });
            return;
        }
        let n_answer = submit.generated.len() as u32;
        let mut ids = submit.prompt;
        ids.extend(submit.generated);
        let is_full = ids.len() >= self.engine.options().n_ctx_tokens as usize;
        if n_answer >= submit.max_tokens || is_full {
            out.push(FromWorker::Done { request, finish: Finish::Length, timing: Timing::default() });
            return;
        }
        match self.scheduler.submit(request, ids.len() as u32) {
            Submitted::Taken => {
                let job = Job {
                    session: None,
                    ids,
                    params,
                    n_answer,
                    max_tokens: submit.max_tokens,
                    is_decoding: false,
                    n_prefilled: 0,
                    n_generated: 0,
                    prefill: Duration::ZERO,
                    decode: Duration::ZERO,
                };
                self.jobs.insert(request, job);
            }
            // The first one of this id will be answered; a second answer would break the rule of exactly one.
            Submitted::AlreadyPresent => {}
            Submitted::Full => {
                let message =
                    format!("the worker's queue is full: {} requests wait already", self.scheduler.n_waiting());
                out.push(FromWorker::Failed { request, class: FailureClass::BadRequest, message });
            }
        }
    }

    fn check(&self, submit: &Submit, params: &Params) -> Result<(), String> {
        params.check().map_err(|e| e.to_string())?;
        let n_ctx_tokens = self.engine.options().n_ctx_tokens;
        if submit.prompt.is_empty() {
            return Err("the prompt has no tokens".to_owned());
        }
        if submit.prompt.len() >= n_ctx_tokens as usize {
            return Err(ForwardError::ContextFull { n_tokens: submit.prompt.len() + 1, n_ctx_tokens }.to_string());
        }
        let n_vocab = self.engine.n_vocab();
        match submit.prompt.iter().chain(&submit.generated).find(|&&id| id as usize >= n_vocab) {
            Some(&id) => Err(ForwardError::UnknownToken { id, n_vocab }.to_string()),
            None => Ok(()),
        }
    }

    /// Ends a request; one that is not here has its answer on the way.
    pub fn cancel(&mut self, request: u64, out: &mut Outbox) {
        self.done(request, Finish::Cancelled, out);
    }

    /// Computes one step and chooses the next token of each session that is at its end.
    ///
    /// A step that `hook` stops, or that finds no memory, changes no session.
    pub fn step(&mut self, hook: &mut dyn FnMut(Point) -> Flow, out: &mut Outbox) {
        let shares = self.scheduler.shares();
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.compute(&shares, hook)));
        self.n_steps += 1;
        match outcome {
            Ok(Ok(logits)) => self.took(&shares, logits, started.elapsed(), out),
            Ok(Err(ForwardError::Stopped)) => {}
            Ok(Err(ForwardError::Backend(BackendError::OutOfMemory { wanted_bytes }))) => {
                // The youngest gives way: the others then fit, or give way in their turn.
                if let Some(share) = shares.last() {
                    let error = BackendError::OutOfMemory { wanted_bytes };
                    self.failed(share.request, FailureClass::OutOfMemory, error.to_string(), out);
                }
            }
            Ok(Err(error)) => self.all_failed(&shares, &error.to_string(), out),
            Err(panic) => self.all_failed(&shares, &format!("the engine failed in a step: {}", words_of(&*panic)), out),
        }
    }

    /// The logits of each share, or `None` where the session is not at its end yet.
    fn compute(
        &mut self,
        shares: &[Share],
        hook: &mut dyn FnMut(Point) -> Flow,
    ) -> Result<Vec<Option<Vec<f32>>>, ForwardError> {
        for share in shares {
            let Some(job) = self.jobs.get_mut(&share.request) else { continue };
            if job.session.is_none() {
                let mut session = self.engine.session(job.params.clone())?;
                session.extend(&std::mem::take(&mut job.ids));
                job.session = Some(session);
            }
        }
        let n_tokens: BTreeMap<u64, u32> = shares.iter().map(|share| (share.request, share.n_tokens)).collect();
        let mut requests = Vec::with_capacity(shares.len());
        let mut segments = Vec::with_capacity(shares.len());
        for (request, job) in &mut self.jobs {
            if let (Some(&n_tokens), Some(session)) = (n_tokens.get(request), job.session.as_mut()) {
                requests.push(*request);
                segments.push(Segment::next(session, n_tokens as usize));
            }
        }
        let mut rows: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
        self.engine.forward(&mut segments, hook, &mut |logits| {
            rows.insert(requests[logits.segment], logits.values.to_vec());
        })?;
        Ok(shares.iter().map(|share| rows.remove(&share.request)).collect())
    }

    /// A step was computed: counts it, chooses tokens, ends requests.
    fn took(&mut self, shares: &[Share], logits: Vec<Option<Vec<f32>>>, time: Duration, out: &mut Outbox) {
        for (&Share { request, n_tokens }, logits) in shares.iter().zip(logits) {
            self.scheduler.computed(request, n_tokens);
            let Some(job) = self.jobs.get_mut(&request) else { continue };
            if job.is_decoding {
                job.decode += time;
            } else {
                job.prefill += time;
                job.n_prefilled += n_tokens;
                out.push(FromWorker::Progress { request, n_prompt_done: job.n_prefilled });
            }
            if let Some(logits) = logits {
                self.choose(request, &logits, out);
            }
        }
    }

    fn choose(&mut self, request: u64, logits: &[f32], out: &mut Outbox) {
        let Some(job) = self.jobs.get_mut(&request) else { return };
        let Some(session) = job.session.as_mut() else { return };
        job.is_decoding = true;
        let id = match session.choose(logits) {
            Ok(id) => id,
            Err(error) => return self.failed(request, FailureClass::Engine, error.to_string(), out),
        };
        if self.end_ids.contains(&id) {
            return self.done(request, Finish::Stop, out);
        }
        session.extend(&[id]);
        job.n_answer += 1;
        job.n_generated += 1;
        out.push(FromWorker::Tokens { request, ids: vec![id] });
        let is_full = session.ids().len() >= self.engine.options().n_ctx_tokens as usize;
        if job.n_answer >= job.max_tokens || is_full {
            self.done(request, Finish::Length, out);
        } else {
            self.scheduler.chosen(request);
        }
    }

    fn done(&mut self, request: u64, finish: Finish, out: &mut Outbox) {
        if let Some(job) = self.jobs.remove(&request) {
            self.scheduler.finish(request);
            out.push(FromWorker::Done { request, finish, timing: job.timing() });
        }
    }

    fn failed(&mut self, request: u64, class: FailureClass, message: String, out: &mut Outbox) {
        if self.jobs.remove(&request).is_some() {
            self.scheduler.finish(request);
            out.push(FromWorker::Failed { request, class, message });
        }
    }

    /// The step's requests fail and their sessions, whose caches may be half written, are dropped; others go on.
    fn all_failed(&mut self, shares: &[Share], message: &str, out: &mut Outbox) {
        for share in shares {
            self.failed(share.request, FailureClass::Engine, message.to_owned(), out);
        }
    }
}

/// From the wire's type to the sampler's.
fn params_of(sampling: &Sampling) -> Params {
    Params {
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        repeat_penalty: sampling.repeat_penalty,
        repeat_last_n: sampling.repeat_last_n,
        seed: sampling.seed,
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}
