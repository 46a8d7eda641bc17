//! What is free in one account, taken at its worst.
//!
//! A reading that is too old is no reading: the account is assumed to have filled since at the fastest rate that was ever
//! believed. A counter that stops to the byte in the middle of a growth is assumed to be stuck, and the growth to go on.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::least::Least;
use super::lever::Kind;
use super::trend::{Rate, Trend};

/// One account's readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gauge {
    kind: Kind,
    last: Option<Reading>,
    /// How fast the account filled when its counter stopped.
    stuck: Option<Rate>,
    trend: Trend,
    /// Bytes above the line if our levers held nothing.
    least: Least,
    /// What our levers held at the last reading.
    held: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// When it was taken.
    pub(super) at: Millis,
    /// Bytes free, as they were read.
    pub(super) read: i64,
    /// Bytes free when what is being loaded is there and what a step has borrowed is back.
    pub(super) free: i64,
    /// The same above the line; negative beyond it.
    pub(super) room: i64,
}

impl Gauge {
    pub(super) fn new(kind: Kind) -> Gauge {
        let fastest = match kind {
            Kind::Host => limits::FASTEST_HOST_GROWTH,
            Kind::Vram => limits::FASTEST_VRAM_GROWTH,
        };
        Gauge { kind, last: None, stuck: None, trend: Trend::new(signed(fastest)), least: Least::default(), held: 0 }
    }

    /// Takes a reading in, and what our levers hold beside it, which is nobody's growth.
    pub(super) fn note(&mut self, reading: Reading, held: i64, is_loading: bool) {
        let Reading { at, read, .. } = reading;
        let Some(last) = self.last else { return self.believe(reading, held) };
        if at <= last.at {
            return;
        }
        // A card's counter stands still for hours by rights. Host memory's does not, in a growth or while a worker loads.
        let is_still = self.kind == Kind::Host && last.read == read;
        let should_move = self.stuck.is_some() || is_loading || self.trend.slope() > noise(self.kind);
        if is_still && should_move && at.since(last.at) < limits::STUCK_BELIEVED {
            let growth = self.trend.slope();
            let worst = if is_loading { self.trend.fastest(at) } else { growth };
            self.stuck.get_or_insert(worst.max(growth));
            return;
        }
        self.believe(reading, held);
    }

    fn believe(&mut self, reading: Reading, held: i64) {
        self.stuck = None;
        self.last = Some(reading);
        self.held = held;
        self.least.note(reading.at, reading.room.saturating_add(held));
        self.trend.note(reading.at, reading.free.saturating_add(held));
    }

    /// A worker came or went.
    pub(super) fn restart(&mut self) {
        self.trend.restart();
        self.least = Least::default();
        self.stuck = None;
    }

    /// Bytes free, at worst; `None` before the first reading.
    pub(super) fn free(&self, now: Millis) -> Option<i64> {
        let last = self.last?;
        Some(last.free.saturating_sub(self.unseen(now, last)))
    }

    /// Bytes above the line, at worst.
    pub(super) fn room(&self, now: Millis) -> Option<i64> {
        let last = self.last?;
        Some(last.room.saturating_sub(self.unseen(now, last)))
    }

    /// Bytes above the line that have been there for a while, as our levers stand now.
    pub(super) fn lasting_room(&self, now: Millis) -> Option<i64> {
        let least = self.least.get(now)?.saturating_sub(self.held);
        Some(least.min(self.room(now)?))
    }

    /// What may have filled since a reading was taken.
    fn unseen(&self, now: Millis, last: Reading) -> i64 {
        let age = now.since(last.at);
        let rate = match self.stuck {
            Some(rate) => rate,
            None if age > limits::READING_MAX_AGE => self.trend.fastest(now),
            None => 0,
        };
        let age = match self.kind {
            Kind::Host => age,
            Kind::Vram => age.min(limits::BLIND_VRAM_GROWTH),
        };
        rate.saturating_mul(age.0 as i64) / 1000
    }

    /// What the growth that is under way takes within a span.
    pub(super) fn ahead(&self, span: Millis) -> i64 {
        self.filling().unwrap_or(0).saturating_mul(span.0 as i64) / 1000
    }

    /// Milliseconds until nothing is free; `None` while the account does not fill.
    pub(super) fn time_to_limit(&self, now: Millis) -> Option<i64> {
        let slope = self.filling()?;
        Some(self.free(now)?.max(0).saturating_mul(1000) / slope)
    }

    /// Of the bytes that the line keeps free, what is free, in thousandths; `None` for a line that keeps none.
    pub(super) fn margin_left(&self, now: Millis) -> Option<i64> {
        let margin = self.margin();
        (margin > 0).then_some(self.free(now)?.max(0).saturating_mul(1000) / margin)
    }

    /// Bytes that the line keeps free.
    pub(super) fn margin(&self) -> i64 {
        self.last.map_or(0, |last| last.free.saturating_sub(last.room))
    }

    /// How fast the account fills, if it is more than noise.
    pub(super) fn filling(&self) -> Option<Rate> {
        let slope = self.stuck.unwrap_or_else(|| self.trend.slope());
        (slope > noise(self.kind)).then_some(slope)
    }

    /// Whether the last bytes are gone within a span if nothing is done.
    pub(super) fn is_sinking(&self, now: Millis, within: Millis) -> bool {
        self.free(now).is_some_and(|free| free.saturating_sub(self.ahead(within)) <= 0)
    }

    /// Whether what is known is young enough to give bytes away on.
    pub(super) fn is_fresh(&self, now: Millis) -> bool {
        self.stuck.is_none() && self.last.is_some_and(|last| now.since(last.at) <= limits::READING_MAX_AGE)
    }

    /// The newest reading, as it was read.
    pub(super) fn newest(&self) -> Option<Reading> {
        self.last
    }

    /// When to look again: before the fastest growth that is believed possible has taken a quarter of what is free. A sensor
    /// that is blind is asked less often: what could be done without it is done already.
    pub(super) fn pause(&self, now: Millis) -> Millis {
        if self.last.is_some() && !self.is_fresh(now) {
            return limits::SAMPLE_BLIND;
        }
        let fastest = self.trend.fastest(now).max(1);
        let free = self.free(now).unwrap_or(0).max(0);
        let pause_ms = free.saturating_mul(1000 / 4) / fastest;
        Millis(pause_ms as u64).clamp(limits::SAMPLE_MIN, limits::SAMPLE_MAX)
    }
}

/// Growth that is a desktop's breathing.
fn noise(kind: Kind) -> Rate {
    match kind {
        Kind::Host => signed(limits::HOST_SLOPE_NOISE),
        Kind::Vram => signed(limits::VRAM_SLOPE_NOISE),
    }
}

/// As a signed number; absurd sizes stay absurd.
pub(super) fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

/// What is positive of a signed number.
pub(super) fn unsigned(bytes: i64) -> Bytes {
    Bytes(bytes.max(0) as u64)
}
