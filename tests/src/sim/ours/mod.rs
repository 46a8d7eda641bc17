//! The policy of this project: governor, lifecycle, admission and poison of `decide`, driven as the daemon drives them.
//!
//! Nothing is decided here that `decide` decides. What is here is the daemon's thin part: readings in, orders out, the journal
//! of the requests, and the wait for released memory.
//!
//! Read in this order: [`Ours`], `life` (the worker), `requests` (queue and journal), `senses` and `start`.

mod life;
mod requests;
mod senses;
mod start;

use super::lever::{Lever as SimLever, Positions};
use super::policy::{Facts, Order, Policy};
use super::sight::{
    Generation as SimGeneration, Happening, LeverAnswer, Offer, RequestId as SimRequest, Running, Sight,
};
use plimsoll_config::units::{Bytes, Millis, Tokens};
use plimsoll_decide::admission::{Admission, Capacity};
use plimsoll_decide::governor::{self, Answer, Governor, Input, Mode, MoveId, Settings};
use plimsoll_decide::lifecycle::{Event, Lifecycle, PlanId, State};
use senses::Life;
use std::collections::BTreeMap;

/// A worker is never skipped over for longer than a policy may sleep.
const SLEEP_MAX: Millis = super::policy::MAX_SKIP;

/// Requests that may wait: as the daemon's default.
const MAX_WAITING: u32 = plimsoll_config::limits::DEFAULT_WAITING;

/// A request that was admitted, and what of its answer is there.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offer: Offer,
    position: u32,
}

/// The memory of an ended worker is awaited.
#[derive(Debug, Clone)]
struct Release {
    generation: plimsoll_decide::lifecycle::Generation,
    /// Free bytes of each card when the worker was last seen, and what it held there.
    cards: Vec<(Bytes, Bytes)>,
    since: Millis,
}

/// The daemon, without its machine.
pub struct Ours {
    facts: Facts,
    governor: Governor,
    lifecycle: Lifecycle,
    admission: Admission,
    journal: BTreeMap<SimRequest, Entry>,
    /// Requests that have a slot and wait until the card has shrunk for them.
    holding: Vec<SimRequest>,
    /// Orders to levers that were not answered.
    sent: Vec<(SimLever, Bytes, MoveId)>,
    /// Plans that were started, for a fallback.
    plans: BTreeMap<PlanId, Positions>,
    knobs: Positions,
    /// Where the levers of the living worker stand.
    stands: Positions,
    life: Life,
    leasts: start::Leasts,
    /// Free bytes of each card before the worker, and what it was to hold there.
    cards_before: Vec<(Bytes, Bytes)>,
    worker: Option<SimGeneration>,
    /// What ran at the last look, and how far it was: life is progress.
    seen: Vec<Running>,
    release: Option<Release>,
    next_look: Millis,
    is_idle: bool,
    reason: String,
}

impl Ours {
    /// The daemon at its start.
    #[must_use]
    pub fn new(facts: &Facts) -> Ours {
        Ours::with_governor(facts, Mode::Act)
    }

    /// The same with a governor that may do less.
    #[must_use]
    pub fn with_governor(facts: &Facts, mode: Mode) -> Ours {
        let capacity = Capacity { n_ctx: None, kv: None, max_running: facts.max_sessions, max_waiting: MAX_WAITING };
        let settings = Settings {
            mode,
            is_benchmark: false,
            vram_line_free: senses::vram_line(facts),
            vram_prompt: facts.cards.iter().map(|card| card.prompt_path).max().unwrap_or_default(),
            reads_per_token: (facts.experts > Bytes::ZERO).then_some(Bytes::ZERO),
        };
        Ours {
            facts: facts.clone(),
            governor: Governor::new(settings),
            lifecycle: Lifecycle::new(),
            admission: Admission::new(capacity),
            journal: BTreeMap::new(),
            holding: Vec::new(),
            sent: Vec::new(),
            plans: BTreeMap::new(),
            knobs: Positions::default(),
            stands: Positions::default(),
            life: Life::None,
            leasts: start::Leasts::default(),
            cards_before: Vec::new(),
            worker: None,
            seen: Vec::new(),
            release: None,
            next_look: Millis(0),
            is_idle: false,
            reason: String::new(),
        }
    }

    /// What one step has collected.
    fn happened(&mut self, now: Millis, sight: &Sight, orders: &mut Vec<Order>) {
        for happening in &sight.happened {
            match happening {
                Happening::Spawned(generation) => self.spawned(now, sight, *generation, orders),
                Happening::Ready(generation) => self.ready(now, sight, *generation, orders),
                Happening::Exited(exit) => self.exited(now, sight, exit, orders),
                Happening::Lever(answer) => self.lever_moved(now, answer, orders),
                Happening::Offered(offer) => self.offered(now, offer, orders),
                Happening::NoRoom(request) => self.hold_again(*request),
                Happening::Finished(request) => self.finished(*request),
                Happening::Cancelled(request) => self.cancelled(*request, orders),
            }
        }
    }

