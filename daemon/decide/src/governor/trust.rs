//! What a lever gives of what it promises, as far as it was measured.

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

use super::lever::Lever;

/// For each lever that was pulled: thousandths of its promise that came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    permille: BTreeMap<Lever, u64>,
}

impl Trust {
    /// Thousandths; 1000 until something else was measured.
    pub fn permille(&self, lever: Lever) -> u64 {
        self.permille.get(&lever).copied().unwrap_or(1000)
    }

    /// How far a lever has to move to give so much.
    pub fn distance(&self, lever: Lever, need: Bytes) -> Bytes {
        Bytes(need.0.saturating_mul(1000) / self.permille(lever))
    }

    /// Learns from one move: half of the way from what was believed to what was measured. Never more than the promise, and
    /// never less than [`limits::TRUST_MIN_PERMILLE`]: a lever that gave nothing once may have been measured badly.
    pub fn learn(&mut self, lever: Lever, promised: Bytes, measured: Bytes) {
        if promised == Bytes::ZERO {
            return;
        }
        let seen = (u128::from(measured.0) * 1000 / u128::from(promised.0)).min(1000) as u64;
        let next = (self.permille(lever) + seen) / 2;
        self.permille.insert(lever, next.max(limits::TRUST_MIN_PERMILLE));
    }
}
