//! One policy through one day: the loop, the clock, and what is due when.
//!
//! ```text
//! step the policy if it is due ─► next moment = min(everything that is due) ─► exact crossing before it? ─► advance ─► events
//! ```
//! `events.rs` is what happens by itself, `carry.rs` what the policy orders.

use super::checker::Checker;
use super::clients::{Clients, End, Request};
use super::day::Day;
use super::lever::{Account, Card};
use super::memory::Memory;
use super::physics::{Physics, State};
use super::policy::{Facts, MAX_SKIP, MIN_STEP, Policy, Promises};
use super::score::{DayScore, Tally};
use super::sensors::{HostNow, Sensors};
use super::sight::{Happening, Reading, Sight, WorkerReport};
use super::story::Story;
use super::worker::{Job, MICRO, Worker};
use plimsoll_config::units::{Bytes, Millis};

/// After the day's end what is open may still be finished for so long.
pub const GRACE_MS: i64 = 15 * 60_000;

/// Most events of a day: a policy that never lets time pass is a bug.
const MAX_EVENTS: u64 = 20_000_000;

/// A day that runs.
pub struct Run<'a> {
    pub(super) day: &'a Day,
    pub(super) facts: Facts,
    pub(super) physics: Physics,
    pub(super) policy: Box<dyn Policy + 'a>,
    pub(super) promises: Promises,
    pub(super) now_ms: i64,
    pub(super) slept_ms: i64,
    pub(super) memory: Memory,
    pub(super) sensors: Sensors,
    pub(super) worker: Option<Worker>,
    pub(super) last_generation: u32,
    pub(super) stop_asked: bool,
    pub(super) clients: Clients,
    pub(super) requests: Vec<Request>,
    pub(super) open: Vec<usize>,
    pub(super) decoded: i64,
    pub(super) next: Due,
    pub(super) sight: Sight,
    pub(super) step_ms: i64,
    skipping: bool,
    is_squeezed: bool,
    pub(super) checker: Checker,
    pub(super) story: Story,
    pub(super) tally: Tally,
}

/// How far each list of the day has been used up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Due {
    pub(super) suspend: usize,
    pub(super) kill: usize,
    pub(super) crash: usize,
    pub(super) hang: usize,
    pub(super) disk: usize,
}

impl<'a> Run<'a> {
    /// Puts a policy into a day.
    #[must_use]
    pub fn new(day: &'a Day, policy: Box<dyn Policy + 'a>, tell: bool) -> Self {
        let facts = day.world.facts();
        let promises = policy.promises();
        Self {
            physics: Physics::new(&day.world, &facts.levers),
            promises,
            policy,
            now_ms: 0,
            slept_ms: 0,
            memory: Memory::new(day),
            sensors: Sensors::new(day),
            worker: None,
            last_generation: 0,
            stop_asked: false,
            clients: Clients::new(day),
            requests: Vec::new(),
            open: Vec::new(),
            decoded: 0,
            next: Due::default(),
            sight: Sight { cards: vec![None; day.cards.len()], ..Sight::default() },
            step_ms: 0,
            skipping: false,
            is_squeezed: false,
            checker: Checker::new(&facts, promises),
            story: Story::new(tell),
            tally: Tally::new(day.length_ms),
            facts,
            day,
        }
    }

    /// Plays the day to its end.
    #[must_use]
    pub fn play(mut self) -> DayScore {
        let mut n_events = 0;
        while !self.is_over() && n_events < MAX_EVENTS {
            n_events += 1;
            if self.step_ms <= self.now_ms {
                self.step();
            }
            let to_ms = self.next_ms();
            let to_ms = self.first_failure_ms(to_ms).unwrap_or(to_ms);
            self.advance(to_ms);
            self.happen();
            self.pace();
        }
        for id in std::mem::take(&mut self.open) {
            self.end_request(id, End::Lost);
        }
        self.checker.finish(&self.requests, n_events >= MAX_EVENTS);
        self.tally.finish(self.checker.into_findings(), &self.story, self.day.seed)
    }

    fn is_over(&self) -> bool {
        let length_ms = self.day.length_ms;
        self.now_ms >= length_ms + GRACE_MS || (self.now_ms >= length_ms && self.open.is_empty())
    }

    /// Milliseconds on the wall's clock since the day's beginning.
    pub(super) fn wall_ms(&self) -> i64 {
        self.now_ms + self.slept_ms
    }

