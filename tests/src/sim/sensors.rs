//! What a daemon can read: late, noisy, and in some worlds stale, frozen or lying.
//!
//! A reading seen at `now` was taken `delay` before. Foreign use is known at any moment; ours of the near past is kept here.

use super::curve::Cursor;
use super::day::{Day, Fault, MIB, SensorFault};
use super::draw::{mix, pick};
use super::lever::{Account, Card, MAX_CARDS};
use super::sight::{CardReading, GroupReading, HostReading, MAX_GROUPS, Reading};
use plimsoll_config::units::{Bytes, Millis};
use std::collections::VecDeque;

/// Noise keeps its value so long: a desktop's jitter.
const JITTER_MS: i64 = 500;

/// How many moments of ours are kept; the delay of a sensor is short against them.
const TRAIL: usize = 64;

/// Ours over the near past: straight between the moments that are kept.
#[derive(Debug, Clone, Default)]
pub struct Trail(VecDeque<(i64, i64)>);

impl Trail {
    /// Ours is `bytes` at `ms`.
    pub fn note(&mut self, ms: i64, bytes: i64) {
        if self.0.len() == TRAIL {
            self.0.pop_front();
        }
        self.0.push_back((ms, bytes));
    }

    /// Ours at `ms`.
    #[must_use]
    pub fn at(&self, ms: i64) -> i64 {
        let mut later: Option<(i64, i64)> = None;
        for (at, bytes) in self.0.iter().rev() {
            if *at <= ms {
                return match later {
                    Some((later_ms, later_bytes)) if later_ms > *at => {
                        let part = i128::from(later_bytes - bytes) * i128::from(ms - at);
                        bytes + (part / i128::from(later_ms - at)) as i64
                    }
                    Some(_) | None => *bytes,
                };
            }
            later = Some((*at, *bytes));
        }
        later.map_or(0, |(_, bytes)| bytes)
    }
}

/// What the host's sensor needs to know of this moment beside use.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostNow {
    /// Swapped out.
    pub swapped: i64,
    /// Swap there is.
    pub swap_total: i64,
    /// Share of page cache gone, as refaults.
    pub refaults_per_s: u64,
    /// Reads of the worker from the file.
    pub major_faults_per_s: u64,
    /// PSI.
    pub psi_permille: u64,
    /// File bytes of a token.
    pub disk_bytes_per_token: i64,
}

/// All sensors of a machine.
#[derive(Debug, Clone)]
pub struct Sensors {
    host_past: [Cursor; MAX_GROUPS],
    card_past: [Cursor; MAX_CARDS],
    host_trail: Trail,
    card_trails: [Trail; MAX_CARDS],
    first_fault: usize,
    /// The driver says nothing until then.
    silent_until_ms: i64,
    /// A card's free counter stands still until then.
    frozen_until_ms: [i64; MAX_CARDS],
    host_delay_ms: i64,
    card_delay_ms: i64,
}

impl Sensors {
    /// At the day's beginning.
    #[must_use]
    pub fn new(day: &Day) -> Self {
        Self {
            host_past: [Cursor::default(); MAX_GROUPS],
            card_past: [Cursor::default(); MAX_CARDS],
            host_trail: Trail::default(),
            card_trails: [Trail::default(), Trail::default()],
            first_fault: 0,
            silent_until_ms: 0,
            frozen_until_ms: [0; MAX_CARDS],
            host_delay_ms: day.world.sensors.host_delay_ms as i64,
            card_delay_ms: day.world.sensors.card_delay_ms as i64,
        }
    }

    /// Notes ours.
    pub fn note(&mut self, account: Account, ms: i64, bytes: i64) {
        match account {
            Account::Host => self.host_trail.note(ms, bytes),
            Account::Vram(card) => self.card_trails[card.index()].note(ms, bytes),
        }
    }

    /// The driver says nothing until `ms`.
    pub fn silence_cards(&mut self, ms: i64) {
        self.silent_until_ms = self.silent_until_ms.max(ms);
    }

    /// The free counters stand still until `ms`.
    pub fn freeze_cards(&mut self, ms: i64) {
        self.frozen_until_ms.iter_mut().for_each(|until| *until = (*until).max(ms));
    }

