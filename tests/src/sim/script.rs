//! A policy that does at given moments what it was told to, and remembers what it saw: for tests of the world and its rules.

use super::policy::{Order, Policy, Promises};
use super::sight::{Happening, HostReading, Sight};
use plimsoll_config::units::Millis;
use std::cell::RefCell;
use std::rc::Rc;

/// What a script saw.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Everything that happened, and when it was told.
    pub happened: Vec<(Millis, Happening)>,
    /// Host readings, and when they were seen.
    pub host: Vec<(Millis, HostReading)>,
    /// The other clock at each look.
    pub boot: Vec<(Millis, Millis)>,
}

/// Orders with their moments, in order of time.
#[derive(Debug, Clone)]
pub struct Script {
    orders: Vec<(Millis, Order)>,
    next: usize,
    look_every: Millis,
    now: Millis,
    promises: Promises,
    seen: Rc<RefCell<Seen>>,
}

impl Script {
    /// A script that looks every `look_every`, and where its sights are kept.
    #[must_use]
    pub fn new(orders: Vec<(Millis, Order)>, look_every: Millis) -> (Self, Rc<RefCell<Seen>>) {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let promises = Promises { journal: false, discipline: true };
        (Self { orders, next: 0, look_every, now: Millis(0), promises, seen: Rc::clone(&seen) }, seen)
    }
}

impl Policy for Script {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        self.now = now;
        let mut seen = self.seen.borrow_mut();
        seen.happened.extend(sight.happened.iter().map(|happening| (now, happening.clone())));
        seen.host.extend(sight.host.map(|reading| (now, reading.value)));
        seen.boot.push((now, sight.boot_now));
        let due = self.orders[self.next..].iter().take_while(|(at, _)| *at <= now);
        let due: Vec<Order> = due.map(|(_, order)| *order).collect();
        self.next += due.len();
        due
    }

    fn next_look(&self) -> Millis {
        let next = self.orders.get(self.next).map_or(Millis(u64::MAX), |(at, _)| *at);
        next.min(self.now.saturating_add(self.look_every))
    }

    fn idle(&self) -> bool {
        false
    }

    fn promises(&self) -> Promises {
        self.promises
    }
}
