//! Who runs, who waits, who is refused.
//!
//! The daemon's loop owns one [`Admission`] and asks it about each request once its tokens are counted. A refusal is a
//! [`DenyReason`] with one sentence, and [`DenyReason::http`] is the only place that knows statuses. A request that is
//! already known is a third answer: it is neither admitted twice nor refused.
//!
//! The line is bounded and fair between clients (`queue`); a client holds at most its share of the keys and values while
//! another one waits; requests of one session run one after the other, they are one timeline. A running request keeps its slot
//! while its worker is dead: it will be given to the next one, alone if it is suspected of the death
//! ([`poison`](crate::poison)). Nothing is evicted for a newer request.
//!
//! ```text
//!            ┌─ Deny(reason)                     ┌──► parked ──┐ park: the worker is lost
//!  offer ────┼─ Wait ──► next: Submit ──► running│             │
//!            └─ Admit ──────────────────►   │ ▲  └─ next: Recall, recalled: a suspect's turn to run alone
//!                 cancel, expire ◄──────────┘ └────────────────┘ next: Resume
//! ```
//!
//! The driver's loop: on each event tell it what happened ([`came_to`](Admission::came_to), [`finish`](Admission::finish),
//! [`cancel`](Admission::cancel), …), then [`expire`](Admission::expire) and [`next`](Admission::next) until it says `None`;
//! sleep until [`next_wake`](Admission::next_wake).

mod facts;
mod queue;
mod reason;

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};

use crate::lifecycle::death::DeathClass;
use crate::poison::{Convicted, Suspects};

use queue::Queue;

pub use facts::{Cancelled, Capacity, ClientId, ClosedReason, Facts, Gate, Order, RequestId, SessionId, Verdict};
pub use reason::{DenyReason, HttpShape};

/// Where a request that holds a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    OnWorker,
    /// The worker was told to give it back.
    Recalled,
    /// On none.
    Parked,
}

/// A request that holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Running {
    facts: Facts,
    /// Tokens of keys and values that it was promised.
    n_kv: Tokens,
    seat: Seat,
    /// How far it is on its worker, in tokens from its beginning.
    position: Tokens,
}

/// The queue and the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    capacity: Capacity,
    /// For new work alone.
    context_cap: Option<Tokens>,
    is_paused: bool,
    running: BTreeMap<RequestId, Running>,
    queue: Queue,
    suspects: Suspects,
    /// What was on the worker that was lost last, until it is known what it died of.
    lost_step: Vec<(RequestId, Tokens)>,
}

impl Admission {
    /// Empty.
    pub fn new(capacity: Capacity) -> Admission {
        Admission {
            capacity,
            context_cap: None,
            is_paused: false,
            running: BTreeMap::new(),
            queue: Queue::default(),
            suspects: Suspects::default(),
            lost_step: Vec::new(),
        }
    }

    // ---- a request comes and goes -----------------------------------------------------------------------------------

    /// Judges a new request, and keeps it unless it is refused.
    pub fn offer(&mut self, now: Millis, gate: &Gate, facts: Facts) -> Verdict {
        if self.is_present(facts.request) {
            return Verdict::AlreadyPresent;
        }
        if let Err(reason) = self.judge(&facts) {
            return Verdict::Deny(reason);
        }
        let is_open = match gate {
            Gate::Closed(ClosedReason::NotReady { why, retry_after }) => {
                return Verdict::Deny(DenyReason::NotReady { why: why.clone(), retry_after: *retry_after });
            }
            Gate::Closed(ClosedReason::Draining) => return Verdict::Deny(DenyReason::Draining),
            Gate::Open => true,
            Gate::Hold => false,
        };
        // Only past an empty line: otherwise it would overtake those who wait.
        if is_open && self.n_waiting() == 0 && self.takes_new() && self.may_go(&facts) && self.fits(&facts) {
            self.queue.push(facts, self.cost(&facts));
            self.queue.take(facts.request);
            self.seat(facts);
            return Verdict::Admit;
        }
        if facts.deadline.is_some_and(|deadline| now >= deadline) {
            return Verdict::Deny(DenyReason::DeadlinePassed);
        }
        if self.n_waiting() >= self.capacity.max_waiting {
            return Verdict::Deny(DenyReason::QueueFull { n_waiting: self.n_waiting() });
        }
        self.queue.push(facts, self.cost(&facts));
        Verdict::Wait { position: self.position(facts.request).unwrap_or_default() }
    }

