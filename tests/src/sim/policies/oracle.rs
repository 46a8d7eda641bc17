//! `oracle`: the same levers, latencies and sensors as everybody, but it knows all foreign use of the day in advance.
//!
//! It lowers just before a crossing, raises as soon as that pays for a while, and ends the worker cleanly when even the floors
//! would cross. It defines *preventable*: what kills another policy on a seed that the oracle survives. It keeps the lines where
//! foreign use stays: only a short peak may stand between line and limit.

use crate::sim::day::{Day, MIB};
use crate::sim::desk::{Desk, HANG};
use crate::sim::lever::{Account, Lever, LeverFacts, Positions};
use crate::sim::plan;
use crate::sim::policy::{Facts, Order, Policy, Stop};
use crate::sim::sight::{Generation, Happening, LeverAnswer, Sight, line_of};
use crate::sim::story::gib;
use plimsoll_config::units::{Bytes, Millis};

/// Never nearer to a limit than this: jitter, and the page cache that work needs.
const SAFETY: i64 = 768 * MIB;
/// Room under a card's line.
const CARD_SAFETY: i64 = 48 * MIB;
/// A move, its answer and the next reading take a fraction of this; a few moves fit in.
const LEAD_MS: i64 = 4_000;
/// The worker is told to end so long before an unavoidable crossing, and killed when it is nearer than the second.
const STOP_MS: i64 = 2_500;
const KILL_MS: i64 = 900;
/// Foreign use that stays over a line longer is no peak.
const PEAK_MS: i64 = 60_000;
/// A raise pays when it may stay so long.
const STAY_MS: i64 = 300_000;
/// A cut that could free no more than this is not worth a move.
const LEAST_CUT: Bytes = Bytes::from_mib(64);
/// A cut takes so much more: while a ramp creeps on, each look would find a little over.
const LUMP: [i64; 2] = [384 * MIB, 48 * MIB];
/// A raise smaller than this is not worth its reads.
const LEAST_RAISE: i64 = 192 * MIB;
/// After a load the worker must be able to stay for so long.
const START_MS: i64 = 45_000;
/// What an ended worker held may be seen for so long, by a sensor that stands still.
const LEAVE_MS: u64 = 3_000;
/// Looks at least so often.
const LOOK_MS: i64 = 30_000;
/// The checker's quiet time and age, kept with a margin for noise.
const QUIET_MS: i64 = 121_000;
const FRESH_MS: u64 = 4_000;

#[derive(Debug, Clone, Copy, Default)]
struct AccountState {
    flight: Option<(Lever, bool)>,
    answered_at: Option<Millis>,
    noisy_at: Option<i64>,
}

/// Who knows the day.
#[derive(Debug)]
pub struct Oracle<'a> {
    day: &'a Day,
    facts: Facts,
    desk: Desk,
    worker: Option<Generation>,
    /// When the last one ended.
    ended_at: Option<Millis>,
    is_ready: bool,
    is_ending: bool,
    knobs: Positions,
    held: Positions,
    accounts: [AccountState; Account::COUNT],
    next_ms: i64,
    reason: String,
}

impl<'a> Oracle<'a> {
    /// For a day.
    #[must_use]
    pub fn new(day: &'a Day) -> Self {
        Self {
            day,
            facts: day.world.facts(),
            desk: Desk::default(),
            worker: None,
            ended_at: None,
            is_ready: false,
            is_ending: false,
            knobs: Positions::default(),
            held: Positions::default(),
            accounts: [AccountState::default(); Account::COUNT],
            next_ms: 0,
            reason: String::new(),
        }
    }

    fn accounts(&self) -> impl Iterator<Item = Account> + use<> {
        let cards: Vec<Account> = self.facts.cards.iter().map(|card| Account::Vram(card.card)).collect();
        std::iter::once(Account::Host).chain(cards)
    }

    fn levers(&self, account: Account) -> Vec<LeverFacts> {
        self.facts.levers.iter().filter(|facts| facts.lever.account() == account).copied().collect()
    }

