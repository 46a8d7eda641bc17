//! Host memory that a worker is leaving.
//!
//! With a card it can stay lost: up to 15 GiB were seen to be missing after an exit on some drivers, until the next boot.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::HostReading;
use crate::text::mib;

/// Host memory, from before the stop on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    before: HostReading,
    /// What the worker held.
    held: Bytes,
    /// What of it is back; `None` before the first look.
    returned: Option<Bytes>,
    back_at: Option<Millis>,
}

impl Host {
    /// `None` where what the worker held is not worth waiting for.
    pub(super) fn new(before: HostReading, held: Bytes) -> Option<Host> {
        (held >= limits::DEPARTURE_MIN).then_some(Host { before, held, returned: None, back_at: None })
    }

    pub(super) fn is_back(&self) -> bool {
        self.back_at.is_some()
    }

    pub(super) fn back_at(&self) -> Option<Millis> {
        self.back_at
    }

    pub(super) fn missing(&self) -> Option<Bytes> {
        self.returned.map(|returned| self.held.saturating_sub(returned))
    }

    /// Takes one look in; an old one counts as none.
    pub(super) fn look(&mut self, now: Millis, reading: HostReading) {
        if now.since(reading.at) > limits::HOST_READING_MAX_AGE {
            return;
        }
        let (taken, given) = match (self.before.foreign, reading.foreign) {
            (Some(before), Some(now)) => (now.saturating_sub(before), before.saturating_sub(now)),
            (None, _) | (_, None) => (Bytes::ZERO, Bytes::ZERO),
        };
        let without_us = self.before.available.saturating_add(given);
        let returned = reading.available.saturating_add(taken).saturating_sub(without_us);
        self.returned = Some(returned);
        let may_be_missing =
            limits::CLEAN_TOLERANCE_MIN.min(Bytes(self.held.0 / 100 * limits::RELEASE_MISSING_PERCENT));
        if self.held.saturating_sub(returned) <= may_be_missing {
            self.back_at.get_or_insert(reading.at);
        }
    }

    pub(super) fn words(&self) -> String {
        match self.returned {
            None => "host: not looked at yet".to_owned(),
            Some(returned) => format!(
                "host: {} of {} MiB are back; what stays away although the process is gone is held by the driver or taken by \
                 another program",
                mib(returned.min(self.held)),
                mib(self.held)
            ),
        }
    }
}