    fn fault(&mut self, day: &Day, account: Account, ms: i64) -> Option<Fault> {
        let is_over = |fault: &SensorFault| fault.span.to_ms <= ms;
        while day.sensor_faults.get(self.first_fault).is_some_and(is_over) {
            self.first_fault += 1;
        }
        let begun = day.sensor_faults[self.first_fault..].iter().take_while(|fault| fault.span.from_ms <= ms);
        let mut mine = begun.filter(|fault| fault.account == account && ms < fault.span.to_ms);
        mine.next().map(|fault| fault.fault)
    }

    /// Reads the host at `now_ms`; `last` is the reading before.
    pub fn read_host(
        &mut self,
        day: &Day,
        now_ms: i64,
        last: Option<Reading<HostReading>>,
        now: &HostNow,
    ) -> Option<Reading<HostReading>> {
        let taken_ms = (now_ms - self.host_delay_ms).max(0);
        let mut lie = 0;
        match (self.fault(day, Account::Host, taken_ms), last) {
            (Some(Fault::Stale), Some(last)) => return Some(last),
            (Some(Fault::Frozen), Some(last)) => return Some(Reading { taken_at: Millis(taken_ms as u64), ..last }),
            (Some(Fault::Lying(bytes)), _) => lie = bytes,
            (Some(Fault::Stale | Fault::Frozen) | None, _) => {}
        }
        let ours = self.host_trail.at(taken_ms);
        let noise = jitter(day, 1, taken_ms, day.world.sensors.host_noise_mib);
        let mut groups = [GroupReading::default(); MAX_GROUPS];
        for (group, (curve, limit)) in day.foreign.iter().zip(&day.limits).enumerate() {
            self.host_past[group].go(curve, taken_ms);
            let swapped = if group == 0 { now.swapped } else { 0 };
            let used = self.host_past[group].bytes(curve, taken_ms) + ours + noise - lie - swapped;
            groups[group] = GroupReading { limit: Bytes(*limit as u64), unreclaimable: Bytes(used.max(0) as u64) };
        }
        let value = HostReading {
            groups,
            n_groups: day.limits.len(),
            ours: Bytes(ours as u64),
            swap_used: Bytes(now.swapped as u64),
            swap_total: Bytes(now.swap_total as u64),
            refaults_per_s: now.refaults_per_s,
            major_faults_per_s: now.major_faults_per_s,
            psi_some_permille: now.psi_permille,
            disk_bytes_per_token: Bytes(now.disk_bytes_per_token as u64),
        };
        Some(Reading { taken_at: Millis(taken_ms as u64), value })
    }

    /// Reads a card at `now_ms`; `last` is the reading before.
    pub fn read_card(
        &mut self,
        day: &Day,
        card: usize,
        now_ms: i64,
        last: Option<Reading<CardReading>>,
    ) -> Option<Reading<CardReading>> {
        let taken_ms = (now_ms - self.card_delay_ms).max(0);
        if now_ms < self.silent_until_ms {
            return last;
        }
        let frozen = (now_ms < self.frozen_until_ms[card]).then_some(Fault::Frozen);
        let mut lie = 0;
        match (frozen.or(self.fault(day, Account::Vram(Card(card as u8)), taken_ms)), last) {
            (Some(Fault::Stale), Some(last)) => return Some(last),
            (Some(Fault::Frozen), Some(last)) => return Some(Reading { taken_at: Millis(taken_ms as u64), ..last }),
            (Some(Fault::Lying(bytes)), _) => lie = bytes,
            (Some(Fault::Stale | Fault::Frozen) | None, _) => {}
        }
        let spec = &day.world.cards[card];
        self.card_past[card].go(&day.cards[card], taken_ms);
        let noise = jitter(day, 2 + card as u64, taken_ms, day.world.sensors.card_noise_mib);
        let foreign = self.card_past[card].bytes(&day.cards[card], taken_ms) + noise - lie;
        let total = (spec.total_mib - spec.driver_reserve_mib) as i64 * MIB;
        let free = total - foreign - self.card_trails[card].at(taken_ms);
        let value = CardReading {
            total: Bytes(total as u64),
            free: Bytes(free.max(0) as u64),
            foreign: spec.tells_bytes_by_process.then_some(Bytes(foreign.max(0) as u64)),
        };
        Some(Reading { taken_at: Millis(taken_ms as u64), value })
    }
}

/// An error of at most `most_mib` either way.
fn jitter(day: &Day, sensor: u64, ms: i64, most_mib: u64) -> i64 {
    let most = most_mib as i64 * MIB;
    pick(mix(day.seed, sensor, (ms / JITTER_MS) as u64), -most, most)
}
