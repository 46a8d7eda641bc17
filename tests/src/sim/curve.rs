//! Use over time in straight pieces, in whole bytes and milliseconds, so that a crossing is found exactly.
//!
//! Made by `day.rs` before the day begins; read by the machine with a cursor, and by the oracle in any order.

/// One straight piece: it holds from `at_ms` to the next one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub at_ms: i64,
    /// Bytes there.
    pub bytes: i64,
    /// Bytes more with each millisecond.
    pub slope: i64,
}

impl Segment {
    fn at(&self, ms: i64) -> i64 {
        self.bytes + self.slope * (ms - self.at_ms)
    }
}

/// A change of a curve at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// When.
    pub at_ms: i64,
    /// Bytes more at once.
    pub jump: i64,
    /// Bytes more per millisecond from now on.
    pub slope: i64,
}

/// A curve: at least one segment, the first at 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    segments: Vec<Segment>,
}

impl Curve {
    /// The sum of `start` and all changes.
    #[must_use]
    pub fn new(start_bytes: i64, mut changes: Vec<Change>) -> Self {
        changes.sort_unstable();
        let mut segments = vec![Segment { at_ms: 0, bytes: start_bytes, slope: 0 }];
        for change in changes {
            let last = segments[segments.len() - 1];
            let at_ms = change.at_ms.max(0);
            let next = Segment { at_ms, bytes: last.at(at_ms) + change.jump, slope: last.slope + change.slope };
            match last.at_ms == at_ms {
                true => {
                    let index = segments.len() - 1;
                    segments[index] = next;
                }
                false => segments.push(next),
            }
        }
        Self { segments }
    }

    /// A curve that stays where it is.
    #[must_use]
    pub fn flat(bytes: i64) -> Self {
        Self::new(bytes, Vec::new())
    }

    /// The pieces.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The piece that holds at `ms`, by its number.
    #[must_use]
    pub fn piece(&self, ms: i64) -> usize {
        self.segments.partition_point(|segment| segment.at_ms <= ms).saturating_sub(1)
    }

    /// Bytes at `ms`.
    #[must_use]
    pub fn at(&self, ms: i64) -> i64 {
        self.segments[self.piece(ms)].at(ms)
    }

    /// Most bytes in `from_ms..=to_ms`. Ends of pieces are looked at from both sides, for a jump down.
    #[must_use]
    pub fn most(&self, from_ms: i64, to_ms: i64) -> i64 {
        let first = self.piece(from_ms);
        let mut most = self.segments[first].at(from_ms);
        for (index, segment) in self.segments.iter().enumerate().skip(first) {
            if segment.at_ms > to_ms {
                break;
            }
            let end_ms = self.segments.get(index + 1).map_or(to_ms, |next| next.at_ms.min(to_ms));
            most = most.max(segment.at(end_ms));
            if segment.at_ms >= from_ms {
                most = most.max(segment.bytes);
            }
        }
        most
    }

    /// Fewest bytes in `from_ms..=to_ms`, ends of pieces looked at from both sides.
    #[must_use]
    pub fn least(&self, from_ms: i64, to_ms: i64) -> i64 {
        let first = self.piece(from_ms);
        let mut least = self.segments[first].at(from_ms);
        for (index, segment) in self.segments.iter().enumerate().skip(first) {
            if segment.at_ms > to_ms {
                break;
            }
            let end_ms = self.segments.get(index + 1).map_or(to_ms, |next| next.at_ms.min(to_ms));
            least = least.min(segment.at(end_ms));
            if segment.at_ms >= from_ms {
                least = least.min(segment.bytes);
            }
        }
        least
    }