    pub(super) fn tell(&mut self, words: impl FnOnce() -> String) {
        let wall_ms = self.wall_ms();
        self.story.tell(wall_ms, words);
    }

    /// Something happened that the policy is told at once.
    pub(super) fn tell_policy(&mut self, happening: Happening) {
        self.sight.happened.push(happening);
        self.step_ms = self.step_ms.min(self.now_ms);
    }

    /// The policy's look.
    fn step(&mut self) {
        self.look();
        let now = Millis(self.now_ms as u64);
        let orders = self.policy.step(now, &self.sight);
        self.checker.look(now, &self.sight, &orders, &self.requests);
        if self.story.is_wanted() {
            let reason = self.policy.reason();
            if !reason.is_empty() {
                self.tell(|| format!("policy: {reason}"));
            }
        }
        self.sight.happened.clear();
        for order in orders {
            self.carry(order);
        }
        let look_ms = self.policy.next_look().0.min(i64::MAX as u64) as i64;
        self.skipping = self.policy.idle() && self.memory.is_flat(self.day);
        self.step_ms = match (self.sight.happened.is_empty(), self.skipping) {
            (false, _) => self.now_ms + 1,
            (true, true) => self.now_ms + MAX_SKIP.0 as i64,
            (true, false) => look_ms.clamp(self.now_ms + MIN_STEP.0 as i64, self.now_ms + MAX_SKIP.0 as i64),
        };
    }

    /// Takes the readings.
    fn look(&mut self) {
        let ours = self.memory.ours(self.worker.as_ref(), &self.facts.levers);
        let rates = self.worker.as_ref().map(|worker| worker.rates).unwrap_or_default();
        let slope = self.worker.as_ref().map_or(0, |w| w.bytes(Account::Host, &self.facts.levers, 0).1);
        let file_rate = self.worker.as_ref().map_or(0, Worker::decode_rate) / 1000 * rates.file_bytes_per_token / 1000;
        let now = HostNow {
            swapped: self.memory.swapped(self.day, ours),
            swap_total: self.memory.swap_bytes(),
            refaults_per_s: if self.is_squeezed { 20_000 } else { 0 },
            major_faults_per_s: (file_rate >> 17) as u64,
            psi_permille: self.memory.psi_permille(self.day, ours, slope),
            disk_bytes_per_token: rates.file_bytes_per_token,
        };
        self.sight.boot_now = Millis(self.wall_ms() as u64);
        self.sight.host = self.sensors.read_host(self.day, self.now_ms, self.sight.host, &now);
        for card in 0..self.day.cards.len() {
            self.sight.cards[card] = self.sensors.read_card(self.day, card, self.now_ms, self.sight.cards[card]);
        }
        self.note_positions();
        self.sight.running.clear();
        self.sight.worker = None;
        let Some(worker) = &self.worker else { return };
        self.sight.running.extend(worker.jobs.iter().map(Job::seen));
        if !worker.loading {
            let mut value = WorkerReport {
                hits_vram_permille: rates.hits_permille.0 as u64,
                hits_ram_permille: rates.hits_permille.1 as u64,
                hits_file_permille: rates.hits_permille.2 as u64,
                tokens: (worker.decoded / MICRO) as u64,
                ..WorkerReport::default()
            };
            for facts in &self.facts.levers {
                let index = facts.lever.index();
                let position = worker.positions[index];
                let held = if self.day.lying_worker { position } else { worker.pools[index].held() };
                value.positions.set(facts.lever, Bytes(position as u64));
                value.held.set(facts.lever, Bytes(held as u64));
            }
            self.sight.worker = Some(Reading { taken_at: Millis(self.now_ms as u64), value });
        }
    }

    /// Answer tokens reach their clients as they are made.
    pub(super) fn note_positions(&mut self) {
        let Some(worker) = &self.worker else { return };
        for job in &worker.jobs {
            let request = &mut self.requests[job.request.0 as usize];
            if request.end.is_none() {
                request.position = request.position.max((job.done / MICRO) as u32);
            }
        }
    }

