//! One account under watch: its readings, its rules, and the one move that is under way.
//!
//! ```text
//!            alarm                answered, and a later reading shows it; or too late
//!   Home ───────────► Lowering ───────────────────────────────────────────► Low ◄─┐
//!    ▲                   ▲  ▲                                                │    │ seen, not home yet
//!    │                   │  └─────────────────── alarm ──────────────────────┤    │
//!    │                   └── alarm: the same lever turns round ── Raising ◄──┘    │
//!    └──────────────────────────── all levers home ────────────────── │ quiet     │
//!                                                                     └───────────┘
//! ```

mod flight;
mod lower;
mod raise;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::desk::{Desk, Worker};
use super::gauge::{Gauge, signed};
use super::lever::{Kind, Urgency};
use super::quiet::Quiet;
use super::reading::HostReading;
use super::rule::{Alarm, Signal, Since};
use super::{Answer, Output};
use crate::ledger::AccountId;

pub use flight::Flight;

/// Where an account is between pressure and recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was taken that is not back.
    Home,
    /// Bytes are being taken from a lever.
    Lowering(Flight),
    /// Something is below its home.
    Low {
        /// Nothing is given back before.
        until: Millis,
    },
    /// Bytes are being given back to a lever.
    Raising(Flight),
}

/// One account under watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watch {
    pub(super) id: AccountId,
    kind: Kind,
    pub(super) gauge: Gauge,
    thrash: Thrash,
    since: Since,
    phase: Phase,
    /// When the last move's effect was seen.
    landed: Option<Millis>,
    quiet: Quiet,
    /// Nothing is written on paper before.
    paper_until: Millis,
    /// Whether [`Note::Exhausted`] was said about the present pressure.
    is_exhausted: bool,
}

/// The evidence of thrash in host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Thrash {
    refaults_per_second: i64,
    stalled_permille: i64,
    swap_used: i64,
    /// The least since it was last seen shrinking, or since bytes were last taken for it.
    swap_low: Option<i64>,
}

