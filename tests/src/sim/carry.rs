//! What the policy orders, carried out. Orders that can't be are ignored here; the checker says so.

use super::clients::End;
use super::day::MIB;
use super::draw::{mix, pick};
use super::events::Cause;
use super::lever::{Card, Lever, Positions};
use super::memory::RETURN_BYTES_PER_MS;
use super::policy::{Order, Stop, Why};
use super::run::Run;
use super::sight::{Generation, Happening, RequestId};
use super::story::gib;
use super::worker::{Job, MICRO, Moving, Phase, Worker};
use super::world::{HAND_OVER, REQUEST_LINE};

/// Slabs go back whole.
const SLAB: i64 = 2 * MIB;
/// Prompts kept for reuse and KV are touched, not read: 1 and 4 GiB/s.
const PREFIX_BYTES_PER_MS: i64 = (1 << 30) / 1000;
const KV_BYTES_PER_MS: i64 = (4 << 30) / 1000;
/// Share of a prompt that a full prefix cache saves, hundredths.
const PREFIX_SAVES_PERCENT: i64 = 60;

impl Run<'_> {
    /// Carries out one order.
    pub(super) fn carry(&mut self, order: Order) {
        match order {
            Order::Start { knobs, sessions } => self.start(&knobs, sessions),
            Order::Move { worker, lever, to } => self.order_move(worker, lever, to.0 as i64),
            Order::Stop { worker, how } => self.stop(worker, how),
            Order::Submit { worker, request, from_position } => self.submit(worker, request, from_position),
            Order::Cancel { request } => {
                self.note_positions();
                self.take_job(request);
            }
            Order::Refuse { request, why } => {
                self.take_job(request);
                if self.requests.get(request.0 as usize).is_some() {
                    self.tell(|| format!("request {} is refused: {why:?}", request.0));
                    // Who has read the half of an answer was not refused: it is lost.
                    let has_begun = self.requests[request.0 as usize].position > 0;
                    let end = if has_begun && why != Why::Poison { End::Lost } else { End::Refused };
                    self.end_request(request.0 as usize, end);
                }
            }
            Order::PauseAdmission(paused) => {
                if let Some(worker) = &mut self.worker {
                    worker.paused = paused;
                }
                if !paused {
                    self.begin_waiting();
                }
            }
        }
    }

    /// Bytes that the disk gives in a millisecond now.
    pub(super) fn disk_bytes_per_ms(&self) -> i64 {
        let permille = self.day.disk[self.next.disk].1;
        (self.day.world.disk.read_mib_per_s as i64 * MIB / 1000 * permille / 1000).max(1)
    }

    /// Bytes that a lever's object gains in a millisecond.
    pub(super) fn raise_speed(&self, lever: Lever) -> i64 {
        let upload = |card: Card| self.day.world.cards[card.index()].upload_mib_per_s as i64 * MIB / 1000;
        match lever {
            Lever::PrefixCache => PREFIX_BYTES_PER_MS,
            Lever::KvCapacity => KV_BYTES_PER_MS,
            Lever::KvWindow(card) => upload(card),
            Lever::ResidentBudget => self.disk_bytes_per_ms(),
            Lever::ExpertCache(card) | Lever::GpuLayers(card) | Lever::Draft(card) => {
                self.disk_bytes_per_ms().min(upload(card))
            }
        }
    }

    fn start(&mut self, knobs: &Positions, sessions: u32) {
        if self.worker.is_some() {
            return;
        }
        self.last_generation += 1;
        let generation = Generation(self.last_generation);
        let sessions = sessions.min(self.facts.max_sessions) as usize;
        let fixed = self.facts.host_fixed.0 as i64;
        let mut worker = Worker::spawn(generation, knobs, &self.facts.levers, sessions, fixed);
        for card in &self.facts.cards {
            worker.card_fixed[card.card.index()] = card.fixed.0 as i64;
            let window = Lever::KvWindow(card.card).index();
            worker.pools[window] = super::pool::Pool::still(worker.positions[window]);
        }
        worker.pace_load(self.disk_bytes_per_ms());
        self.worker = Some(worker);
        self.stop_asked = false;
        self.note_ours();
        if self.story.is_wanted() {
            let levers: Vec<String> = self
                .facts
                .levers
                .iter()
                .map(|facts| format!("{} {}", facts.lever, gib(knobs.get(facts.lever).0 as i64)))
                .collect();
            self.tell(|| format!("worker {} is started with {}", generation.0, levers.join(", ")));
        }
        self.tell_policy(Happening::Spawned(generation));
        self.allocate();
    }

    /// An allocation on every card: it fails where the card is full.
    fn allocate(&mut self) {
        let free = |card: usize| self.memory.card_free(self.day, card, self.worker.as_ref(), &self.facts.levers);
        if let Some(card) = (0..self.day.cards.len()).find(|card| free(*card) < 0) {
            self.die(Cause::CardFull(card));
        }
    }

    fn order_move(&mut self, generation: Generation, lever: Lever, to: i64) {
        let bits = mix(self.day.seed, 0x0de4, self.now_ms as u64);
        let hand_over_ms = self.day.after_stall(self.now_ms + pick(bits, 1, HAND_OVER.0 as i64));
        let Some(worker) = self.worker.as_mut().filter(|worker| worker.generation == generation) else { return };
        let from = worker.positions[lever.index()];
        let begins_ms = if worker.loading { i64::MAX } else { hand_over_ms };
        worker.moves.push(Moving {
            lever,
            from,
            to,
            ordered_ms: self.now_ms,
            begins_ms,
            begun: false,
            held_before: 0,
            turned_round: false,
        });
        self.tell(|| format!("lever {lever} {} → {}", gib(from), gib(to)));
    }

    /// The hand-over of a move.
    pub(super) fn begin_move(&mut self, index: usize) {
        let Some(worker) = &self.worker else { return };
        let moving = worker.moves[index];
        let speed = self.raise_speed(moving.lever);
        let freed_permille = self.day.freed_permille;
        let Some(worker) = &mut self.worker else { return };
        for other in &mut worker.moves[..index] {
            other.turned_round |= other.lever == moving.lever;
        }
        let kv_in_use = worker.kv_in_use();
        let at = moving.lever.index();
        worker.positions[at] = moving.to;
        let held = worker.pools[at].held();
        worker.pools[at].halt();
        match held > moving.to {
            true if moving.lever == Lever::KvCapacity => {
                worker.pools[at].go(moving.to.max(kv_in_use).min(held), RETURN_BYTES_PER_MS);
            }
            true => {
                let promised = held - moving.to;
                let slabs = (promised * freed_permille / 1000 + SLAB - 1) / SLAB;
                worker.pools[at].go(held - promised.min(slabs * SLAB), RETURN_BYTES_PER_MS);
            }
            false => worker.pools[at].go(moving.to, speed),
        }
        let entry = &mut worker.moves[index];
        (entry.begun, entry.held_before) = (true, held);
    }

    fn stop(&mut self, generation: Generation, how: Stop) {
        let bits = mix(self.day.seed, 0x5707, self.now_ms as u64);
        let hand_over_ms = self.day.after_stall(self.now_ms + pick(bits, 1, HAND_OVER.0 as i64));
        let Some(worker) = self.worker.as_mut().filter(|worker| worker.generation == generation) else { return };
        let (at_ms, asked) = match how {
            Stop::Frame | Stop::Term if worker.hung => return,
            Stop::Frame | Stop::Term => (hand_over_ms, true),
            Stop::Kill => (self.now_ms + 1, false),
        };
        if worker.ends_ms.is_none_or(|before| at_ms < before) {
            worker.ends_ms = Some(at_ms);
            self.stop_asked = asked;
        }
        self.tell(|| format!("worker {} is told to end ({how:?})", generation.0));
    }

    fn submit(&mut self, generation: Generation, id: RequestId, from_position: u32) {
        let has_kv = self.facts.levers.iter().any(|facts| facts.lever == Lever::KvCapacity);
        let kv_per_token = self.facts.kv_per_token.0 as i64;
        let Some(request) = self.requests.get(id.0 as usize).copied().filter(|r| r.end.is_none()) else { return };
        let Some(worker) = self.worker.as_mut().filter(|worker| worker.generation == generation) else { return };
        let tokens = i64::from(request.offer.prompt_tokens + request.offer.max_tokens);
        let kv = tokens * kv_per_token;
        let at = Lever::KvCapacity.index();
        let room = !has_kv || worker.kv_in_use() + kv <= worker.positions[at];
        if worker.loading || worker.jobs.len() >= worker.sessions || !room {
            self.tell_policy(Happening::NoRoom(id));
            return;
        }
        let home = self.facts.levers.iter().find(|facts| facts.lever == Lever::PrefixCache).map(|facts| facts.home);
        let held = worker.pools[Lever::PrefixCache.index()].held();
        let saved = home.map_or(0, |home| PREFIX_SAVES_PERCENT * held / (home.0 as i64).max(1));
        let prompt = i64::from(request.offer.prompt_tokens) * MICRO / 100 * (100 - saved.min(PREFIX_SAVES_PERCENT));
        let left = prompt + i64::from(from_position) * MICRO;
        worker.jobs.push(Job {
            request: id,
            phase: if worker.paused { Phase::Waiting } else { Phase::Prefill(left.max(1)) },
            done: i64::from(from_position) * MICRO,
            until: i64::from(request.poison_at.unwrap_or(request.answer_tokens).max(from_position)),
            slow: false,
            kv,
        });
        if !worker.paused {
            self.begin_job(id);
        }
    }

    /// The start of a request in the worker: it allocates, and VRAM under its line makes it slow.
    fn begin_job(&mut self, id: RequestId) {
        if let Some(worker) = &mut self.worker {
            for card in &self.facts.cards {
                worker.prompt_path[card.card.index()] = card.prompt_path.0 as i64;
            }
        }
        self.note_ours();
        self.allocate();
        let free = |card: usize| self.memory.card_free(self.day, card, self.worker.as_ref(), &self.facts.levers);
        let is_short = (0..self.day.cards.len()).any(|card| free(card) < REQUEST_LINE.0 as i64);
        let Some(worker) = &mut self.worker else { return };
        if let Some(job) = worker.jobs.iter_mut().find(|job| job.request == id) {
            job.slow = is_short;
        }
        if is_short {
            self.tally.short_start();
            self.tell(|| format!("request {} begins with VRAM under its line: it will crawl", id.0));
        }
    }

    fn begin_waiting(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        let mut begun = Vec::new();
        for job in worker.jobs.iter_mut().filter(|job| job.phase == Phase::Waiting) {
            let prompt = self.requests[job.request.0 as usize].offer.prompt_tokens;
            job.phase = Phase::Prefill(i64::from(prompt) * MICRO + job.done);
            begun.push(job.request);
        }
        begun.into_iter().for_each(|id| self.begin_job(id));
    }

    /// Takes a job out of the worker; its KV goes where the lever stands lower.
    pub(super) fn take_job(&mut self, id: RequestId) {
        let Some(worker) = &mut self.worker else { return };
        worker.jobs.retain(|job| job.request != id);
        let at = Lever::KvCapacity.index();
        let keep = worker.positions[at].max(worker.kv_in_use());
        if !worker.loading && worker.pools[at].target() > keep {
            worker.pools[at].go(keep, RETURN_BYTES_PER_MS);
        }
    }
}
