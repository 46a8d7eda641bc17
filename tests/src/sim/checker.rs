//! The rules, checked after each step from the log of orders, what was visible and the truth; it knows no policy.
//!
//! For every policy: at most one worker; an order names the living worker (no signal to a process that is not ours); a request is
//! submitted from the very token its client has, never while it runs or after its end, and ends exactly once.
//! For a policy that promises discipline also:
//! - levers stay within floor and home; at most one move in flight in an account (a downward order may turn round the raise of
//!   the same lever); no further downward move in an account before the former one's answer and, unless [`READ_TIMEOUT`] passed,
//!   a reading taken after it;
//! - an upward move comes [`QUIET`] after the last downward move and the last reading over the line in its account, on a reading
//!   not older than [`MAX_AGE`]; at most [`MAX_UNDONE_PER_HOUR`] of them are undone within an hour ([`UNDONE_WITHIN`]);
//! - the ledger is within every line after a start and after each upward move, at a reading not older than [`MAX_AGE`];
//! - within [`OOM_MEMORY`] of a death for memory, a start has a lever of that account lower than at the death, unless others
//!   hold at least [`ROOM_MADE`] less there than at the death;
//! - a request refused as poison is poison; a poison request kills at most [`MAX_POISON_DEATHS`] workers.

use super::clients::{End, Request};
use super::lever::{Account, Lever, Positions};
use super::policy::{Facts, Order, Promises, Why};
use super::sight::{Exit, Generation, Happening, LeverAnswer, RequestId, Sight};
use plimsoll_config::units::{Bytes, Millis};

/// After this long without a newer reading the next downward move may come all the same.
pub const READ_TIMEOUT: Millis = Millis(1_000);
/// Least quiet time before an upward move.
pub const QUIET: Millis = Millis(120_000);
/// Oldest reading that an upward move or a start may use.
pub const MAX_AGE: Millis = Millis(5_000);
/// A recovery is undone when a downward move of its account follows within this time.
pub const UNDONE_WITHIN: Millis = Millis(600_000);
/// Most undone recoveries in any hour, for each account that there is.
pub const MAX_UNDONE_PER_HOUR: usize = 6;
/// A death for memory is remembered for so long.
pub const OOM_MEMORY: Millis = Millis(2 * 3_600_000);
/// Others hold so much less: that is room.
pub const ROOM_MADE: Bytes = Bytes::from_mib(256);
/// Most workers that one poison request may kill.
pub const MAX_POISON_DEATHS: u32 = 3;
/// Readings differ by their sensor's noise: no rule is broken by less.
pub const TOLERANCE: Bytes = Bytes::from_mib(64);
/// Sentences kept for a day; a policy that breaks a rule at each step needs no more.
const MAX_FINDINGS: usize = 20;

/// What the checker found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Broken rules, as sentences.
    pub violations: Vec<String>,
    /// When recoveries were undone.
    pub undone_ms: Vec<u64>,
    /// Moves down, and starts with a lever lower than before.
    pub downgrades: u32,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    lever: Lever,
    is_up: bool,
}

#[derive(Debug, Clone, Copy)]
struct OomDeath {
    at: Millis,
    account: Account,
    positions: Positions,
    foreign: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct AccountLog {
    in_flight: Option<InFlight>,
    last_down: Option<Millis>,
    last_answer: Option<Millis>,
    last_pressure: Option<Millis>,
    last_up: Option<Millis>,
}

/// The checker of one day.
#[derive(Debug, Clone)]
pub struct Checker {
    facts: Facts,
    promises: Promises,
    now: Millis,
    alive: Option<Generation>,
    spawning: bool,
    positions: Positions,
    accounts: [AccountLog; Account::COUNT],
    ooms: Vec<OomDeath>,
    running: Vec<RequestId>,
    findings: Findings,
}

impl Checker {
    /// At the day's beginning.
    #[must_use]
    pub fn new(facts: &Facts, promises: Promises) -> Self {
        Self {
            facts: facts.clone(),
            promises,
            now: Millis(0),
            alive: None,
            spawning: false,
            positions: Positions::default(),
            accounts: [AccountLog::default(); Account::COUNT],
            ooms: Vec::new(),
            running: Vec::new(),
            findings: Findings::default(),
        }
    }

    /// What was found.
    #[must_use]
    pub fn into_findings(self) -> Findings {
        self.findings
    }

    fn broken(&mut self, words: impl FnOnce() -> String) {
        if self.findings.violations.len() < MAX_FINDINGS {
            let at = super::story::time_of_day(self.now.0 as i64);
            self.findings.violations.push(format!("{at} {}", words()));
        }
    }

