//! Random draws in whole numbers, each purpose from its own stream: a new part of a world moves no other.

use super::world::Range;
use crate::fixture::rng::Rng;

/// A thousandth of a chance.
pub(super) const ALWAYS_PERMILLE: u64 = 1000;

/// Draws for one purpose.
#[derive(Debug, Clone)]
pub struct Draw(Rng);

impl Draw {
    /// The stream of (seed, purpose).
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(Rng::new(seed, purpose))
    }

    /// A number of the range.
    pub fn from(&mut self, range: Range) -> u64 {
        let width = range.high - range.low + 1;
        let scaled = u128::from(self.0.next_u64()) * u128::from(width);
        range.low + (scaled >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.from(Range { low: 0, high: (high - low).max(0) as u64 }) as i64
    }

    /// A number of the range, small ones oftener: the smaller of two.
    pub fn smallish(&mut self, range: Range) -> u64 {
        self.from(range).min(self.from(range))
    }

    /// Whether a chance of so many thousandths comes.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.from(Range { low: 0, high: ALWAYS_PERMILLE - 1 }) < permille
    }

    /// How many of a day's events fall in `ms` milliseconds: whole ones, and one more by chance for the rest.
    pub fn count(&mut self, per_day: Range, ms: i64) -> u64 {
        const DAY_MS: u64 = 24 * 3_600_000;
        let scaled = self.from(per_day) * ms.max(0) as u64;
        let rest = self.from(Range { low: 0, high: DAY_MS - 1 });
        (scaled + rest) / DAY_MS
    }
}

/// 64 bits that depend on all the numbers: for draws that are made at moments that a policy chooses.
#[must_use]
pub fn mix(seed: u64, a: u64, b: u64) -> u64 {
    let mut z = seed ^ a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in `low..=high` from [`mix`]ed bits.
#[must_use]
pub fn pick(bits: u64, low: i64, high: i64) -> i64 {
    low + ((u128::from(bits) * (high - low + 1).max(1) as u128) >> 64) as i64
}