    fn note(&mut self, now: Millis, sight: &Sight) {
        for happening in &sight.happened {
            match happening {
                Happening::Spawned(generation) => {
                    (self.worker, self.is_ready, self.is_ending) = (Some(*generation), false, false);
                }
                Happening::Ready(_) => self.is_ready = true,
                Happening::Exited(_) => {
                    (self.worker, self.is_ready, self.ended_at) = (None, false, Some(now));
                    self.accounts.iter_mut().for_each(|state| state.flight = None);
                }
                Happening::Lever(answer) => self.answered(now, answer),
                Happening::Offered(_) | Happening::NoRoom(_) | Happening::Finished(_) | Happening::Cancelled(_) => {}
            }
        }
        let now_ms = now.0 as i64;
        if sight.host.is_some_and(|reading| reading.value.room_to_line() < 0) {
            self.accounts[0].noisy_at = Some(now_ms);
        }
        for card in &self.facts.cards {
            let reading = sight.cards[card.card.index()];
            if reading.is_some_and(|reading| reading.value.free < card.request_line) {
                self.accounts[Account::Vram(card.card).index()].noisy_at = Some(now_ms);
            }
        }
    }

    fn answered(&mut self, now: Millis, answer: &LeverAnswer) {
        let state = &mut self.accounts[answer.lever.account().index()];
        if !answer.turned_round {
            state.flight = None;
            state.answered_at = Some(now);
            // What it knows better than the worker's words: the share that a move down really frees.
            let held = self.held.get(answer.lever).0 as i64;
            let down = (held - answer.to.0 as i64).max(0);
            let kept = if down > 0 { down - down * self.day.freed_permille / 1000 } else { 0 };
            self.held.set(answer.lever, Bytes((answer.to.0 as i64 + kept) as u64));
        }
    }

    /// The end of the time in which a move ordered now may not yet have worked.
    fn lead_ms(&self, now_ms: i64) -> i64 {
        let mut end_ms = now_ms + LEAD_MS;
        for stall in self.day.stalls.iter().filter(|stall| stall.to_ms > now_ms) {
            if stall.from_ms <= end_ms {
                end_ms = end_ms.max(stall.to_ms + LEAD_MS);
            }
        }
        end_ms
    }

    /// Bytes of a worker in an account with these positions.
    fn ours(&self, account: Account, knobs: &Positions) -> i64 {
        let levers = self.levers(account);
        let levers: i64 =
            levers.iter().map(|facts| knobs.get(facts.lever).max(self.held.get(facts.lever)).0 as i64).sum();
        levers
            + match account {
                Account::Host => self.facts.host_fixed.0 as i64,
                Account::Vram(card) => {
                    let card = &self.facts.cards[card.index()];
                    (card.fixed.0 + card.prompt_path.0) as i64
                }
            }
    }

    /// Bytes that ours may have through `to_ms`: what the hard bounds leave.
    fn hard_room(&self, account: Account, from_ms: i64, to_ms: i64) -> i64 {
        match account {
            Account::Host => {
                let groups = self.day.limits.iter().zip(&self.day.foreign);
                groups.map(|(limit, foreign)| limit - SAFETY - foreign.most(from_ms, to_ms)).min().unwrap_or(0)
            }
            Account::Vram(card) => {
                let facts = &self.facts.cards[card.index()];
                let most = self.day.cards[card.index()].most(from_ms, to_ms);
                (facts.total.0 - facts.request_line.0) as i64 - CARD_SAFETY - most
            }
        }
    }

    /// Bytes that ours may have under the lines when foreign use is at its least (`peaks` false) or most in the span.
    fn line_room(&self, from_ms: i64, to_ms: i64, peaks: bool) -> i64 {
        let groups = self.day.limits.iter().zip(&self.day.foreign);
        let room = |limit: i64, use_bytes: i64| line_of(Bytes(limit as u64)).0 as i64 - use_bytes;
        groups
            .map(|(limit, foreign)| {
                let use_bytes = if peaks { foreign.most(from_ms, to_ms) } else { foreign.least(from_ms, to_ms) };
                room(*limit, use_bytes)
            })
            .min()
            .unwrap_or(0)
    }

    /// What has to go from an account now.
    fn over(&self, account: Account, now_ms: i64) -> i64 {
        let ours = self.ours(account, &self.knobs);
        let hard = ours - self.hard_room(account, now_ms, self.lead_ms(now_ms));
        match account {
            Account::Host => hard.max(ours - self.line_room(now_ms, now_ms + PEAK_MS, false)),
            Account::Vram(_) => hard,
        }
    }

