//! The rules: rows of signal, threshold, how long, whose account, how pressing.

use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::lever::{Kind, Urgency};

/// What a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Milliseconds until nothing is free at the present slope.
    TimeToLimit,
    /// Bytes above the line: negative beyond it.
    Room,
    /// Of the bytes that the line keeps free, what is free, in thousandths.
    MarginLeft,
    /// Refaults a second.
    Refaults,
    /// Bytes of swap that were taken since it was last seen smaller.
    SwapGrowth,
    /// Thousandths of the time in which somebody waits for memory.
    Stalled,
    /// Bytes above the line at a request's start, before its prompt runs.
    RoomAtRequest,
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its name in the log.
    pub id: &'static str,
    /// Whose account.
    pub kind: Kind,
    /// What it looks at.
    pub signal: Signal,
    /// From which value on; in the unit of the signal.
    pub threshold: i64,
    /// How long that has to last.
    pub lasting: Millis,
    /// How pressing it is then.
    pub urgency: Urgency,
}

/// All rules. Beyond its line an account has its margin, which is there for short peaks: they pass without a move. What lasts
/// is answered, and what would use the margin up is answered at once. PSI, refaults and swap are evidence of thrash and come
/// late; the alarm is the count of bytes.
pub const RULES: [Rule; 9] = [
    row("H1", Kind::Host, Signal::TimeToLimit, limits::TIME_TO_LIMIT_SOON.0 as i64, 400, Urgency::Soon),
    row("H2", Kind::Host, Signal::TimeToLimit, limits::TIME_TO_LIMIT_NOW.0 as i64, 0, Urgency::Now),
    row("H3", Kind::Host, Signal::MarginLeft, 500, 0, Urgency::Now),
    row("H4", Kind::Host, Signal::Room, 0, limits::PEAK.0, Urgency::Now),
    row("H5", Kind::Host, Signal::Refaults, 5_000, 5_000, Urgency::Now),
    row("H6", Kind::Host, Signal::SwapGrowth, 256 << 20, 0, Urgency::Now),
    row("H7", Kind::Host, Signal::Stalled, 200, 1_000, Urgency::Now),
    row("V1", Kind::Vram, Signal::MarginLeft, 500, 0, Urgency::Now),
    row("V2", Kind::Vram, Signal::RoomAtRequest, 0, 0, Urgency::Now),
];

const fn row(id: &'static str, kind: Kind, signal: Signal, threshold: i64, lasting_ms: u64, urgency: Urgency) -> Rule {
    Rule { id, kind, signal, threshold, lasting: Millis(lasting_ms), urgency }
}

impl Signal {
    /// Whether a value is beyond a threshold.
    fn is_beyond(self, value: i64, threshold: i64) -> bool {
        match self {
            Signal::TimeToLimit | Signal::Room | Signal::MarginLeft | Signal::RoomAtRequest => value < threshold,
            Signal::Refaults | Signal::SwapGrowth | Signal::Stalled => value > threshold,
        }
    }

    /// `host.time_to_limit 1.8 s < 2.5 s`, without the account.
    fn words(self, value: i64, threshold: i64) -> String {
        let bytes = |value: i64| match value {
            ..0 => format!("−{}", Bytes(value.unsigned_abs())),
            0.. => Bytes(value as u64).to_string(),
        };
        let span = |value: i64| Millis(value.max(0) as u64);
        match self {
            Signal::TimeToLimit => format!("time_to_limit {} < {}", span(value), span(threshold)),
            Signal::MarginLeft => format!("margin_left {value} ‰ < {threshold} ‰"),
            Signal::Room => format!("room {} < {}", bytes(value), bytes(threshold)),
            Signal::RoomAtRequest => format!("room_at_request {} < {}", bytes(value), bytes(threshold)),
            Signal::Refaults => format!("refaults {value}/s > {threshold}/s"),
            Signal::SwapGrowth => format!("swap_growth {} > {}", bytes(value), bytes(threshold)),
            Signal::Stalled => format!("stalled {value} ‰ > {threshold} ‰"),
        }
    }
}

/// A rule that speaks, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// Which rule.
    pub rule: Rule,
    /// What its signal is.
    pub value: i64,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = match self.rule.kind {
            Kind::Host => "host",
            Kind::Vram => "vram",
        };
        let words = self.rule.signal.words(self.value, self.rule.threshold);
        write!(f, "{account}.{words} (rule {})", self.rule.id)
    }
}

/// Since when each rule has been beyond its threshold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Since([Option<Millis>; RULES.len()]);

impl Since {
    /// The most pressing rule of a kind that has been beyond its threshold for long enough.
    pub(super) fn alarm(&mut self, now: Millis, kind: Kind, value_of: impl Fn(Signal) -> Option<i64>) -> Option<Alarm> {
        let mut worst: Option<Alarm> = None;
        for (rule, since) in RULES.iter().zip(&mut self.0).filter(|(rule, _)| rule.kind == kind) {
            let beyond = value_of(rule.signal).filter(|value| rule.signal.is_beyond(*value, rule.threshold));
            let Some(value) = beyond else {
                *since = None;
                continue;
            };
            let lasted = now.since(*since.get_or_insert(now));
            if lasted >= rule.lasting && worst.is_none_or(|worst| worst.rule.urgency < rule.urgency) {
                worst = Some(Alarm { rule: *rule, value });
            }
        }
        worst
    }
}
