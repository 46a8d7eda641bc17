//! How long an account must have been quiet before bytes are given back.
//!
//! Downward moves are never limited; what is limited are reversals. A recovery that had to be undone doubles the quiet time
//! before the next, a calm hour halves it.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

/// The quiet time of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    span: Millis,
    /// The last recovery, while it may still have to be undone.
    raised_at: Option<Millis>,
    /// When the span was last doubled or halved.
    changed_at: Millis,
}

impl Default for Quiet {
    fn default() -> Quiet {
        Quiet { span: limits::QUIET_MIN, raised_at: None, changed_at: Millis(0) }
    }
}

impl Quiet {
    /// How long, now.
    pub fn span(&mut self, now: Millis) -> Millis {
        while self.span > limits::QUIET_MIN && now.since(self.changed_at) >= limits::QUIET_HALVES_AFTER {
            self.span = Millis(self.span.0 / 2).max(limits::QUIET_MIN);
            self.changed_at = self.changed_at.saturating_add(limits::QUIET_HALVES_AFTER);
        }
        self.span
    }

    /// Bytes were given back.
    pub fn raised(&mut self, now: Millis) {
        self.raised_at = Some(now);
    }

    /// Bytes had to be taken. True if that undoes the last recovery.
    pub fn lowered(&mut self, now: Millis) -> bool {
        let span = self.span(now);
        let within = span.max(limits::UNDONE_WITHIN);
        let is_undone = self.raised_at.take().is_some_and(|at| now.since(at) < within);
        if is_undone {
            (self.span, self.changed_at) = (Millis(span.0 * 2).min(limits::QUIET_MAX), now);
        }
        is_undone
    }
}