    fn lower(
        &mut self,
        account: Account,
        over: i64,
        now: Millis,
        sight: &Sight,
        worker: Generation,
        orders: &mut Vec<Order>,
    ) {
        let state = self.accounts[account.index()];
        let is_measured = state
            .answered_at
            .is_none_or(|at| sight.taken_at(account).is_some_and(|taken| taken > at) || now.since(at) > Millis(2_000));
        if !is_measured {
            self.next_ms = self.next_ms.min(now.0 as i64 + 40);
            return;
        }
        let lump = if account == Account::Host { LUMP[0] } else { LUMP[1] };
        let promise = (over + lump) * 1000 / self.day.freed_permille.max(1) + 2 * MIB;
        for facts in self.levers(account) {
            let turns = state.flight.is_none_or(|(lever, is_up)| is_up && lever == facts.lever);
            let held = self.held.get(facts.lever).max(self.knobs.get(facts.lever));
            if !turns || held.saturating_sub(facts.floor) <= LEAST_CUT {
                continue;
            }
            let to = plan::lower(facts.lever, held, facts.floor, promise).min(self.knobs.get(facts.lever));
            self.reason = format!("{account} would be {} over in time", gib(over));
            self.order_move(facts.lever, to, false, worker, orders);
            return;
        }
    }

    fn order_move(&mut self, lever: Lever, to: Bytes, is_up: bool, worker: Generation, orders: &mut Vec<Order>) {
        orders.push(Order::Move { worker, lever, to });
        self.knobs.set(lever, to);
        if is_up {
            self.held.set(lever, to.max(self.held.get(lever)));
        }
        self.accounts[lever.account().index()].flight = Some((lever, is_up));
    }

    fn raise(&mut self, account: Account, now: Millis, sight: &Sight, worker: Generation, orders: &mut Vec<Order>) {
        let now_ms = now.0 as i64;
        let state = self.accounts[account.index()];
        let is_fresh = sight.taken_at(account).is_some_and(|taken| now.since(taken) <= Millis(FRESH_MS));
        let is_quiet = state.noisy_at.is_none_or(|at| now_ms - at >= QUIET_MS);
        if state.flight.is_some() || !is_fresh || !is_quiet {
            return;
        }
        let mut room = self.hard_room(account, now_ms, now_ms + STAY_MS);
        if account == Account::Host {
            room = room.min(self.line_room(now_ms, now_ms + STAY_MS, true) - SAFETY / 4);
        }
        let room = room - self.ours(account, &self.knobs);
        for facts in self.levers(account).iter().rev() {
            let at = self.knobs.get(facts.lever).0 as i64;
            let missing = facts.home.0 as i64 - at;
            let step = missing.min(room);
            let is_whole = !matches!(facts.lever, Lever::Draft(_)) || step == missing;
            if step > 0 && (step >= LEAST_RAISE || step == missing) && is_whole {
                self.reason = format!("{account} has {} for minutes", gib(room));
                self.order_move(facts.lever, Bytes((at + step) as u64), true, worker, orders);
                return;
            }
        }
    }

    /// Ends the worker when a crossing is near that levers can't prevent.
    fn abandon(&mut self, now_ms: i64, sight: &Sight, worker: Generation, orders: &mut Vec<Order>) -> bool {
        let reading = sight.host.map_or(0, |reading| reading.value.ours.0 as i64);
        let ours = reading.max(if self.is_ready { 0 } else { self.ours(Account::Host, &self.knobs) });
        let groups = self.day.limits.iter().zip(&self.day.foreign);
        let crossing = groups.filter_map(|(limit, foreign)| {
            foreign.first_over(limit - ours - SAFETY / 4, now_ms, now_ms + STOP_MS + LOOK_MS)
        });
        let Some(at_ms) = crossing.min() else { return false };
        if at_ms > now_ms + STOP_MS {
            self.next_ms = self.next_ms.min(at_ms - STOP_MS);
            return false;
        }
        let how =
            if at_ms <= now_ms + KILL_MS || self.day.after_stall(now_ms) > now_ms { Stop::Kill } else { Stop::Frame };
        self.next_ms = self.next_ms.min((at_ms - KILL_MS).max(now_ms + 100));
        if !self.is_ending || how == Stop::Kill {
            self.reason = format!("the host crosses its limit in {} ms whatever is lowered", at_ms - now_ms);
            orders.push(Order::Stop { worker, how });
        }
        self.is_ending = true;
        true
    }

