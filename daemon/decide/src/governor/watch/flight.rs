//! A move under way: how it is ordered, and how it ends.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::{Phase, Watch};
use crate::governor::desk::Desk;
use crate::governor::gauge::{Reading, unsigned};
use crate::governor::lever::LeverReading;
use crate::governor::note::{Move, Note, Why};
use crate::governor::trend::Rate;
use crate::governor::{Order, Output};

/// A move that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// Which one.
    pub moved: Move,
    /// When it was ordered.
    pub sent: Millis,
    /// How fast the account filled then: what the relief is measured against.
    fill: Rate,
    /// What was free then.
    free_before: i64,
    /// When the worker said that it is done, and what it says it freed or took.
    pub(super) answered: Option<(Millis, Bytes)>,
    /// Whether [`Note::Late`] was said.
    is_late: bool,
}

/// Where a lever should stand, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) reading: LeverReading,
    pub(super) to: Bytes,
    pub(super) why: Why,
}

impl Watch {
    /// Sends one order, or writes it on paper; true if it was sent.
    pub(super) fn order(&mut self, now: Millis, wanted: Wanted, desk: &mut Desk, out: &mut Output) -> bool {
        let Wanted { reading, to, why } = wanted;
        let moved = Move { id: desk.next_move(), lever: reading.lever, account: self.id, from: reading.now, to };
        if !desk.may_move(why) {
            if now >= self.paper_until {
                self.paper_until = now.saturating_add(limits::PAPER_PAUSE);
                out.notes.push(Note::WouldMove(moved, why));
            }
            return false;
        }
        let flight = Flight {
            moved,
            sent: now,
            fill: self.gauge.filling().unwrap_or(0),
            free_before: self.gauge.newest().map_or(0, |newest| newest.free),
            answered: None,
            is_late: false,
        };
        self.phase = if moved.is_down() { Phase::Lowering(flight) } else { Phase::Raising(flight) };
        out.notes.push(Note::Moved(moved, why));
        out.orders.push(Order::Move(moved));
        true
    }

    /// Ends a flight whose effect can be seen, or that is too late.
    pub(super) fn land(&mut self, now: Millis, desk: &mut Desk, out: &mut Output) {
        let (Phase::Lowering(flight) | Phase::Raising(flight)) = self.phase else { return };
        let seen = self.gauge.newest().filter(|seen| flight.answered.is_some_and(|(answered, _)| seen.at > answered));
        match (flight.answered, seen) {
            (Some((_, said)), Some(seen)) => {
                let measured = flight.measured(seen);
                if flight.moved.is_down() {
                    desk.trust.learn(flight.moved.lever, flight.moved.distance(), measured.min(said));
                }
                out.notes.push(Note::Relief { moved: flight.moved, said, measured, took: seen.at.since(flight.sent) });
            }
            (Some((answered, _)), None) if now.since(answered) <= limits::READING_MAX_AGE => return,
            (None, _) if now < flight.deadline() => return,
            // Nobody reads the account, so nobody sees what came of it: for all that is known, nothing.
            (Some((_, said)), None) => {
                let took = now.since(flight.sent);
                out.notes.push(Note::Relief { moved: flight.moved, said, measured: Bytes::ZERO, took });
            }
            (None, _) => {
                self.note_late(out);
                return;
            }
        }
        self.landed = Some(now);
        let pause = if flight.moved.is_down() { self.quiet.span(now) } else { limits::RAISE_PAUSE };
        self.phase = Phase::Low { until: now.saturating_add(pause) };
    }

    /// Says once that the move under way is late.
    pub(super) fn note_late(&mut self, out: &mut Output) {
        match &mut self.phase {
            Phase::Lowering(flight) | Phase::Raising(flight) if !flight.is_late => {
                flight.is_late = true;
                out.notes.push(Note::Late(flight.moved));
            }
            Phase::Lowering(_) | Phase::Raising(_) | Phase::Home | Phase::Low { .. } => {}
        }
    }
}

impl Flight {
    pub(super) fn deadline(&self) -> Millis {
        let pause = if self.moved.is_down() { limits::LOWER_DEADLINE } else { limits::RAISE_DEADLINE };
        self.sent.saturating_add(pause)
    }

    /// Whether a worker that is well would have answered: a hand-over, and the return of the bytes.
    pub(super) fn is_overdue(&self, now: Millis) -> bool {
        let return_ms = self.moved.distance().0 / (limits::RETURN_PER_SECOND.0 / 1000);
        let expected = limits::OVERDUE.saturating_add(Millis(return_ms));
        self.answered.is_none() && now.since(self.sent) >= expected
    }

    /// What the account shows of the move: how its free bytes changed, without the growth of others that was under way.
    pub(super) fn measured(&self, seen: Reading) -> Bytes {
        let grown = self.fill.saturating_mul(seen.at.since(self.sent).0 as i64) / 1000;
        let change = seen.free.saturating_sub(self.free_before).saturating_add(grown);
        unsigned(if self.moved.is_down() { change } else { -change })
    }
}