    /// The first moment in `from_ms..=to_ms` with more than `bound` bytes.
    #[must_use]
    pub fn first_over(&self, bound: i64, from_ms: i64, to_ms: i64) -> Option<i64> {
        let first = self.piece(from_ms);
        for (index, segment) in self.segments.iter().enumerate().skip(first) {
            let begin_ms = segment.at_ms.max(from_ms);
            if begin_ms > to_ms {
                return None;
            }
            let end_ms = self.segments.get(index + 1).map_or(to_ms, |next| (next.at_ms - 1).min(to_ms));
            let after = ms_until_over(bound - segment.at(begin_ms), segment.slope);
            if let Some(at_ms) = after.map(|after| begin_ms + after).filter(|at_ms| *at_ms <= end_ms) {
                return Some(at_ms);
            }
        }
        None
    }

    /// The sum of two curves.
    #[must_use]
    pub fn plus(&self, other: &Curve) -> Curve {
        let mut changes = self.changes();
        changes.extend(other.changes());
        Curve::new(self.segments[0].bytes + other.segments[0].bytes, changes)
    }

    fn changes(&self) -> Vec<Change> {
        let first = Change { at_ms: 0, jump: 0, slope: self.segments[0].slope };
        let later = self.segments.windows(2).map(|pair| Change {
            at_ms: pair[1].at_ms,
            jump: pair[1].bytes - pair[0].at(pair[1].at_ms),
            slope: pair[1].slope - pair[0].slope,
        });
        std::iter::once(first).chain(later).collect()
    }
}

/// Whole milliseconds until `room` bytes that shrink by `slope` a millisecond are negative; 0 if they are, `None` for never.
#[must_use]
pub fn ms_until_over(room: i64, slope: i64) -> Option<i64> {
    match (room < 0, slope > 0) {
        (true, _) => Some(0),
        (false, true) => Some(room / slope + 1),
        (false, false) => None,
    }
}

/// A place on a curve that only goes forward.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    piece: usize,
}

impl Cursor {
    /// Goes to `ms`, which is not before the last one.
    pub fn go(&mut self, curve: &Curve, ms: i64) {
        while curve.segments.get(self.piece + 1).is_some_and(|next| next.at_ms <= ms) {
            self.piece += 1;
        }
    }

    /// Bytes at `ms`, inside the piece where the cursor is.
    #[must_use]
    pub fn bytes(&self, curve: &Curve, ms: i64) -> i64 {
        curve.segments[self.piece].at(ms)
    }

    /// The slope where the cursor is.
    #[must_use]
    pub fn slope(&self, curve: &Curve) -> i64 {
        curve.segments[self.piece].slope
    }

    /// When the next piece begins.
    #[must_use]
    pub fn next_ms(&self, curve: &Curve) -> i64 {
        curve.segments.get(self.piece + 1).map_or(i64::MAX, |next| next.at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hill() -> Curve {
        Curve::new(
            100,
            vec![
                Change { at_ms: 10, jump: 0, slope: 5 },
                Change { at_ms: 20, jump: 0, slope: -5 },
                Change { at_ms: 50, jump: -30, slope: 0 },
            ],
        )
    }

    #[test]
    fn a_curve_is_the_sum_of_its_changes() {
        let curve = hill();
        for (ms, bytes) in [(0, 100), (10, 100), (11, 105), (20, 150), (49, 150), (50, 120), (999, 120)] {
            assert_eq!(curve.at(ms), bytes, "at {ms}");
        }
        assert_eq!(curve.plus(&Curve::flat(7)).at(15), 132);
    }

    #[test]
    fn crossings_and_tops_are_what_every_millisecond_says() {
        let curve = hill().plus(&Curve::new(0, vec![Change { at_ms: 13, jump: 9, slope: -2 }]));
        for from in 0..70 {
            for to in from..70 {
                let values: Vec<(i64, i64)> = (from..=to).map(|ms| (ms, curve.at(ms))).collect();
                for bound in [90, 100, 118, 130, 149] {
                    let first = values.iter().find(|(_, bytes)| *bytes > bound).map(|(ms, _)| *ms);
                    assert_eq!(curve.first_over(bound, from, to), first, "over {bound} in {from}..={to}");
                }
                let most = values.iter().map(|(_, bytes)| *bytes).max();
                assert!(Some(curve.most(from, to)) >= most, "top of {from}..={to}");
            }
        }
    }
}
