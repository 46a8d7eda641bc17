//! The truth about memory: what others, the worker and ended workers hold, at any moment of the interval that is simulated.
//!
//! ```text
//! need of a group(t) = foreign(t) + worker(t) + what an ended worker still holds(t)      all straight lines in an interval
//! the kernel kills at the first millisecond with need > limit (+ what swap takes, for the machine)
//! ```

use super::curve::{Cursor, ms_until_over};
use super::day::{Day, MIB};
use super::lever::{Account, Card, LeverFacts, MAX_CARDS};
use super::pool::Pool;
use super::sight::MAX_GROUPS;
use super::worker::Worker;

/// Memory of an ended process goes back at 20 GiB/s: 0.1 ms for each slab of 2 MiB.
pub const RETURN_BYTES_PER_MS: i64 = 20 * MIB;

/// Page cache under this share of the limit (hundredths) is too small to work with.
const SQUEEZE_PERCENT: i64 = 1;

/// Without swap PSI rises when the line of need is so near its limit.
const PSI_MS: i64 = 150;

/// A foreign curve steeper than this is a ramp: 1 MiB/s.
const RAMP_SLOPE: i64 = MIB / 1000;

/// VRAM of an ended worker that has not come back.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    card: usize,
    bytes: i64,
    until_ms: i64,
}

/// Memory of the machine.
#[derive(Debug, Clone)]
pub struct Memory {
    now_ms: i64,
    host: [Cursor; MAX_GROUPS],
    cards: [Cursor; MAX_CARDS],
    /// Host bytes of an ended worker.
    leaving_host: Pool,
    leaving_cards: Vec<Leaving>,
    swap_bytes: i64,
    swap_ram_permille: i64,
    card_totals: [i64; MAX_CARDS],
}

impl Memory {
    /// At the day's beginning.
    #[must_use]
    pub fn new(day: &Day) -> Self {
        let swap = day.world.host.swap.as_ref();
        let mut card_totals = [0; MAX_CARDS];
        for (total, facts) in card_totals.iter_mut().zip(&day.world.facts().cards) {
            *total = facts.total.0 as i64;
        }
        Self {
            now_ms: 0,
            host: [Cursor::default(); MAX_GROUPS],
            cards: [Cursor::default(); MAX_CARDS],
            leaving_host: Pool::default(),
            leaving_cards: Vec::new(),
            swap_bytes: swap.map_or(0, |swap| swap.size_mib as i64 * MIB),
            swap_ram_permille: swap.map_or(0, |swap| swap.ram_cost_permille as i64),
            card_totals,
        }
    }

    /// When the next piece of a foreign curve begins or something of an ended worker has gone.
    #[must_use]
    pub fn next_ms(&self, day: &Day) -> i64 {
        let host = day.foreign.iter().zip(&self.host).map(|(curve, cursor)| cursor.next_ms(curve));
        let cards = day.cards.iter().zip(&self.cards).map(|(curve, cursor)| cursor.next_ms(curve));
        let leaving = self.leaving_cards.iter().map(|leaving| leaving.until_ms);
        let returned = self.leaving_host.ms_left().map(|ms| self.now_ms + ms);
        host.chain(cards).chain(leaving).chain(returned).min().unwrap_or(i64::MAX)
    }

    /// Goes to `to_ms`, which is not past [`Memory::next_ms`].
    pub fn advance(&mut self, day: &Day, to_ms: i64) {
        self.leaving_host.advance(to_ms - self.now_ms);
        self.now_ms = to_ms;
        for (curve, cursor) in day.foreign.iter().zip(&mut self.host) {
            cursor.go(curve, to_ms);
        }
        for (curve, cursor) in day.cards.iter().zip(&mut self.cards) {
            cursor.go(curve, to_ms);
        }
        self.leaving_cards.retain(|leaving| leaving.until_ms > to_ms);
    }

    /// Whether all foreign use is flat now.
    #[must_use]
    pub fn is_flat(&self, day: &Day) -> bool {
        let host = day.foreign.iter().zip(&self.host);
        host.chain(day.cards.iter().zip(&self.cards)).all(|(curve, cursor)| cursor.slope(curve).abs() < RAMP_SLOPE)
    }

    /// Takes over what an ended worker holds.
    pub fn take_over(&mut self, worker: &Worker, levers: &[LeverFacts], vram_until_ms: i64) {
        let (host, _) = worker.bytes(Account::Host, levers, 0);
        self.leaving_host = Pool::still(self.leaving_host.held() + host);
        self.leaving_host.go(0, RETURN_BYTES_PER_MS);
        for card in 0..MAX_CARDS {
            let (bytes, _) = worker.bytes(Account::Vram(Card(card as u8)), levers, 0);
            if bytes > 0 {
                self.leaving_cards.push(Leaving { card, bytes, until_ms: vram_until_ms });
            }
        }
    }

    /// What swap can take from RAM, net.
    fn swap_relief(&self) -> i64 {
        self.swap_bytes * (1000 - self.swap_ram_permille) / 1000
    }

    /// Ours in the host: the worker's and what an ended one still holds.
    #[must_use]
    pub fn ours(&self, worker: Option<&Worker>, levers: &[LeverFacts]) -> i64 {
        self.leaving_host.held() + worker.map_or(0, |worker| worker.bytes(Account::Host, levers, 0).0)
    }

