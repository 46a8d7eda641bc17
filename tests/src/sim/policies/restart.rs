//! `restart`: the loop of `nvidia-smi` and `pkill` that people write. Once a minute, when free VRAM or free memory is under a
//! threshold, it kills the engine and starts it again with what fits. Answers are lost.

use super::none::NoPolicy;
use crate::sim::policy::{Facts, Order, Policy, Promises, Stop};
use crate::sim::sight::Sight;
use plimsoll_config::units::{Bytes, Millis};

/// `sleep 60`.
const PERIOD: Millis = Millis(60_000);
/// Thresholds that people write.
const LEAST_VRAM: Bytes = Bytes::from_mib(512);
const LEAST_HOST: Bytes = Bytes::from_gib(2);

/// A script around a plain engine.
#[derive(Debug)]
pub struct Restart {
    engine: NoPolicy,
    look_at: Millis,
}

impl Restart {
    /// For a machine and a model.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self { engine: NoPolicy::new(facts), look_at: PERIOD }
    }
}

impl Policy for Restart {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        let mut orders = self.engine.step(now, sight);
        if now < self.look_at {
            return orders;
        }
        self.look_at = now.saturating_add(PERIOD);
        let is_low = sight.host.is_some_and(|reading| reading.value.headroom() < LEAST_HOST.0 as i64);
        let is_full = sight.cards.iter().flatten().any(|reading| reading.value.free < LEAST_VRAM);
        if let Some(worker) = self.engine.worker().filter(|_| is_low || is_full) {
            orders.clear();
            orders.push(Order::Stop { worker, how: Stop::Kill });
        }
        orders
    }

    fn next_look(&self) -> Millis {
        self.engine.next_look().min(self.look_at)
    }

    fn idle(&self) -> bool {
        false
    }

    fn promises(&self) -> Promises {
        Promises { journal: false, discipline: false }
    }
}