    fn start(&mut self, now: Millis, sight: &Sight, orders: &mut Vec<Order>) {
        let now_ms = now.0 as i64;
        self.next_ms = self.next_ms.min(now_ms + 500);
        self.held = Positions::default();
        let is_fresh = |account| sight.taken_at(account).is_some_and(|taken| now.since(taken) <= Millis(FRESH_MS));
        let is_gone = self.ended_at.is_none_or(|at| now.since(at) >= Millis(LEAVE_MS));
        if !is_gone || !self.accounts().all(is_fresh) {
            return;
        }
        let Some(mut room) = plan::room(&self.facts, sight) else { return };
        let home: u64 = self.facts.levers.iter().map(|lever| lever.home.0).sum();
        let load_ms = (home * 1000 / self.facts.disk_bytes_per_s.max(1)) as i64;
        let nothing = Positions::default();
        for account in self.accounts() {
            let future = self.hard_room(account, now_ms, now_ms + load_ms + START_MS) - self.ours(account, &nothing);
            let entry = &mut room.0[account.index()];
            *entry = (*entry - CARD_SAFETY).min(future);
        }
        if let Some(knobs) = plan::fit(&self.facts, &room) {
            self.knobs = knobs;
            self.held = knobs;
            self.accounts.iter_mut().for_each(|state| *state = AccountState { answered_at: None, ..*state });
            self.reason = "what fits through the load".to_owned();
            orders.push(Order::Start { knobs, sessions: self.facts.max_sessions });
        }
    }

    /// Whether a request may begin: every card has its line free.
    fn may_submit(&self, now_ms: i64) -> bool {
        self.accounts().all(|account| match account {
            Account::Host => true,
            Account::Vram(card) => {
                let facts = &self.facts.cards[card.index()];
                let use_bytes = self.day.cards[card.index()].at(now_ms) + self.ours(account, &self.knobs);
                use_bytes + facts.request_line.0 as i64 <= facts.total.0 as i64
            }
        })
    }

    fn serve(&mut self, now: Millis, sight: &Sight, worker: Generation, orders: &mut Vec<Order>) {
        let now_ms = now.0 as i64;
        for account in self.accounts() {
            let over = self.over(account, now_ms);
            if over > 0 {
                self.accounts[account.index()].noisy_at = Some(now_ms);
                self.lower(account, over, now, sight, worker, orders);
            } else {
                self.raise(account, now, sight, worker, orders);
            }
            self.wake_for(account, now_ms);
        }
        if self.may_submit(now_ms) {
            let has_kv = self.facts.levers.iter().any(|facts| facts.lever == Lever::KvCapacity);
            let capacity = has_kv.then(|| self.knobs.get(Lever::KvCapacity));
            self.desk.submit(&self.facts, worker, capacity, orders);
        } else if self.desk.is_waiting() {
            self.next_ms = self.next_ms.min(now_ms + 500);
        }
    }

    /// Looks again when the next crossing is a lead away.
    fn wake_for(&mut self, account: Account, now_ms: i64) {
        let end_ms = now_ms + LOOK_MS + LEAD_MS;
        let ours = self.ours(account, &self.knobs);
        let first = match account {
            Account::Host => {
                let groups = self.day.limits.iter().zip(&self.day.foreign);
                groups.filter_map(|(limit, use_)| use_.first_over(limit - SAFETY - ours, now_ms, end_ms)).min()
            }
            Account::Vram(card) => {
                let facts = &self.facts.cards[card.index()];
                let bound = (facts.total.0 - facts.request_line.0) as i64 - CARD_SAFETY - ours;
                self.day.cards[card.index()].first_over(bound, now_ms, end_ms)
            }
        };
        if let Some(at_ms) = first {
            self.next_ms = self.next_ms.min((at_ms - LEAD_MS).max(now_ms + 200));
        }
        // A stall ahead makes the lead longer: look before it begins.
        for stall in self.day.stalls.iter().filter(|stall| stall.from_ms > now_ms && stall.from_ms <= end_ms) {
            self.next_ms = self.next_ms.min((stall.from_ms - LEAD_MS).max(now_ms + 200));
        }
    }
}

impl Policy for Oracle<'_> {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        let mut orders = Vec::new();
        let now_ms = now.0 as i64;
        self.next_ms = now_ms + LOOK_MS;
        self.reason.clear();
        self.desk.note(sight, &mut orders);
        self.note(now, sight);
        let Some(worker) = self.worker else {
            self.start(now, sight, &mut orders);
            return orders;
        };
        if self.abandon(now_ms, sight, worker, &mut orders) {
            return orders;
        }
        if self.desk.hangs(now, sight, HANG) {
            self.reason = "no progress".to_owned();
            orders.push(Order::Stop { worker, how: Stop::Kill });
        } else if self.is_ready && !self.is_ending {
            self.serve(now, sight, worker, &mut orders);
        }
        orders
    }

    fn next_look(&self) -> Millis {
        Millis(self.next_ms as u64)
    }

    fn idle(&self) -> bool {
        false
    }

    fn reason(&self) -> String {
        self.reason.clone()
    }
}