impl Watch {
    pub(super) fn new(id: AccountId, kind: Kind) -> Watch {
        Watch {
            id,
            kind,
            gauge: Gauge::new(kind),
            thrash: Thrash::default(),
            since: Since::default(),
            phase: Phase::Home,
            landed: None,
            quiet: Quiet::default(),
            paper_until: Millis(0),
            is_exhausted: false,
        }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Takes in what is read of host memory beside its free bytes.
    pub(super) fn note_thrash(&mut self, reading: &HostReading) {
        let swap_used = signed(reading.swap_used);
        self.thrash = Thrash {
            refaults_per_second: i64::try_from(reading.refaults_per_second).unwrap_or(i64::MAX),
            stalled_permille: i64::try_from(reading.stalled_permille).unwrap_or(i64::MAX),
            swap_used,
            swap_low: Some(self.thrash.swap_low.map_or(swap_used, |low| low.min(swap_used))),
        };
    }

    /// A worker came (levers below home wait for quiet) or went.
    pub(super) fn restart(&mut self, now: Millis, worker: Worker) {
        self.gauge.restart();
        self.is_exhausted = false;
        self.phase = match worker {
            Worker::Serves => Phase::Low { until: now.saturating_add(self.quiet.span(now)) },
            Worker::Gone | Worker::Loads => Phase::Home,
        };
    }

    /// The worker has done what it was told.
    pub(super) fn answered(&mut self, now: Millis, answer: &Answer) {
        match &mut self.phase {
            Phase::Lowering(flight) | Phase::Raising(flight) if flight.moved.id == answer.id => {
                flight.answered = Some((now, answer.bytes));
            }
            Phase::Lowering(_) | Phase::Raising(_) | Phase::Home | Phase::Low { .. } => {}
        }
    }

    /// Looks at everything once, and does at most one thing.
    pub(super) fn step(&mut self, now: Millis, desk: &mut Desk, out: &mut Output) {
        self.land(now, desk, out);
        if self.is_under_line(now) {
            self.rest(now);
        }
        match (self.phase, self.alarm(now, desk)) {
            (Phase::Lowering(_), _) | (Phase::Raising(_), None) => {}
            (Phase::Raising(flight), Some(alarm)) => self.lower(now, alarm, Some(flight.moved.lever), desk, out),
            (Phase::Home | Phase::Low { .. }, Some(alarm)) => self.lower(now, alarm, None, desk, out),
            (Phase::Home, None) => self.raise(now, now, desk, out),
            (Phase::Low { until }, None) => self.raise(now, until, desk, out),
        }
        self.last_resort(now, desk, out);
    }

    /// Whether a request that is short of bytes had better wait: bytes of this card are on their way, or could be, or are
    /// being taken by somebody, and how many is not known yet. A move hides what others take meanwhile.
    pub(super) fn holds_request(&self, now: Millis, desk: &Desk) -> bool {
        match self.phase {
            Phase::Lowering(_) => true,
            Phase::Raising(_) | Phase::Home | Phase::Low { .. } => {
                let settles = self.landed.is_some_and(|at| now.since(at) < limits::REQUEST_SETTLES);
                settles || self.gauge.filling().is_some() || self.rung(Urgency::Now, desk).is_some()
            }
        }
    }

    /// Bytes above the line when a request that starts now has taken what it needs.
    pub(super) fn room_at_request(&self, now: Millis) -> Option<i64> {
        Some(self.gauge.room(now)?.saturating_sub(self.gauge.ahead(limits::VRAM_LEAD)))
    }

    /// Whether a prompt that starts now would find fewer free bytes than it takes. Of a card that nobody can read any more
    /// counts what was read last: that it may have filled since is no reason to wait for a reading that may never come.
    pub(super) fn is_deadly(&self, now: Millis, prompt: Bytes) -> bool {
        let least = signed(prompt.saturating_add(limits::VRAM_BREATH));
        let free = match self.gauge.is_fresh(now) {
            true => self.gauge.free(now),
            false => self.gauge.newest().map(|newest| newest.free),
        };
        free.is_some_and(|free| free.saturating_sub(self.gauge.ahead(limits::VRAM_LEAD)) < least)
    }

    /// Whether the account is under its line.
    pub(super) fn is_under_line(&self, now: Millis) -> bool {
        self.gauge.room(now).is_some_and(|room| room < 0)
    }

    /// Whether nothing is expected to happen here: no move under way, no growth, and room above the line.
    pub(super) fn is_calm(&self, now: Millis) -> bool {
        let is_at_rest = match self.phase {
            Phase::Home | Phase::Low { .. } => true,
            Phase::Lowering(_) | Phase::Raising(_) => false,
        };
        is_at_rest && self.gauge.is_fresh(now) && self.gauge.filling().is_none() && !self.is_under_line(now)
    }

    /// When a pause of this account ends.
    pub(super) fn wakes_at(&self) -> Option<Millis> {
        match self.phase {
            Phase::Low { until } => Some(until),
            Phase::Home => None,
            Phase::Lowering(flight) | Phase::Raising(flight) => Some(flight.deadline()),
        }
    }

    /// The quiet time begins anew: there is pressure, whether anything is done about it or not.
    fn rest(&mut self, now: Millis) {
        match self.phase {
            Phase::Home | Phase::Low { .. } => {
                self.phase = Phase::Low { until: now.saturating_add(self.quiet.span(now)) };
            }
            Phase::Lowering(_) | Phase::Raising(_) => {}
        }
    }

    /// The most pressing rule that speaks.
    fn alarm(&mut self, now: Millis, desk: &Desk) -> Option<Alarm> {
        let (gauge, thrash) = (&self.gauge, self.thrash);
        let is_raising = matches!(self.phase, Phase::Raising(_));
        let at_request = self.room_at_request(now);
        let alarm = self.since.alarm(now, self.kind, |signal| match signal {
            // A lever that fills looks like a growth where the worker does not say what it holds. Its chunk had room.
            Signal::TimeToLimit => gauge.time_to_limit(now).filter(|_| !is_raising),
            Signal::MarginLeft => gauge.margin_left(now),
            Signal::Room => gauge.room(now),
            Signal::Refaults => Some(thrash.refaults_per_second),
            Signal::SwapGrowth => thrash.swap_low.map(|low| thrash.swap_used.saturating_sub(low)),
            Signal::Stalled => Some(thrash.stalled_permille),
            Signal::RoomAtRequest => at_request.filter(|_| desk.is_request_starting),
        });
        if alarm.is_none() {
            self.is_exhausted = false;
        }
        alarm
    }
}