    /// What to do next. Call it until it says `None`, after each event.
    pub fn next(&mut self, gate: &Gate) -> Option<Order> {
        let takes_new = match gate {
            Gate::Open => self.takes_new(),
            // Who was in before the drain is still served; without a worker nobody is in then.
            Gate::Closed(ClosedReason::Draining) => false,
            Gate::Hold | Gate::Closed(ClosedReason::NotReady { .. }) => return None,
        };
        if let Some(suspect) = self.suspects.on_trial() {
            return self.next_of_trial(suspect);
        }
        if let Some(parked) = self.running.values_mut().find(|running| running.seat == Seat::Parked) {
            return Some(parked.resume());
        }
        if !takes_new {
            return None;
        }
        // Nobody overtakes the first one that may go while there is no room for it.
        let facts = self.queue.first(|facts| self.may_go(facts)).filter(|facts| self.fits(facts))?;
        self.queue.take(facts.request);
        self.seat(facts);
        Some(Order::Submit(facts))
    }

    /// A request came this far on its worker: tokens of prompt worked off, or of prompt and answer.
    pub fn came_to(&mut self, request: RequestId, position: Tokens) {
        if let Some(running) = self.running.get_mut(&request) {
            running.position = running.position.max(position);
            self.suspects.came_to(request, position);
        }
    }

