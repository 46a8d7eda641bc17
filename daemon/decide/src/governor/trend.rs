//! How fast an account fills: a robust slope over its last readings.
//!
//! The estimator is Theil's and Sen's: the median of the slopes between all pairs of samples. One reading in four may be
//! nonsense and it still says what the others say. It takes a jump in the middle of its window for a growth, so the median of
//! the last three steps has to agree: the lesser of the two counts. What our own levers move is taken out first, by adding to the free bytes
//! what the levers hold: freeing 8 GiB must not look like others giving 8 GiB back, nor a recovery like somebody's growth.

use std::collections::VecDeque;

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

/// Bytes a second; positive when the account fills.
pub type Rate = i64;

/// The last readings of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trend {
    /// When, and bytes free if our levers held nothing. At most [`limits::TREND_SAMPLES`], the oldest first.
    samples: VecDeque<(Millis, i64)>,
    slope: Rate,
    /// Believed possible before anything was seen.
    prior: Rate,
    fastest: Rate,
    fastest_at: Millis,
}

impl Trend {
    /// Nothing seen yet; `fastest` is what the machine is believed to be capable of.
    pub fn new(fastest: Rate) -> Trend {
        Trend {
            samples: VecDeque::with_capacity(limits::TREND_SAMPLES),
            slope: 0,
            prior: fastest,
            fastest,
            fastest_at: Millis(0),
        }
    }

    /// Takes one reading in. One that was seen before, or is older than the last, changes nothing.
    pub fn note(&mut self, at: Millis, free: i64) {
        if self.samples.back().is_some_and(|(last, _)| at <= *last) {
            return;
        }
        if self.samples.len() == limits::TREND_SAMPLES {
            self.samples.pop_front();
        }
        while self.samples.front().is_some_and(|(first, _)| at.since(*first) > limits::TREND_WINDOW) {
            self.samples.pop_front();
        }
        self.samples.push_back((at, free));
        self.slope = theil_sen(&self.samples).min(last_steps(&self.samples));
        if self.slope >= self.fastest(at) {
            (self.fastest, self.fastest_at) = (self.slope, at);
        }
    }

    /// Forgets the readings, not the fastest growth: a worker came or went, and with it the meaning of the free bytes.
    pub fn restart(&mut self) {
        self.samples.clear();
        self.slope = 0;
    }

    /// How fast the account fills now; 0 until there are readings enough.
    pub fn slope(&self) -> Rate {
        self.slope
    }

    /// The fastest growth that is believed possible: the fastest seen, halved for each hour since, and never less than what
    /// was believed at first.
    pub fn fastest(&self, now: Millis) -> Rate {
        let n_halvings = now.since(self.fastest_at).0 / limits::FASTEST_HALF_LIFE.0;
        (self.fastest >> n_halvings.min(40)).max(self.prior)
    }
}

/// The median of all pairs' slopes, as growth of use; 0 for fewer than three samples.
fn theil_sen(samples: &VecDeque<(Millis, i64)>) -> Rate {
    const N: usize = limits::TREND_SAMPLES;
    if samples.len() < 3 {
        return 0;
    }
    let mut slopes = [0; N * (N - 1) / 2];
    let mut n_slopes = 0;
    for (i, later) in samples.iter().enumerate() {
        for earlier in samples.iter().take(i) {
            slopes[n_slopes] = slope(*earlier, *later);
            n_slopes += 1;
        }
    }
    let slopes = &mut slopes[..n_slopes];
    slopes.sort_unstable();
    slopes[n_slopes / 2]
}

/// The median of the slopes of the last three steps; 0 for fewer than four samples.
fn last_steps(samples: &VecDeque<(Millis, i64)>) -> Rate {
    let Some(first) = samples.len().checked_sub(4) else { return 0 };
    let mut steps = [0; 3];
    for (i, step) in steps.iter_mut().enumerate() {
        *step = slope(samples[first + i], samples[first + i + 1]);
    }
    steps.sort_unstable();
    steps[1]
}

/// Growth of use between two samples.
fn slope((earlier, free_earlier): (Millis, i64), (later, free_later): (Millis, i64)) -> Rate {
    let span_ms = later.since(earlier).0.max(1) as i64; // times ascend strictly, and a window is seconds
    free_earlier.saturating_sub(free_later).saturating_mul(1000) / span_ms
}
