//! What happens by itself: memory that runs out, bugs, loads and moves that end, tokens, clients, suspends.

use super::clients::End;
use super::draw::{mix, pick};
use super::lever::{Account, Card};
use super::run::Run;
use super::sight::{Exit, Happening, LeverAnswer};
use super::story::gib;
use super::worker::{Job, MICRO, Moving, Phase, Worker};
use plimsoll_config::units::{Bytes, Millis};

/// VRAM of an ended process comes back after so long.
const VRAM_RETURN_MS: (i64, i64) = (500, 1500);
/// The free counter follows a little later; once in five ends it stands still up to 8 s.
const COUNTER_LATE_MS: (i64, i64) = (0, 400);
const COUNTER_STUCK_MS: (i64, i64) = (2000, 8000);

/// Why a worker ended: the truth, which the daemon can only conclude from evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The kernel killed it: need went over a limit (the machine's or an ancestor's, by number).
    OutOfMemory(usize),
    /// An allocation on a card failed.
    CardFull(usize),
    /// A bug.
    Crash,
    /// A request that kills every worker at the same token.
    Poison(u32),
    /// Somebody else's `kill -9`.
    OutsideKill,
    /// It was told to end, and did.
    Told,
    /// We killed it.
    KilledByUs,
}

impl Run<'_> {
    /// Everything that is due now.
    pub(super) fn happen(&mut self) {
        self.memory_fails();
        self.outside();
        self.worker_goes_on();
        self.clients_act();
    }

    fn memory_fails(&mut self) {
        let Some(worker) = &self.worker else { return };
        let (day, levers) = (self.day, &self.facts.levers);
        if self.memory.kill_ms(day, worker, levers, self.now_ms).is_some() {
            let ours = self.memory.ours(Some(worker), levers);
            let room = |group: usize| day.limits[group] - self.memory.foreign(day, group) - ours;
            let group = (0..day.limits.len()).min_by_key(|group| room(*group)).unwrap_or(0);
            self.die(Cause::OutOfMemory(group));
        } else if self.memory.card_full_ms(day, worker, levers, self.now_ms).is_some() {
            let free = |card: &usize| self.memory.card_free(day, *card, self.worker.as_ref(), levers);
            let card = (0..day.cards.len()).min_by_key(free).unwrap_or(0);
            self.die(Cause::CardFull(card));
        }
    }

    fn outside(&mut self) {
        let day = self.day;
        while let Some((_, permille)) = day.disk.get(self.next.disk + 1).filter(|(at, _)| *at <= self.now_ms) {
            self.next.disk += 1;
            self.pace_disk();
            let permille = *permille;
            self.tell(|| format!("disk: {permille} ‰ of its bandwidth is left for the model"));
        }
        while let Some(suspend) = day.suspends.get(self.next.suspend).filter(|s| s.at_ms <= self.now_ms).copied() {
            self.next.suspend += 1;
            self.tell(|| format!("suspended for {} s", suspend.sleep_ms / 1000));
            self.slept_ms += suspend.sleep_ms;
            self.sensors.silence_cards(self.now_ms + suspend.card_silent_ms);
            for id in self.open.clone() {
                self.cancel(id);
            }
            self.tell(|| "resumed: clients are gone, the cards' driver is silent".to_owned());
        }
        while day.kills.get(self.next.kill).is_some_and(|at| *at <= self.now_ms) {
            self.next.kill += 1;
            self.die(Cause::OutsideKill);
        }
    }

    /// The disk's bandwidth has changed: loads and raises with it.
    fn pace_disk(&mut self) {
        let disk = self.disk_bytes_per_ms();
        let Some(worker) = &mut self.worker else { return };
        if worker.loading {
            worker.pace_load(disk);
            return;
        }
        let raised: Vec<_> =
            worker.moves.iter().filter(|moving| moving.begun && moving.to > moving.from).map(|m| m.lever).collect();
        for lever in raised {
            let speed = self.raise_speed(lever);
            if let Some(worker) = &mut self.worker {
                worker.pools[lever.index()].hurry(speed);
            }
        }
    }

    fn worker_goes_on(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        if worker.ends_ms.is_some_and(|at| at <= self.now_ms) {
            let cause = if self.stop_asked { Cause::Told } else { Cause::KilledByUs };
            self.die(cause);
            return;
        }
        if worker.loading && worker.ms_to_next().is_none() {
            worker.loading = false;
            for moving in &mut worker.moves {
                moving.begins_ms = self.now_ms + 1;
            }
            let generation = worker.generation;
            self.tell(|| format!("worker {} is ready", generation.0));
            self.tell_policy(Happening::Ready(generation));
        }
        self.bugs();
        self.jobs();
        self.moves();
    }

    fn bugs(&mut self) {
        let reached = |at: Option<&u64>, decoded: i64| at.is_some_and(|at| *at as i64 * MICRO <= decoded);
        while reached(self.day.hangs.get(self.next.hang), self.decoded) {
            self.next.hang += 1;
            if let Some(worker) = &mut self.worker {
                worker.hung = true;
                worker.ends_ms = None;
                self.tell(|| "the worker hangs".to_owned());
            }
        }
        while reached(self.day.crashes.get(self.next.crash), self.decoded) {
            self.next.crash += 1;
            self.die(Cause::Crash);
        }
    }

    fn jobs(&mut self) {
        let Some(worker) = self.worker.as_mut().filter(|worker| worker.works()) else { return };
        let mut finished = Vec::new();
        let mut poison = None;
        for job in &mut worker.jobs {
            let request = &self.requests[job.request.0 as usize];
            match job.phase {
                Phase::Waiting => {}
                Phase::Prefill(0) => job.phase = Phase::Decode,
                Phase::Prefill(_) => {}
                Phase::Decode if job.done < job.until * MICRO => {}
                Phase::Decode if request.poison_at.is_some() => poison = Some(job.request),
                Phase::Decode => finished.push(job.request),
            }
        }
        for request in finished {
            self.note_positions();
            self.take_job(request);
            let id = request.0 as usize;
            if self.requests[id].end.is_none() {
                self.end_request(id, End::Finished);
                self.tell_policy(Happening::Finished(request));
            }
        }
        if let Some(request) = poison {
            self.requests[request.0 as usize].deaths += 1;
            self.die(Cause::Poison(request.0));
        }
    }

    /// Hand-overs that are due, and moves that have arrived.
    fn moves(&mut self) {
        let Some(worker) = &self.worker else { return };
        if worker.moves.is_empty() || !worker.works() {
            return;
        }
        for index in 0..self.worker.as_ref().map_or(0, |worker| worker.moves.len()) {
            let due = self.worker.as_ref().map(|worker| worker.moves[index]);
            if due.is_some_and(|moving| !moving.begun && moving.begins_ms <= self.now_ms) {
                self.begin_move(index);
            }
        }
        let Some(worker) = &mut self.worker else { return };
        let pools = worker.pools;
        let arrived = |m: &Moving| m.turned_round || (m.begun && pools[m.lever.index()].ms_left().is_none());
        let answers: Vec<_> = worker.moves.iter().filter(|moving| arrived(moving)).copied().collect();
        worker.moves.retain(|moving| !arrived(moving));
        let generation = worker.generation;
        for moving in answers {
            let really = (moving.held_before - pools[moving.lever.index()].held()).abs();
            let lies = self.day.lying_worker && moving.to < moving.from;
            let answer = LeverAnswer {
                worker: generation,
                lever: moving.lever,
                from: Bytes(moving.from as u64),
                to: Bytes(moving.to as u64),
                moved: Bytes(if lies { moving.from - moving.to } else { really } as u64),
                took: Millis((self.now_ms - moving.ordered_ms) as u64),
                turned_round: moving.turned_round,
            };
            self.tell(|| {
                let turned = if moving.turned_round { ", turned round" } else { "" };
                let (took, promised) = (answer.took, (moving.from - moving.to).abs());
                format!("lever {} done in {took}: {} of {}{turned}", moving.lever, gib(really), gib(promised))
            });
            self.tell_policy(Happening::Lever(answer));
        }
    }

    fn clients_act(&mut self) {
        if self.now_ms >= self.day.length_ms {
            self.clients.close();
        }
        if self.clients.next_ms() <= self.now_ms {
            for request in self.clients.ask(self.day, self.now_ms, self.requests.len()) {
                self.open.push(self.requests.len());
                self.requests.push(request);
                self.tally.offered();
                self.tell_policy(Happening::Offered(request.offer));
            }
        }
        let gone = |id: &&usize| self.requests[**id].gives_up_ms <= self.now_ms;
        if self.open.iter().any(|id| gone(&id)) {
            let gone: Vec<usize> = self.open.iter().filter(gone).copied().collect();
            gone.into_iter().for_each(|id| self.cancel(id));
        }
    }

    /// A client is gone.
    fn cancel(&mut self, id: usize) {
        self.end_request(id, End::Cancelled);
        let request = self.requests[id].offer.request;
        self.tell_policy(Happening::Cancelled(request));
    }

    /// The worker's end.
    pub(super) fn die(&mut self, cause: Cause) {
        self.note_positions();
        let Some(worker) = self.worker.take() else { return };
        let bits = mix(self.day.seed, 0xdead, u64::from(worker.generation.0));
        let vram_ms = self.now_ms + pick(bits, VRAM_RETURN_MS.0, VRAM_RETURN_MS.1);
        self.memory.take_over(&worker, &self.facts.levers, vram_ms);
        let bits = mix(bits, 1, 1);
        let stuck = bits.is_multiple_of(5);
        let late = if stuck { COUNTER_STUCK_MS } else { COUNTER_LATE_MS };
        self.sensors.freeze_cards(vram_ms.max(self.now_ms + pick(mix(bits, 2, 2), late.0, late.1)));
        let exit = self.evidence(&worker, cause);
        self.tell_death(&worker, cause, &exit);
        self.tally.died(cause);
        self.note_ours();
        if !self.promises.journal {
            for running in &exit.running {
                self.end_request(running.request.0 as usize, End::Lost);
            }
        }
        self.tell_policy(Happening::Exited(exit));
    }

    fn evidence(&self, worker: &Worker, cause: Cause) -> Exit {
        let is_oom = matches!(cause, Cause::OutOfMemory(_));
        let (signal, code) = match cause {
            Cause::OutOfMemory(_) | Cause::OutsideKill | Cause::KilledByUs => (Some(9), None),
            Cause::Crash | Cause::Poison(_) => (Some(11), None),
            Cause::CardFull(_) => (None, Some(1)),
            Cause::Told => (None, Some(0)),
        };
        Exit {
            worker: worker.generation,
            signal,
            code,
            cgroup_oom_kills: u64::from(is_oom),
            kernel_log_names_it: self.day.world.host.kernel_log_readable.then_some(is_oom),
            vram_error: matches!(cause, Cause::CardFull(_)),
            asked_for: matches!(cause, Cause::Told | Cause::KilledByUs),
            running: worker.jobs.iter().map(Job::seen).collect(),
        }
    }

    fn tell_death(&mut self, worker: &Worker, cause: Cause, exit: &Exit) {
        let ours = worker.bytes(Account::Host, &self.facts.levers, 0).0;
        let words = match cause {
            Cause::OutOfMemory(group) => format!(
                "killed by the kernel: group {group} has {} of others and {} of ours, its limit is {}",
                gib(self.memory.foreign(self.day, group)),
                gib(ours),
                gib(self.day.limits[group])
            ),
            Cause::CardFull(card) => format!(
                "an allocation failed: card {card} has {} of others and {} of ours",
                gib(self.memory.card_foreign(self.day, card)),
                gib(worker.bytes(Account::Vram(Card(card as u8)), &self.facts.levers, 0).0)
            ),
            Cause::Crash => "signal 11: a bug".to_owned(),
            Cause::Poison(request) => format!("signal 11: request {request} is poison"),
            Cause::OutsideKill => "killed by somebody".to_owned(),
            Cause::Told => "ended as told".to_owned(),
            Cause::KilledByUs => "killed by us".to_owned(),
        };
        let n_running = exit.running.len();
        let generation = worker.generation.0;
        self.tell(|| format!("worker {generation}: {words}; {n_running} requests were running"));
    }
}
