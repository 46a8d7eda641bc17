//! The worker's life: events to the lifecycle, its actions to orders.

use super::super::lever::{Lever as SimLever, MAX_CARDS, Positions};
use super::super::policy::{CardFacts, Order, Stop, Why};
use super::super::sight::{Exit as SimExit, Generation as SimGeneration, Sight};
use super::{Life, Ours, Release, senses, start};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::Input;
use plimsoll_decide::lifecycle::death::{Exit, OomAccount, OomKills, Traces};
use plimsoll_decide::lifecycle::{Action, Event, PlanId, WorkerEvent};

impl Ours {
    /// Hands an event to the lifecycle and carries out what it says. `sight` is needed where a plan may be made.
    pub(super) fn live(&mut self, now: Millis, sight: Option<&Sight>, event: Event, orders: &mut Vec<Order>) {
        let mut events = vec![event];
        // A look answers at once, and its answer may start a worker: two rounds, never more.
        while let Some(event) = events.pop() {
            for action in self.lifecycle.step(now, event) {
                if let Some(answer) = self.act(now, sight, action, orders) {
                    events.push(answer);
                }
            }
        }
    }

    fn act(&mut self, now: Millis, sight: Option<&Sight>, action: Action, orders: &mut Vec<Order>) -> Option<Event> {
        let stop = |how| move |worker| Order::Stop { worker, how };
        match action {
            Action::Look { caps, fallback } => {
                let earlier = fallback.and_then(|plan| self.plans.get(&plan).copied());
                let fresh = match sight {
                    Some(sight) => start::knobs(&self.facts, sight, &self.leasts, now, &caps),
                    None => Err("no reading yet".to_owned()),
                };
                return Some(self.judged(fresh, earlier));
            }
            Action::Spawn(_) => {
                let bytes = self.host_bytes(&self.knobs);
                let mut cards = [Bytes::ZERO; MAX_CARDS];
                for card in &self.facts.cards {
                    // The context and the window of keys and values are there at once.
                    let at_once = self.knobs.get(SimLever::KvWindow(card.card)).saturating_add(card.fixed);
                    cards[card.card.index()] = self.on_card(card).saturating_sub(at_once);
                }
                self.life = Life::Loads { bytes, cards };
                self.stands = self.knobs;
                orders.push(Order::Start { knobs: self.knobs, sessions: self.facts.max_sessions });
            }
            Action::SendStop => orders.extend(self.worker.map(stop(Stop::Frame))),
            Action::SignalTerm => orders.extend(self.worker.map(stop(Stop::Term))),
            Action::SignalKill => orders.extend(self.worker.map(stop(Stop::Kill))),
            Action::AwaitRelease(generation) => {
                let cards = std::mem::take(&mut self.cards_before);
                self.release = Some(Release { generation, cards, since: now });
            }
            Action::ParkRequests => {
                self.holding.clear();
                self.admission.park();
            }
            Action::Died { class, had_served } => {
                self.say(&format!("the worker {class}"));
                if let Some(convicted) = self.admission.worker_died(&class, had_served) {
                    self.refuse(convicted.request, Why::Poison, orders);
                }
            }
            Action::StoreLearned => {}
            Action::ResubmitRequests => {} // `serve` does, at the end of each step
            Action::FailRequests(end) => {
                self.say(&format!("requests fail: {end}"));
                self.holding.clear();
                for request in self.admission.clear() {
                    self.refuse(request, Why::NoWorker, orders);
                }
            }
        }
        None
    }

    /// The answer to a look.
    fn judged(&mut self, fresh: Result<Positions, String>, earlier: Option<Positions>) -> Event {
        match fresh {
            Err(why) => Event::CheckRefused { why },
            Ok(fresh) => {
                // The earlier plan is taken if it is no larger anywhere than what fits now.
                let fits =
                    |old: &Positions| self.facts.levers.iter().all(|fact| old.get(fact.lever) <= fresh.get(fact.lever));
                self.knobs = earlier.filter(fits).unwrap_or(fresh);
                let plan = PlanId(start::number(&self.facts, &self.knobs));
                self.plans.insert(plan, self.knobs);
                while self.plans.len() > limits::MAX_LEARNED_STEPS {
                    self.plans.pop_first();
                }
                Event::CheckPassed { plan, ours: start::ours(&self.facts, &self.knobs) }
            }
        }
    }