    /// Foreign bytes in each group now.
    #[must_use]
    pub fn foreign(&self, day: &Day, group: usize) -> i64 {
        self.host[group].bytes(&day.foreign[group], self.now_ms)
    }

    /// Bytes until the first limit, negative past it; swap not counted.
    #[must_use]
    pub fn headroom(&self, day: &Day, ours: i64) -> i64 {
        let rooms = day.limits.iter().enumerate().map(|(group, limit)| limit - self.foreign(day, group) - ours);
        rooms.min().unwrap_or(0)
    }

    /// Bytes swapped out now.
    #[must_use]
    pub fn swapped(&self, day: &Day, ours: i64) -> i64 {
        let over = self.foreign(day, 0) + ours - day.limits[0];
        match over > 0 && self.swap_bytes > 0 {
            true => (over * 1000 / (1000 - self.swap_ram_permille)).min(self.swap_bytes),
            false => 0,
        }
    }

    /// All swap there is.
    #[must_use]
    pub fn swap_bytes(&self) -> i64 {
        self.swap_bytes
    }

    /// Whether there is too little page cache left to work with.
    #[must_use]
    pub fn is_squeezed(&self, day: &Day, ours: i64) -> bool {
        let mut groups = day.limits.iter().enumerate();
        groups.any(|(group, limit)| limit - self.foreign(day, group) - ours < limit / 100 * SQUEEZE_PERCENT)
    }

    /// PSI "some" of the moment, thousandths: without swap nothing until the last 0.15 s.
    #[must_use]
    pub fn psi_permille(&self, day: &Day, ours: i64, slope: i64) -> u64 {
        let swapped = self.swapped(day, ours);
        if swapped > 0 {
            return (50 + swapped * 800 / self.swap_bytes.max(1)).min(1000) as u64;
        }
        let near = day.limits.iter().enumerate().any(|(group, limit)| {
            let slope = slope + self.host[group].slope(&day.foreign[group]);
            limit - self.foreign(day, group) - ours < slope.max(0) * PSI_MS
        });
        u64::from(near && self.swap_bytes == 0) * 600
    }

    /// The first moment in `now..=to_ms` at which the kernel has to kill the worker.
    #[must_use]
    pub fn kill_ms(&self, day: &Day, worker: &Worker, levers: &[LeverFacts], to_ms: i64) -> Option<i64> {
        let (bytes, slope) = worker.bytes(Account::Host, levers, 0);
        let ours = bytes + self.leaving_host.held();
        let slope = slope + self.leaving_host.slope();
        let first = day.limits.iter().enumerate().filter_map(|(group, limit)| {
            let relief = if group == 0 { self.swap_relief() } else { 0 };
            let room = limit + relief - self.foreign(day, group) - ours;
            let at_ms = self.now_ms + ms_until_over(room, slope + self.host[group].slope(&day.foreign[group]))?;
            // A pool that arrives in its last millisecond takes less than its slope.
            let after = at_ms - self.now_ms;
            let then = worker.bytes(Account::Host, levers, after).0 + self.leaving_host.after(after);
            let need = self.host[group].bytes(&day.foreign[group], at_ms) + then;
            (at_ms <= to_ms && need > limit + relief).then_some(at_ms)
        });
        first.min()
    }

    /// Foreign bytes of a card.
    #[must_use]
    pub fn card_foreign(&self, day: &Day, card: usize) -> i64 {
        self.cards[card].bytes(&day.cards[card], self.now_ms)
    }

    /// Bytes of ended workers on a card.
    #[must_use]
    pub fn card_leaving(&self, card: usize) -> i64 {
        self.leaving_cards.iter().filter(|leaving| leaving.card == card).map(|leaving| leaving.bytes).sum()
    }

    /// Free bytes of a card; negative when the next allocation fails.
    #[must_use]
    pub fn card_free(&self, day: &Day, card: usize, worker: Option<&Worker>, levers: &[LeverFacts]) -> i64 {
        let ours = worker.map_or(0, |worker| worker.bytes(Account::Vram(Card(card as u8)), levers, 0).0);
        self.card_totals[card] - self.card_foreign(day, card) - self.card_leaving(card) - ours
    }

    /// The first moment in `now..=to_ms` at which the worker, growing on a card, finds it full.
    #[must_use]
    pub fn card_full_ms(&self, day: &Day, worker: &Worker, levers: &[LeverFacts], to_ms: i64) -> Option<i64> {
        let mut first = None;
        for card in 0..day.cards.len() {
            let account = Account::Vram(Card(card as u8));
            if !worker.grows(account, levers) {
                continue;
            }
            let room = self.card_free(day, card, Some(worker), levers);
            let slope = worker.bytes(account, levers, 0).1 + self.cards[card].slope(&day.cards[card]);
            let Some(after) = ms_until_over(room, slope) else { continue };
            let at_ms = self.now_ms + after;
            let foreign = self.cards[card].bytes(&day.cards[card], at_ms) + self.card_leaving(card);
            let need = foreign + worker.bytes(account, levers, after).0;
            if at_ms <= to_ms && need > self.card_totals[card] {
                first = Some(first.map_or(at_ms, |first: i64| first.min(at_ms)));
            }
        }
        first
    }
}
