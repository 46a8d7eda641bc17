//! What all accounts share: the levers, what they are trusted with, and what may be done at all.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::gauge::unsigned;
use super::lever::{Lever, LeverReading};
use super::note::{MoveId, Note, Why};
use super::reading::{DiskReading, Timed};
use super::rule::Signal;
use super::trust::Trust;
use super::watch::Watch;
use super::{Mode, Order, Output, Settings};
use crate::ledger::AccountId;

/// What there is to be governed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worker {
    /// Nothing.
    Gone,
    /// One that fills memory, and has no lever yet.
    Loads,
    /// One with levers.
    Serves,
}

/// The shared part of the governor's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desk {
    pub(super) settings: Settings,
    pub(super) worker: Worker,
    pub(super) levers: Vec<LeverReading>,
    pub(super) trust: Trust,
    pub(super) is_request_starting: bool,
    pub(super) is_paused: bool,
    /// When the worker was told to end, and whether it was killed; nothing is worth moving any more.
    pub(super) stop: Option<(Millis, bool)>,
    n_moves: u64,
    /// Since when the file is read more than planned, and how much.
    disk: Option<(Millis, Bytes)>,
    disk_noted: Option<Millis>,
}

impl Desk {
    pub(super) fn new(settings: Settings) -> Desk {
        Desk {
            settings,
            worker: Worker::Gone,
            levers: Vec::new(),
            trust: Trust::default(),
            is_request_starting: false,
            is_paused: false,
            stop: None,
            n_moves: 0,
            disk: None,
            disk_noted: None,
        }
    }

    pub(super) fn lever(&self, account: AccountId, lever: Lever) -> Option<&LeverReading> {
        self.levers.iter().find(|reading| reading.account == account && reading.lever == lever)
    }

    pub(super) fn next_move(&mut self) -> MoveId {
        self.n_moves += 1;
        MoveId(self.n_moves)
    }

    /// Whether the worker is one that can't be told to move a lever yet.
    pub(super) fn is_loading(&self) -> bool {
        self.worker == Worker::Loads
    }

    /// Whether anything may be done.
    pub(super) fn may_act(&self) -> bool {
        self.settings.mode == Mode::Act && self.worker != Worker::Gone && !self.is_stopping()
    }

    /// Whether the worker was told to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether it was told long ago, and is still there.
    pub(super) fn is_stop_overdue(&self, now: Millis) -> bool {
        self.stop.is_some_and(|(since, killed)| !killed && now.since(since) >= limits::OVERDUE)
    }

    /// Ends the worker for the sake of an account.
    pub(super) fn restart(&mut self, now: Millis, watch: &Watch, at_once: bool, out: &mut Output) {
        self.stop = Some((now, at_once));
        let free = unsigned(watch.gauge.newest().map_or(0, |newest| newest.free));
        out.notes.push(Note::Restart { account: watch.id, free, at_once });
        out.orders.push(Order::Restart { at_once });
    }

    /// Whether a lever may move for this reason. While figures are taken for comparison, the cache stands still: the rule
    /// of a request's start and recovery only report.
    pub(super) fn may_move(&self, why: Why) -> bool {
        let is_held = match why {
            Why::Alarm(alarm) => alarm.rule.signal == Signal::RoomAtRequest,
            Why::Quiet(_) | Why::FileReads { .. } => true,
        };
        self.may_act() && !(self.settings.is_benchmark && is_held)
    }

    /// Takes in how much the file is read.
    pub(super) fn note_disk(&mut self, reading: &Timed<DiskReading>) {
        let Some(planned) = self.settings.reads_per_token else { return };
        let per_token = reading.value.per_token;
        let is_over = per_token > Bytes(planned.0.saturating_mul(limits::FILE_READS_PERCENT) / 100);
        let is_worth_it = is_over && per_token >= limits::FILE_READS_MIN;
        self.disk = is_worth_it.then(|| (self.disk.map_or(reading.at, |(since, _)| since), per_token));
    }

    /// Bytes a token, when the file has been read more than planned for long enough (rule D1).
    pub(super) fn disk_pressure(&self, now: Millis) -> Option<Bytes> {
        self.disk.filter(|(since, _)| now.since(*since) >= limits::FILE_READS_LASTING).map(|(_, per_token)| per_token)
    }

    /// There is no room for what a lever should have back. Worth a word only where that is felt in every token.
    pub(super) fn cannot_raise(&mut self, now: Millis, why: Why, out: &mut Output) {
        match why {
            Why::FileReads { per_token }
                if self.disk_noted.is_none_or(|at| now.since(at) >= limits::DISK_NOTE_PAUSE) =>
            {
                self.disk_noted = Some(now);
                out.notes.push(Note::DiskBound { per_token });
            }
            Why::FileReads { .. } | Why::Quiet(_) | Why::Alarm(_) => {}
        }
    }
}