    /// The worker gave a request back; false if nobody had asked it to: then it has ended.
    pub fn recalled(&mut self, request: RequestId) -> bool {
        match self.running.get_mut(&request) {
            Some(running) if running.seat == Seat::Recalled => {
                running.seat = Seat::Parked;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Frees the slot of a request that ended; false if it had none.
    pub fn finish(&mut self, request: RequestId) -> bool {
        let had_slot = self.running.remove(&request).is_some();
        self.suspects.forget(request);
        self.rest_if_empty();
        had_slot
    }

    /// Forgets a request, wherever it is.
    pub fn cancel(&mut self, request: RequestId) -> Cancelled {
        if self.finish(request) {
            return Cancelled::WasRunning;
        }
        let was_waiting = self.queue.remove(request);
        self.rest_if_empty();
        if was_waiting { Cancelled::WasWaiting } else { Cancelled::Unknown }
    }

    /// Refuses those who have waited for as long as they wanted to.
    pub fn expire(&mut self, now: Millis) -> Vec<(RequestId, DenyReason)> {
        let is_over = |facts: &Facts| facts.deadline.is_some_and(|deadline| now >= deadline);
        self.refuse(|_, facts| if is_over(facts) { Err(DenyReason::DeadlinePassed) } else { Ok(()) })
    }

    /// When to call [`Admission::expire`], if nothing happens before.
    pub fn next_wake(&self) -> Option<Millis> {
        self.queue.iter().filter_map(|facts| facts.deadline).min()
    }

    /// Forgets everything and says what it was: running first, then waiting in order.
    pub fn clear(&mut self) -> Vec<RequestId> {
        let waiting = self.queue.in_order().map(|facts| facts.request);
        let all = std::mem::take(&mut self.running).into_keys().chain(waiting).collect();
        self.queue = Queue::default();
        self.suspects = Suspects::default();
        all
    }

    // ---- the worker -------------------------------------------------------------------------------------------------

    /// The worker is lost, or is being replaced: every running request keeps its slot for the next one.
    pub fn park(&mut self) {
        let on_worker = |running: &&mut Running| running.seat != Seat::Parked;
        self.lost_step.clear();
        for running in self.running.values_mut().filter(on_worker) {
            running.seat = Seat::Parked;
            self.lost_step.push((running.facts.request, running.position));
        }
    }

    /// It is known what the lost worker died of. All that was submitted to it and had not ended counts as in the step that
    /// died. Returns the request that is convicted of it, which is forgotten here.
    pub fn worker_died(&mut self, class: &DeathClass, had_served: bool) -> Option<Convicted> {
        let mut step = std::mem::take(&mut self.lost_step);
        if !had_served || !class.accuses_requests() {
            return None;
        }
        step.retain(|(request, _)| self.running.contains_key(request));
        let convicted = self.suspects.step_died(&step)?;
        self.finish(convicted.request);
        Some(convicted)
    }

    // ---- bounds -----------------------------------------------------------------------------------------------------

    /// Takes the bounds of a new plan. Waiting requests that no longer fit the context are refused, and parked ones whose
    /// prompt does not; the others keep their order, and running ones stay even where there are fewer slots now.
    pub fn resize(&mut self, capacity: Capacity) -> Vec<(RequestId, DenyReason)> {
        self.capacity = capacity;
        let mut denied = Vec::new();
        for Running { facts, seat, .. } in self.running.values() {
            if let (Seat::Parked, Some(n_ctx)) = (seat, capacity.n_ctx)
                && facts.n_prompt >= n_ctx
            {
                denied.push((facts.request, DenyReason::TooLong { n_prompt: facts.n_prompt, n_ctx }));
            }
        }
        for (request, _) in &denied {
            self.finish(*request);
        }
        denied.extend(self.refuse(Admission::judge));
        denied
    }

    /// A smaller context for new work; running and parked requests keep what they were promised. Waiting ones that are over
    /// it are refused: they would wait for as long as it holds.
    pub fn cap_context(&mut self, cap: Option<Tokens>) -> Vec<(RequestId, DenyReason)> {
        self.context_cap = cap;
        self.refuse(Admission::judge)
    }

    /// While paused nothing new is started: it waits. What runs goes on, also after the death of its worker.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Whether new work is held back.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The bounds in force.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Most tokens of an answer: what was asked for, as far as the context has room behind the prompt.
    pub fn answer_tokens(&self, facts: Facts) -> Tokens {
        match self.n_ctx() {
            Some(n_ctx) => facts.max_tokens.min(n_ctx.saturating_sub(facts.n_prompt)),
            None => facts.max_tokens,
        }
    }

    /// What a request costs its client in virtual time: its prompt and the answer that is to be expected.
    pub fn cost(&self, facts: &Facts) -> u64 {
        let answer = self.answer_tokens(*facts).min(limits::EXPECTED_ANSWER);
        u64::from(facts.n_prompt.0) * limits::COST_OF_PROMPT_TOKEN + u64::from(answer.0) * limits::COST_OF_ANSWER_TOKEN
    }

    // ---- who is where -----------------------------------------------------------------------------------------------

    /// Requests ahead of a waiting one.
    pub fn position(&self, request: RequestId) -> Option<u32> {
        self.queue.in_order().position(|facts| facts.request == request).map(|at| at as u32)
    }

    /// Requests that hold a slot.
    pub fn running(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.running.keys().copied()
    }

    /// Requests that are on a worker now.
    pub fn on_worker(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.running.values().filter(|running| running.seat != Seat::Parked).map(|running| running.facts.request)
    }

    /// Requests that wait, in order.
    pub fn waiting(&self) -> impl Iterator<Item = Facts> + '_ {
        self.queue.in_order()
    }

    /// How many run.
    pub fn n_running(&self) -> u32 {
        self.running.len() as u32
    }

    /// How many wait.
    pub fn n_waiting(&self) -> u32 {
        self.queue.len() as u32
    }

    /// How many clients are known: those who wait, and those who are ahead of the line's clock.
    pub fn n_clients(&self) -> usize {
        self.queue.n_clients()
    }

    /// How many must run alone before others may.
    pub fn n_suspects(&self) -> u32 {
        self.suspects.n_suspects() as u32
    }

    fn is_present(&self, request: RequestId) -> bool {
        self.running.contains_key(&request) || self.queue.iter().any(|facts| facts.request == request)
    }

    /// The context of new work.
    fn n_ctx(&self) -> Option<Tokens> {
        self.capacity.n_ctx.into_iter().chain(self.context_cap).min()
    }

    /// Whether anybody new may start at all.
    fn takes_new(&self) -> bool {
        let all_on_worker = self.running.values().all(|running| running.seat == Seat::OnWorker);
        !self.is_paused && all_on_worker && self.suspects.on_trial().is_none()
    }

    /// Whether it may go before others: its session is free, and its client under its share while another one waits.
    fn may_go(&self, facts: &Facts) -> bool {
        let is_busy = |running: &Running| running.facts.session == facts.session;
        if facts.session.is_some() && self.running.values().any(is_busy) {
            return false;
        }
        let Some(kv) = self.capacity.kv else { return true };
        let of_client = self.running.values().filter(|running| running.facts.client == facts.client);
        let held: u64 = of_client.map(|running| u64::from(running.n_kv.0)).sum();
        let others_wait = self.queue.iter().any(|other| other.client != facts.client);
        let share = u64::from(kv.0) * limits::CLIENT_KV_SHARE_PERCENT / 100;
        !others_wait || held == 0 || held + u64::from(self.n_kv(facts).0) <= share
    }

    /// Whether there is a slot for it, and room for its keys and values. A request alone always fits: its length was judged.
    fn fits(&self, facts: &Facts) -> bool {
        let held: u64 = self.running.values().map(|running| u64::from(running.n_kv.0)).sum();
        let has_room =
            self.capacity.kv.is_none_or(|kv| held == 0 || held + u64::from(self.n_kv(facts).0) <= u64::from(kv.0));
        has_room && self.n_running() < self.capacity.max_running
    }

    fn n_kv(&self, facts: &Facts) -> Tokens {
        Tokens(facts.n_prompt.0.saturating_add(self.answer_tokens(*facts).0))
    }

    /// What is wrong with the request itself, whatever the load. Permanent refusals come before passing ones: a client
    /// that is told to wait must not find out afterwards that waiting was in vain.
    fn judge(&self, facts: &Facts) -> Result<(), DenyReason> {
        let n_prompt = facts.n_prompt;
        if n_prompt == Tokens(0) {
            return Err(DenyReason::EmptyPrompt);
        }
        match self.n_ctx() {
            Some(n_ctx) if n_prompt >= n_ctx => Err(DenyReason::TooLong { n_prompt, n_ctx }),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes those out of the line that `judge` refuses.
    fn refuse(&mut self, judge: impl Fn(&Admission, &Facts) -> Result<(), DenyReason>) -> Vec<(RequestId, DenyReason)> {
        let refused = |facts: Facts| judge(self, &facts).err().map(|reason| (facts.request, reason));
        let denied: Vec<_> = self.queue.in_order().filter_map(refused).collect();
        self.queue.keep(|facts| denied.iter().all(|(request, _)| *request != facts.request));
        self.rest_if_empty();
        denied
    }

    fn seat(&mut self, facts: Facts) {
        let running = Running { facts, n_kv: self.n_kv(&facts), seat: Seat::OnWorker, position: Tokens(0) };
        self.running.insert(facts.request, running);
    }

    /// A suspect runs alone: whoever else is on the worker comes back first.
    fn next_of_trial(&mut self, suspect: RequestId) -> Option<Order> {
        let mut others = self.running.values_mut().filter(|running| running.facts.request != suspect);
        if let Some(other) = others.find(|running| running.seat == Seat::OnWorker) {
            other.seat = Seat::Recalled;
            return Some(Order::Recall(other.facts.request));
        }
        if self.running.values().any(|running| running.seat == Seat::Recalled) {
            return None;
        }
        self.running.get_mut(&suspect).filter(|running| running.seat == Seat::Parked).map(Running::resume)
    }

    fn rest_if_empty(&mut self) {
        if self.running.is_empty() && self.queue.len() == 0 {
            self.queue.rest();
        }
    }
}

impl Running {
    /// Goes to a worker, which begins with its first token again.
    fn resume(&mut self) -> Order {
        self.seat = Seat::OnWorker;
        self.position = Tokens(0);
        Order::Resume(self.facts.request)
    }
}