    /// The next moment at which anything is due.
    fn next_ms(&self) -> i64 {
        let day = self.day;
        let mut next = self.step_ms.min(self.memory.next_ms(day)).min(self.clients.next_ms());
        let end_ms = if self.now_ms < day.length_ms { day.length_ms } else { day.length_ms + GRACE_MS };
        next = next.min(end_ms);
        next = next.min(day.disk.get(self.next.disk + 1).map_or(i64::MAX, |(at, _)| *at));
        next = next.min(day.suspends.get(self.next.suspend).map_or(i64::MAX, |suspend| suspend.at_ms));
        next = next.min(day.kills.get(self.next.kill).copied().unwrap_or(i64::MAX));
        for id in &self.open {
            next = next.min(self.requests[*id].gives_up_ms);
        }
        if let Some(worker) = &self.worker {
            next = next.min(worker.ms_to_next().map_or(i64::MAX, |ms| self.now_ms + ms));
            next = next.min(worker.ends_ms.unwrap_or(i64::MAX));
            // A hung worker hands nothing over any more.
            let waiting = worker.moves.iter().filter(|moving| !moving.begun && !worker.hung);
            next = next.min(waiting.map(|moving| moving.begins_ms).min().unwrap_or(i64::MAX));
            next = next.min(self.bug_ms(worker));
        }
        next.max(self.now_ms)
    }

    /// When the next bug of the worker strikes.
    fn bug_ms(&self, worker: &Worker) -> i64 {
        let rate = worker.decode_rate();
        if rate == 0 || !worker.works() {
            return i64::MAX;
        }
        let lists = [self.day.crashes.get(self.next.crash), self.day.hangs.get(self.next.hang)];
        let at = lists.into_iter().flatten().min();
        at.map_or(i64::MAX, |at| self.now_ms + (*at as i64 * MICRO - self.decoded + rate - 1).max(0) / rate)
    }

    /// The first moment up to `to_ms` at which memory fails the worker.
    fn first_failure_ms(&self, to_ms: i64) -> Option<i64> {
        let worker = self.worker.as_ref()?;
        let levers = &self.facts.levers;
        let killed = self.memory.kill_ms(self.day, worker, levers, to_ms);
        let full = self.memory.card_full_ms(self.day, worker, levers, to_ms);
        killed.into_iter().chain(full).min()
    }

    fn advance(&mut self, to_ms: i64) {
        let ms = to_ms - self.now_ms;
        if ms > 0 {
            self.tally.passed(ms, self.worker.as_ref());
        }
        self.memory.advance(self.day, to_ms);
        if let Some(worker) = &mut self.worker {
            self.decoded += worker.advance(ms);
        }
        self.now_ms = to_ms;
        self.note_ours();
    }

    /// Notes ours for the sensors.
    pub(super) fn note_ours(&mut self) {
        let levers = &self.facts.levers;
        let ours = self.memory.ours(self.worker.as_ref(), levers);
        self.sensors.note(Account::Host, self.now_ms, ours);
        for card in 0..self.day.cards.len() {
            let account = Account::Vram(Card(card as u8));
            let bytes = self.worker.as_ref().map_or(0, |worker| worker.bytes(account, levers, 0).0);
            self.sensors.note(account, self.now_ms, bytes + self.memory.card_leaving(card));
        }
    }

    /// After events: the worker's speed, and whether the policy has to look.
    fn pace(&mut self) {
        if self.skipping && !self.memory.is_flat(self.day) {
            self.skipping = false;
            self.step_ms = self.now_ms;
        }
        let ours = self.memory.ours(self.worker.as_ref(), &self.facts.levers);
        self.is_squeezed = self.memory.is_squeezed(self.day, ours);
        let Some(worker) = &mut self.worker else { return };
        let state = State {
            held: &worker.held(),
            kv: worker.kv_in_use(),
            n_running: worker.n_active(),
            disk_permille: self.day.disk[self.next.disk].1,
            swapped: self.memory.swapped(self.day, ours),
            ours,
            squeezed: self.is_squeezed,
        };
        worker.rates = self.physics.rates(&state);
    }

    /// A request has ended.
    pub(super) fn end_request(&mut self, id: usize, end: End) {
        self.note_positions();
        let request = &mut self.requests[id];
        if request.end.is_some() {
            return;
        }
        request.end = Some(end);
        let request = *request;
        self.open.retain(|other| *other != id);
        self.tally.ended(&request);
        self.clients.ended(self.day, &request, self.now_ms);
        if self.now_ms >= self.day.length_ms {
            self.clients.close();
        }
        match end {
            End::Finished | End::Cancelled => {}
            End::Refused | End::Lost => {
                self.tell(|| format!("request {id} {} after {} tokens", words(end), request.position));
            }
        }
    }
}

fn words(end: End) -> &'static str {
    match end {
        End::Finished => "finished",
        End::Cancelled => "cancelled",
        End::Refused => "refused",
        End::Lost => "LOST",
    }
}