    /// One step: what the policy saw and what it ordered.
    pub fn look(&mut self, now: Millis, sight: &Sight, orders: &[Order], requests: &[Request]) {
        self.now = now;
        for happening in &sight.happened {
            self.happened(happening, sight);
        }
        self.pressure(sight);
        if orders.is_empty() {
            return;
        }
        self.running.clear();
        self.running.extend(sight.running.iter().map(|running| running.request));
        for order in orders {
            self.order(order, sight, requests);
        }
    }

    fn happened(&mut self, happening: &Happening, sight: &Sight) {
        match happening {
            Happening::Spawned(generation) => self.alive = Some(*generation),
            Happening::Exited(exit) => self.exited(exit, sight),
            Happening::Lever(answer) => self.answered(answer),
            Happening::Ready(_)
            | Happening::Offered(_)
            | Happening::NoRoom(_)
            | Happening::Finished(_)
            | Happening::Cancelled(_) => {}
        }
        self.spawning = false;
    }

    fn exited(&mut self, exit: &Exit, sight: &Sight) {
        self.alive = None;
        self.accounts.iter_mut().for_each(|log| log.in_flight = None);
        let account = if exit.cgroup_oom_kills > 0 {
            Account::Host
        } else if exit.vram_error {
            self.facts
                .cards
                .iter()
                .map(|card| card.card)
                .min_by_key(|card| free(sight, *card))
                .map_or(Account::Host, Account::Vram)
        } else {
            return;
        };
        let foreign = foreign(sight, account);
        self.ooms.push(OomDeath { at: self.now, account, positions: self.positions, foreign });
    }

    fn answered(&mut self, answer: &LeverAnswer) {
        if Some(answer.worker) != self.alive {
            return;
        }
        let log = &mut self.accounts[answer.lever.account().index()];
        if !answer.turned_round && log.in_flight.is_some_and(|flight| flight.lever == answer.lever) {
            if answer.to < answer.from {
                log.last_answer = Some(self.now);
            }
            log.in_flight = None;
        }
    }

    fn pressure(&mut self, sight: &Sight) {
        let tolerance = TOLERANCE.0 as i64;
        if sight.host.is_some_and(|reading| reading.value.room_to_line() < -tolerance) {
            self.accounts[Account::Host.index()].last_pressure = Some(self.now);
        }
        for card in &self.facts.cards {
            let line = card.request_line.saturating_sub(TOLERANCE);
            if free(sight, card.card).is_some_and(|free| free < line) {
                self.accounts[Account::Vram(card.card).index()].last_pressure = Some(self.now);
            }
        }
    }

    fn order(&mut self, order: &Order, sight: &Sight, requests: &[Request]) {
        match order {
            Order::Start { knobs, .. } => self.start(knobs, sight),
            Order::Move { worker, lever, to } => {
                self.same_worker(*worker, "a lever's order");
                self.moved(*lever, *to, sight);
            }
            Order::Stop { worker, .. } => self.same_worker(*worker, "a stop"),
            Order::Submit { worker, request, from_position } => {
                self.same_worker(*worker, "a request");
                self.submitted(*request, *from_position, requests);
            }
            Order::Cancel { request } => self.running.retain(|running| running != request),
            Order::Refuse { request, why } => self.refused(*request, *why, requests),
            Order::PauseAdmission(_) => {}
        }
    }

    fn same_worker(&mut self, worker: Generation, what: &str) {
        if self.alive != Some(worker) {
            let alive = self.alive;
            self.broken(|| format!("{what} goes to worker {}, but the living one is {alive:?}", worker.0));
        }
    }

    fn submitted(&mut self, id: RequestId, from_position: u32, requests: &[Request]) {
        let Some(request) = requests.get(id.0 as usize) else {
            return self.broken(|| format!("request {} is submitted and was never offered", id.0));
        };
        if let Some(end) = request.end {
            self.broken(|| format!("request {} is submitted after its end ({end:?})", id.0));
        } else if self.running.contains(&id) {
            self.broken(|| format!("request {} is submitted while it runs", id.0));
        } else if from_position != request.position {
            let has = request.position;
            self.broken(|| format!("request {} goes on at token {from_position}, its client has {has}", id.0));
        }
        self.running.push(id);
    }

