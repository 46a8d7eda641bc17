//! `none`: today's engine. It starts with a plan that fits at that moment, has no lever, and is started again 5 s after a death.

use crate::sim::desk::Desk;
use crate::sim::lever::Lever;
use crate::sim::plan;
use crate::sim::policy::{Facts, Order, Policy, Promises, Stop};
use crate::sim::sight::{Generation, Happening, Sight};
use plimsoll_config::units::{Bytes, Millis};

/// `RestartSec` of its unit.
pub(super) const RESTART: Millis = Millis(5_000);
/// A person notices a hang.
const PERSON: Millis = Millis(15 * 60_000);
/// Looks while a worker runs; requests wake it.
const LOOK: Millis = Millis(30_000);

/// A plain engine under a service manager.
#[derive(Debug)]
pub struct NoPolicy {
    facts: Facts,
    desk: Desk,
    worker: Option<Generation>,
    is_ready: bool,
    capacity: Option<Bytes>,
    start_at: Millis,
    next_look: Millis,
}

impl NoPolicy {
    /// For a machine and a model.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self {
            facts,
            desk: Desk::default(),
            worker: None,
            is_ready: false,
            capacity: None,
            start_at: Millis(0),
            next_look: Millis(0),
        }
    }

    fn note(&mut self, now: Millis, sight: &Sight) {
        for happening in &sight.happened {
            match happening {
                Happening::Spawned(generation) => self.worker = Some(*generation),
                Happening::Ready(_) => self.is_ready = true,
                Happening::Exited(exit) => {
                    self.desk.forget(exit);
                    (self.worker, self.is_ready) = (None, false);
                    self.start_at = now.saturating_add(RESTART);
                }
                Happening::Lever(_)
                | Happening::Offered(_)
                | Happening::NoRoom(_)
                | Happening::Finished(_)
                | Happening::Cancelled(_) => {}
            }
        }
    }

    /// The living worker.
    pub(super) fn worker(&self) -> Option<Generation> {
        self.worker
    }
}

impl Policy for NoPolicy {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        let mut orders = Vec::new();
        self.desk.note(sight, &mut orders);
        self.note(now, sight);
        self.next_look = now.saturating_add(LOOK);
        let Some(worker) = self.worker else {
            self.desk.refuse_all(&mut orders);
            self.next_look = self.start_at.max(now.saturating_add(Millis(1000)));
            if now >= self.start_at {
                self.start_at = now.saturating_add(RESTART);
                if let Some(knobs) = plan::room(&self.facts, sight).and_then(|room| plan::fit(&self.facts, &room)) {
                    let has_kv = self.facts.levers.iter().any(|lever| lever.lever == Lever::KvCapacity);
                    self.capacity = has_kv.then(|| knobs.get(Lever::KvCapacity));
                    orders.push(Order::Start { knobs, sessions: self.facts.max_sessions });
                }
            }
            return orders;
        };
        if self.desk.hangs(now, sight, PERSON) {
            orders.push(Order::Stop { worker, how: Stop::Kill });
        } else if self.is_ready {
            self.desk.submit(&self.facts, worker, self.capacity, &mut orders);
        }
        orders
    }

    fn next_look(&self) -> Millis {
        self.next_look
    }

    fn idle(&self) -> bool {
        false
    }

    fn promises(&self) -> Promises {
        Promises { journal: false, discipline: false }
    }
}