    fn lever_moved(&mut self, now: Millis, answer: &LeverAnswer, orders: &mut Vec<Order>) {
        let is_it = |(lever, to, _): &(SimLever, Bytes, MoveId)| *lever == answer.lever && *to == answer.to;
        let Some(at) = self.sent.iter().position(is_it) else { return };
        let (_, _, id) = self.sent.remove(at);
        self.govern(now, &Input::Answered(Answer { id, bytes: answer.moved }), orders);
        self.stands.set(answer.lever, answer.to);
        self.lifecycle.levers_moved(start::ours(&self.facts, &self.stands));
        if answer.lever == SimLever::KvCapacity {
            self.resize(answer.to, orders);
        }
    }

    /// Asks the governor and carries out what it says.
    fn govern(&mut self, now: Millis, input: &Input, orders: &mut Vec<Order>) -> Option<governor::Start> {
        let out = self.governor.step(now, input);
        for note in &out.notes {
            self.say(&note.to_string());
        }
        for order in out.orders {
            match (order, self.worker) {
                (governor::Order::Move(moved), Some(worker)) => {
                    let Some(lever) = senses::sim_lever(&self.facts, moved.lever, moved.account) else { continue };
                    self.sent.retain(|(other, _, _)| *other != lever);
                    self.sent.push((lever, moved.to, moved.id));
                    orders.push(Order::Move { worker, lever, to: moved.to });
                }
                (governor::Order::PauseAdmission, _) => self.admission.pause(true),
                (governor::Order::ResumeAdmission, _) => self.admission.pause(false),
                (governor::Order::Restart { at_once }, _) => {
                    self.live(now, None, Event::RestartAsked { at_once }, orders);
                }
                (governor::Order::Move(_), None) => {}
            }
        }
        self.next_look = out.next_sample;
        out.start
    }

    fn say(&mut self, words: &str) {
        if !self.reason.is_empty() {
            self.reason.push_str("; ");
        }
        self.reason.push_str(words);
    }

    /// Whether nothing is in flight and nothing presses.
    fn rests(&self, now: Millis) -> bool {
        let is_settled = match self.lifecycle.state() {
            State::Ready(_) | State::Absent | State::Failed(_) => true,
            State::Checking(_)
            | State::Starting(_)
            | State::Draining(_)
            | State::Stopping(_)
            | State::Releasing(_)
            | State::Backoff { .. } => false,
        };
        let sleeps_on = self.governor.wakes_at().is_none_or(|at| at > now.saturating_add(SLEEP_MAX) || at <= now);
        is_settled && sleeps_on && self.holding.is_empty() && self.sent.is_empty() && self.governor.is_calm(now)
    }

    /// Takes over the capacity for keys and values, in bytes.
    fn resize(&mut self, kv: Bytes, orders: &mut Vec<Order>) {
        let tokens = Tokens(u32::try_from(kv.0 / self.facts.kv_per_token.0.max(1)).unwrap_or(u32::MAX));
        let capacity = Capacity { n_ctx: Some(tokens), kv: Some(tokens), ..self.admission.capacity() };
        let denied = self.admission.resize(capacity);
        self.refuse_all(denied, orders);
    }
}

impl Policy for Ours {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        let mut orders = Vec::new();
        self.reason.clear();
        if now == Millis(0) || matches!(self.lifecycle.state(), State::Absent) {
            self.live(now, Some(sight), Event::StartAsked, &mut orders);
        }
        // A process that has ended gets no order any more: the daemon's signals go through a pidfd.
        self.worker =
            self.worker.filter(|_| !sight.happened.iter().any(|happened| matches!(happened, Happening::Exited(_))));
        self.progress(now, sight, &mut orders);
        if self.release.is_none() {
            start::note(&mut self.leasts, &self.facts, sight, self.life);
        }
        // Readings first: after a long sleep what was known is old.
        self.govern(now, &Input::Sample(senses::sample(&self.facts, sight, self.life)), &mut orders);
        self.happened(now, sight, &mut orders);
        self.await_release(now, sight, &mut orders);
        if self.lifecycle.next_wake().is_some_and(|at| now >= at) {
            self.live(now, Some(sight), Event::Tick, &mut orders);
        }
        self.serve(now, &mut orders);
        self.is_idle = self.rests(now);
        if let Some(at) = self.lifecycle.next_wake() {
            self.next_look = self.next_look.min(at);
        }
        orders
    }

    fn next_look(&self) -> Millis {
        self.next_look
    }

    fn idle(&self) -> bool {
        self.is_idle
    }

    fn reason(&self) -> String {
        self.reason.clone()
    }
}