    fn host_bytes(&self, knobs: &Positions) -> Bytes {
        let host = self.facts.levers.iter().filter(|fact| senses::card_of(fact.lever.account()).is_none());
        host.map(|fact| knobs.get(fact.lever)).sum::<Bytes>().saturating_add(self.facts.host_fixed)
    }

    fn of_worker(&self, event: WorkerEvent) -> Option<Event> {
        let generation = self.lifecycle.state().generation()?;
        Some(Event::Worker { generation, event })
    }

    fn tell(&mut self, now: Millis, sight: &Sight, event: WorkerEvent, orders: &mut Vec<Order>) {
        if let Some(event) = self.of_worker(event) {
            self.live(now, Some(sight), event, orders);
        }
    }

    pub(super) fn spawned(&mut self, now: Millis, sight: &Sight, worker: SimGeneration, orders: &mut Vec<Order>) {
        self.worker = Some(worker);
        self.cards_before = self.cards(sight);
        self.govern(now, &Input::WorkerStarted, orders);
        self.tell(now, sight, WorkerEvent::Spawned, orders);
        self.tell(now, sight, WorkerEvent::Hello, orders);
    }

    pub(super) fn ready(&mut self, now: Millis, sight: &Sight, _: SimGeneration, orders: &mut Vec<Order>) {
        self.life = Life::Serves { has_run: false };
        self.govern(now, &Input::WorkerReady, orders);
        self.resize(self.knobs.get(SimLever::KvCapacity), orders);
        self.tell(now, sight, WorkerEvent::Ready, orders);
    }

    pub(super) fn exited(&mut self, now: Millis, sight: &Sight, exit: &SimExit, orders: &mut Vec<Order>) {
        for running in &exit.running {
            self.came_to(running);
        }
        self.life = Life::None;
        self.worker = None;
        self.sent.clear();
        self.govern(now, &Input::WorkerGone, orders);
        self.admission.pause(false);
        if exit.vram_error {
            let why = "an allocation on a card failed".to_owned();
            self.tell(now, sight, WorkerEvent::Exhausted { account: OomAccount::Vram, why }, orders);
        }
        let how = exit.signal.map_or(Exit::Code(exit.code.unwrap_or_default()), Exit::Signal);
        let names_it = exit.kernel_log_names_it == Some(true);
        let traces = Traces {
            oom_kills: Some(OomKills { before: 0, after: exit.cgroup_oom_kills }),
            kernel_log: names_it.then(|| "Out of memory: Killed process".to_owned()),
            xid: None,
        };
        self.tell(now, sight, WorkerEvent::Exited { exit: how, traces }, orders);
    }

    /// What the plan puts on a card.
    fn on_card(&self, card: &CardFacts) -> Bytes {
        let levers = self.facts.levers.iter();
        let on_card = levers.filter(|fact| senses::card_of(fact.lever.account()) == Some(card.card));
        on_card.map(|fact| self.knobs.get(fact.lever)).sum::<Bytes>().saturating_add(card.fixed)
    }

    /// Free bytes of each card, and what the plan puts there.
    fn cards(&self, sight: &Sight) -> Vec<(Bytes, Bytes)> {
        let of_card = |card: &CardFacts| {
            let free =
                sight.cards.get(card.card.index()).copied().flatten().map_or(Bytes::ZERO, |card| card.value.free);
            (free, self.on_card(card))
        };
        self.facts.cards.iter().map(of_card).collect()
    }

    /// Whether what the last worker held is back.
    pub(super) fn await_release(&mut self, now: Millis, sight: &Sight, orders: &mut Vec<Order>) {
        let Some(release) = &self.release else { return };
        let Release { generation, since, .. } = *release;
        let is_back = |(index, (free_before, _)): (usize, &(Bytes, Bytes))| {
            let free = sight.cards.get(index).copied().flatten().filter(|card| card.taken_at > since);
            // What was free before it started, less what others may have taken since.
            free.is_some_and(|card| card.value.free.saturating_add(limits::UNKNOWN_DEPARTURE_MIN) >= *free_before)
        };
        let host_is_fresh = sight.host.is_some_and(|host| host.taken_at > since && host.value.ours == Bytes::ZERO);
        let event = match host_is_fresh && release.cards.iter().enumerate().all(is_back) {
            true => Event::Released { generation },
            false if now.since(since) >= limits::RELEASE_TIMEOUT => {
                Event::ReleaseTimedOut { generation, held: "card memory".to_owned() }
            }
            false => return,
        };
        self.release = None;
        self.live(now, Some(sight), event, orders);
    }
}
