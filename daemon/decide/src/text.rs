//! Figures as the verdicts write them.

use plimsoll_config::units::{Bytes, Millis, thousands};

const DAY: Millis = Millis::from_secs(24 * 60 * 60);

/// Whole MiB, rounded to the nearest: what is held. `2,367`.
pub(crate) fn mib(bytes: Bytes) -> String {
    thousands(bytes.saturating_add(Bytes(1 << 19)).mib_rounded_down())
}

/// How old something is, in the one unit that matters: `40 s`, `12 min`, `5 h`, `3 days`.
pub(crate) fn age(span: Millis) -> String {
    match span.0 / 1000 {
        s if s < 60 => format!("{s} s"),
        s if s < 3600 => format!("{} min", s / 60),
        s if s < 2 * DAY.0 / 1000 => format!("{} h", s / 3600),
        s => format!("{} days", s / (DAY.0 / 1000)),
    }
}

/// A span down to a tenth of a second: `8.2 s`.
pub(crate) fn seconds(span: Millis) -> String {
    format!("{}.{} s", span.0 / 1000, span.0 % 1000 / 100)
}
