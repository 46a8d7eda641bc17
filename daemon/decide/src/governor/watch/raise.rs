//! Bytes are given back, the dearest lever first.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::flight::Wanted;
use super::{Phase, Watch};
use crate::governor::desk::Desk;
use crate::governor::gauge::{signed, unsigned};
use crate::governor::lever::{Kind, LADDER, Lever};
use crate::governor::note::{Note, Why};
use crate::governor::{Order, Output};

impl Watch {
    /// Gives bytes back, if it has been quiet until `until` and there is room for them.
    pub(super) fn raise(&mut self, now: Millis, until: Millis, desk: &mut Desk, out: &mut Output) {
        let (breath, chunk) = match self.kind {
            Kind::Host => (limits::HOST_BREATH, limits::HOST_RAISE_CHUNK),
            Kind::Vram => (limits::VRAM_BREATH, limits::VRAM_RAISE_CHUNK),
        };
        let spare = unsigned(self.gauge.lasting_room(now).unwrap_or(0).saturating_sub(2 * signed(breath)));
        if desk.is_paused && self.kind == Kind::Host && spare > Bytes::ZERO {
            desk.is_paused = false;
            out.notes.push(Note::Resumed);
            out.orders.push(Order::ResumeAdmission);
        }
        if now < until || !self.gauge.is_fresh(now) || self.gauge.filling().is_some() {
            return;
        }
        let below = self.below(now, desk);
        if below.is_empty() {
            self.phase = Phase::Home;
            return;
        }
        // A lever that moves as a whole and does not fit is passed over; of any other a part is better than none.
        let step = |wanted: &Wanted| {
            let missing = wanted.to.saturating_sub(wanted.reading.now);
            let step = missing.min(chunk).min(spare).rounded_down_to(limits::SLAB);
            match wanted.reading.lever.is_whole() {
                true => (missing <= spare).then_some(missing),
                false => Some(step).filter(|step| *step >= missing.min(limits::RAISE_MIN)),
            }
        };
        match below.iter().find_map(|wanted| Some((*wanted, step(wanted)?))) {
            None => desk.cannot_raise(now, below[0].why, out),
            Some((wanted, step)) => {
                let to = wanted.reading.now.saturating_add(step);
                if self.order(now, Wanted { to, ..wanted }, desk, out) {
                    self.quiet.raised(now);
                }
            }
        }
    }

    /// The levers that are below where they should be, the dearest first: their home; and where the file is read too much and
    /// all are home, more than that for the experts in host memory.
    pub(super) fn below(&mut self, now: Millis, desk: &Desk) -> Vec<Wanted> {
        let why = Why::Quiet(self.quiet.span(now));
        let rungs = LADDER.iter().rev().filter(|rung| rung.kind == self.kind);
        let readings = rungs.filter_map(|rung| desk.lever(self.id, rung.lever));
        let home = readings.clone().filter(|reading| reading.now < reading.home);
        let home: Vec<Wanted> = home.map(|reading| Wanted { reading: *reading, to: reading.home, why }).collect();
        if let (true, Some(per_token)) = (home.is_empty(), desk.disk_pressure(now)) {
            let why = Why::FileReads { per_token };
            let mut budget = readings.filter(|reading| reading.lever == Lever::ResidentBudget);
            let more = budget.find(|reading| reading.now < reading.ceiling);
            return more.map(|reading| Wanted { reading: *reading, to: reading.ceiling, why }).into_iter().collect();
        }
        home
    }
}
