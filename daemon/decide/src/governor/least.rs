//! The least of the last minute: what is given back to a lever, or planned with at a start, must have been there for so long.
//!
//! A program that pauses between two bursts, a card's counter that is wrong for some seconds: room that comes and goes is none.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;

/// How many spans the window has.
const N_SPANS: usize = 6;

/// Least values of the last spans of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Least {
    /// The number of each span since the beginning of time, and its least value.
    spans: [Option<(u64, i64)>; N_SPANS],
}

impl Least {
    /// Takes one value in.
    pub fn note(&mut self, at: Millis, value: i64) {
        let number = number(at);
        let span = &mut self.spans[(number % N_SPANS as u64) as usize];
        *span = match *span {
            Some((same, least)) if same == number => Some((same, least.min(value))),
            Some(_) | None => Some((number, value)),
        };
    }

    /// The least value of the window; `None` if there is none.
    pub fn get(&self, now: Millis) -> Option<i64> {
        let oldest = (number(now) + 1).saturating_sub(N_SPANS as u64);
        self.spans.iter().flatten().filter(|(number, _)| *number >= oldest).map(|(_, least)| *least).min()
    }
}

fn number(at: Millis) -> u64 {
    at.0 / (limits::ROOM_LASTING.0 / N_SPANS as u64)
}
