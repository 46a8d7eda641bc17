//! Bytes are taken: which lever, how far, and what is left when none is.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::flight::Wanted;
use super::{Phase, Watch};
use crate::governor::desk::{Desk, Worker};
use crate::governor::gauge::{signed, unsigned};
use crate::governor::lever::{Kind, LADDER, Lever, LeverReading, Urgency};
use crate::governor::note::{Note, Why};
use crate::governor::rule::{Alarm, Signal};
use crate::governor::{Mode, Order, Output};

impl Watch {
    /// The cheapest lever that is not at its floor.
    pub(super) fn rung<'a>(&self, urgency: Urgency, desk: &'a Desk) -> Option<&'a LeverReading> {
        let rungs = LADDER.iter().filter(|rung| rung.kind == self.kind && rung.from <= urgency);
        let mut readings = rungs.filter_map(|rung| desk.lever(self.id, rung.lever));
        readings.find(|reading| reading.now > reading.floor)
    }

    /// Takes bytes: from one lever, or from the `turning` one that was being raised.
    pub(super) fn lower(
        &mut self,
        now: Millis,
        alarm: Alarm,
        turning: Option<Lever>,
        desk: &mut Desk,
        out: &mut Output,
    ) {
        let reading = match turning {
            Some(lever) => desk.lever(self.id, lever),
            None => self.rung(alarm.rule.urgency, desk),
        };
        let Some(reading) = reading.copied() else {
            if alarm.rule.urgency == Urgency::Now && desk.worker == Worker::Serves {
                self.exhausted(now, alarm, desk, out);
            }
            return;
        };
        let distance = desk.trust.distance(reading.lever, self.need(now, alarm)).rounded_up_to(limits::SLAB);
        let to = match reading.lever.is_whole() {
            true => reading.floor,
            false => reading.now.saturating_sub(distance).max(reading.floor),
        };
        self.thrash.swap_low = None;
        if self.order(now, Wanted { reading, to, why: Why::Alarm(alarm) }, desk, out) && self.quiet.lowered(now) {
            out.notes.push(Note::Undone { account: self.id, quiet: self.quiet.span(now) });
        }
    }

    /// Bytes that have to come back, with what the growth takes until they are there: where the last bytes are going, up to
    /// half of the margin; where the line was left for good, up to the line and a breath beyond.
    pub(super) fn need(&self, now: Millis, alarm: Alarm) -> Bytes {
        let (breath, least, lead) = match self.kind {
            Kind::Host => (limits::HOST_BREATH, limits::HOST_SHED_MIN, limits::HOST_LEAD),
            Kind::Vram => (limits::VRAM_BREATH, limits::VRAM_SHED_MIN, limits::VRAM_LEAD),
        };
        let growth = self.gauge.ahead(lead);
        let over_line = signed(breath).saturating_sub(self.gauge.room(now).unwrap_or(0));
        let over_half = (self.gauge.margin() / 2).saturating_sub(self.gauge.free(now).unwrap_or(0));
        match alarm.rule.signal {
            Signal::TimeToLimit | Signal::MarginLeft => unsigned(over_half.saturating_add(growth)).max(least),
            Signal::Room | Signal::RoomAtRequest => unsigned(over_line.saturating_add(growth)).max(least),
            // There is room by the count, and yet somebody thrashes: the count is wrong by an unknown amount.
            Signal::Refaults | Signal::SwapGrowth | Signal::Stalled => unsigned(over_line).max(breath),
        }
    }

    pub(super) fn exhausted(&mut self, now: Millis, alarm: Alarm, desk: &mut Desk, out: &mut Output) {
        self.rest(now);
        if !std::mem::replace(&mut self.is_exhausted, true) {
            out.notes.push(Note::Exhausted(self.id, alarm));
        }
        if self.kind == Kind::Host && desk.may_act() && !std::mem::replace(&mut desk.is_paused, true) {
            out.notes.push(Note::Paused(alarm));
            out.orders.push(Order::PauseAdmission);
        }
    }

    /// Ends the worker cleanly where the kernel would kill it: the last bytes are going, and no lever answers or is left.
    pub(super) fn last_resort(&mut self, now: Millis, desk: &mut Desk, out: &mut Output) {
        let (is_helpless, at_once) = match self.phase {
            Phase::Home | Phase::Low { .. } | Phase::Lowering(_) | Phase::Raising(_) if desk.is_stopping() => {
                (desk.is_stop_overdue(now), true)
            }
            Phase::Lowering(flight) => (flight.is_overdue(now), true),
            Phase::Raising(_) => (false, false),
            Phase::Home | Phase::Low { .. } => (self.rung(Urgency::Now, desk).is_none(), false),
        };
        // A full card kills only who allocates: a worker that loads, or a request's start, which is asked for.
        let is_deadly = self.kind == Kind::Host || desk.is_loading();
        let is_sinking = is_deadly && self.gauge.is_sinking(now, limits::STOP_LEAD);
        let is_there = desk.worker != Worker::Gone && desk.settings.mode == Mode::Act;
        if is_helpless && is_sinking && is_there {
            desk.restart(now, self, at_once, out);
        }
    }
}