    fn refused(&mut self, id: RequestId, why: Why, requests: &[Request]) {
        match requests.get(id.0 as usize) {
            Some(request) if request.end.is_none() => {
                if why == Why::Poison && request.poison_at.is_none() {
                    self.broken(|| format!("request {} is refused as poison and is innocent", id.0));
                }
            }
            Some(_) | None => self.broken(|| format!("request {} is refused and is not open", id.0)),
        }
    }

    fn start(&mut self, knobs: &Positions, sight: &Sight) {
        if self.alive.is_some() || self.spawning {
            self.broken(|| "a second worker is started beside the living one".to_owned());
        }
        self.spawning = true;
        let levers = self.facts.levers.clone();
        if levers.iter().any(|facts| knobs.get(facts.lever) < self.positions.get(facts.lever)) {
            self.findings.downgrades += 1;
        }
        if self.promises.discipline {
            for facts in &levers {
                self.within(facts.lever, knobs.get(facts.lever));
            }
            self.start_within_lines(knobs, sight);
            self.not_the_same_again(knobs, sight);
        }
        self.positions = *knobs;
    }

    fn within(&mut self, lever: Lever, to: Bytes) {
        let facts = self.facts.levers.iter().find(|facts| facts.lever == lever).copied();
        if facts.is_none_or(|facts| to < facts.floor || to > facts.home) {
            self.broken(|| format!("lever {lever} is put to {to}, outside of floor and home"));
        }
    }

    fn planned(&self, account: Account, knobs: &Positions) -> Bytes {
        let levers = self.facts.levers.iter().filter(|facts| facts.lever.account() == account);
        let levers: Bytes = levers.map(|facts| knobs.get(facts.lever)).sum();
        let beside = match account {
            Account::Host => self.facts.host_fixed,
            Account::Vram(card) => {
                let card = &self.facts.cards[card.index()];
                card.fixed.saturating_add(card.prompt_path).saturating_add(card.request_line)
            }
        };
        levers.saturating_add(beside)
    }

    fn start_within_lines(&mut self, knobs: &Positions, sight: &Sight) {
        let cards: Vec<Account> = self.facts.cards.iter().map(|card| Account::Vram(card.card)).collect();
        for account in std::iter::once(Account::Host).chain(cards) {
            let is_fresh = sight.taken_at(account).is_some_and(|at| self.now.since(at) <= MAX_AGE);
            let room = match account {
                Account::Host => sight.host.map(|r| r.value.room_to_line() + r.value.ours.0 as i64),
                Account::Vram(card) => free(sight, card).map(|free| free.0 as i64),
            };
            let planned = self.planned(account, knobs);
            match room {
                Some(room) if is_fresh => {
                    if planned.0 as i64 > room + TOLERANCE.0 as i64 {
                        let room = super::story::gib(room);
                        self.broken(|| format!("a start plans {planned} in {account} where {room} are left"));
                    }
                }
                Some(_) | None => self.broken(|| format!("a start has no fresh reading of {account}")),
            }
        }
    }

    fn not_the_same_again(&mut self, knobs: &Positions, sight: &Sight) {
        let now = self.now;
        self.ooms.retain(|oom| now.since(oom.at) <= OOM_MEMORY);
        for oom in self.ooms.clone() {
            let mut levers = self.facts.levers.iter().filter(|facts| facts.lever.account() == oom.account);
            let is_lower = levers.any(|facts| knobs.get(facts.lever) < oom.positions.get(facts.lever));
            let has_room = match (oom.foreign, foreign(sight, oom.account)) {
                (Some(then), Some(now)) => now + ROOM_MADE.0 as i64 <= then,
                (None, _) | (_, None) => false,
            };
            if !is_lower && !has_room {
                self.broken(|| format!("a start repeats the knobs that died for memory of {}", oom.account));
            }
        }
    }

    fn moved(&mut self, lever: Lever, to: Bytes, sight: &Sight) {
        let account = lever.account();
        let from = self.positions.get(lever);
        let is_up = to > from;
        if !is_up && to < from {
            self.findings.downgrades += 1;
        }
        if self.promises.discipline {
            self.within(lever, to);
            self.one_in_flight(lever, is_up);
            if is_up {
                self.may_rise(account, sight);
                self.raise_within_line(account, to.saturating_sub(from), sight);
            } else {
                self.may_fall_again(account, sight);
            }
        }
        self.positions.set(lever, to);
        let now = self.now;
        let log = &mut self.accounts[account.index()];
        log.in_flight = Some(InFlight { lever, is_up });
        if is_up {
            log.last_up = Some(now);
            return;
        }
        log.last_down = Some(now);
        log.last_answer = None;
        if log.last_up.take().is_some_and(|up| now.since(up) <= UNDONE_WITHIN) {
            self.undone();
        }
    }

    fn undone(&mut self) {
        self.findings.undone_ms.push(self.now.0);
        let hour_ago = self.now.0.saturating_sub(3_600_000);
        let n = self.findings.undone_ms.iter().filter(|at| **at >= hour_ago).count();
        let most = MAX_UNDONE_PER_HOUR * (1 + self.facts.cards.len());
        if self.promises.discipline && n > most {
            self.broken(|| format!("{n} recoveries were undone within an hour"));
        }
    }

    fn one_in_flight(&mut self, lever: Lever, is_up: bool) {
        let flight = self.accounts[lever.account().index()].in_flight;
        let turns_round = flight.is_some_and(|flight| flight.lever == lever && flight.is_up && !is_up);
        if let Some(flight) = flight.filter(|_| !turns_round) {
            self.broken(|| format!("lever {lever} is moved while {} is on its way", flight.lever));
        }
    }

    fn may_fall_again(&mut self, account: Account, sight: &Sight) {
        let log = self.accounts[account.index()];
        let Some(answer) = log.last_answer else { return };
        let is_seen = sight.taken_at(account).is_some_and(|taken| taken > answer);
        if !is_seen && self.now.since(answer) <= READ_TIMEOUT {
            self.broken(|| format!("{account} is lowered again before its relief was measured"));
        }
    }

    fn may_rise(&mut self, account: Account, sight: &Sight) {
        let log = self.accounts[account.index()];
        let now = self.now;
        for (at, what) in [(log.last_down, "a downward move"), (log.last_pressure, "pressure")] {
            if let Some(at) = at.filter(|at| now.since(*at) < QUIET) {
                self.broken(|| format!("{account} is raised {} after {what}", now.since(at)));
            }
        }
        if sight.taken_at(account).is_none_or(|taken| now.since(taken) > MAX_AGE) {
            self.broken(|| format!("{account} is raised on an old reading"));
        }
    }

    /// The ledger with the bytes that are given back is still within its line.
    fn raise_within_line(&mut self, account: Account, more: Bytes, sight: &Sight) {
        let room = match account {
            Account::Host => sight.host.map(|reading| reading.value.room_to_line()),
            Account::Vram(card) => {
                let line = self.facts.cards[card.index()].request_line;
                free(sight, card).map(|free| free.0 as i64 - line.0 as i64)
            }
        };
        // Noise in two readings, and a second or two between them: a plan that is off by less breaks no line for long.
        if room.is_none_or(|room| more.0 as i64 > room + 4 * TOLERANCE.0 as i64) {
            let room = room
                .map_or_else(|| "nothing is known to be".to_owned(), |room| format!("{} are", super::story::gib(room)));
            self.broken(|| format!("{account} is raised by {more} where {room} left under the line"));
        }
    }

    /// The day is over.
    pub fn finish(&mut self, requests: &[Request], is_endless: bool) {
        if is_endless {
            self.broken(|| "the day never ends: no time passes between the policy's looks".to_owned());
        }
        for request in requests {
            let id = request.offer.request.0;
            match request.end {
                None => self.broken(|| format!("request {id} never ended")),
                Some(End::Lost) if self.promises.journal => {
                    self.broken(|| format!("request {id} was admitted and is lost"));
                }
                Some(End::Lost | End::Finished | End::Cancelled | End::Refused) => {}
            }
            if self.promises.discipline && request.deaths > MAX_POISON_DEATHS {
                self.broken(|| format!("poison request {id} killed {} workers", request.deaths));
            }
        }
    }
}

fn free(sight: &Sight, card: super::lever::Card) -> Option<Bytes> {
    sight.cards.get(card.index()).copied().flatten().map(|reading| reading.value.free)
}

/// What others hold in an account, as far as it can be read.
fn foreign(sight: &Sight, account: Account) -> Option<i64> {
    match account {
        // The group whose line is nearest.
        Account::Host => sight.host.map(|reading| {
            let nearest = reading.value.groups().iter().min_by_key(|g| g.line().0 as i64 - g.unreclaimable.0 as i64);
            nearest.map_or(0, |group| group.unreclaimable.0 as i64 - reading.value.ours.0 as i64)
        }),
        Account::Vram(card) => {
            let reading = sight.cards.get(card.index()).copied().flatten()?;
            reading.value.foreign.map(|bytes| bytes.0 as i64)
        }
    }
}
