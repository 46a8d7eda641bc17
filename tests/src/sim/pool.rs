//! Bytes of one object that go to a target at a whole number of bytes a millisecond.

/// What is held, and where it goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pool {
    held: i64,
    target: i64,
    speed: i64,
}

impl Pool {
    /// A pool that stays where it is.
    #[must_use]
    pub fn still(bytes: i64) -> Self {
        Self { held: bytes, target: bytes, speed: 0 }
    }

    /// Bytes held now.
    #[must_use]
    pub fn held(&self) -> i64 {
        self.held
    }

    /// Where it will stand.
    #[must_use]
    pub fn target(&self) -> i64 {
        self.target
    }

    /// Sends it to `target` at `speed` bytes a millisecond, at least 1.
    pub fn go(&mut self, target: i64, speed: i64) {
        self.target = target;
        self.speed = speed.max(1);
    }

    /// Changes the speed of the way that is left.
    pub fn hurry(&mut self, speed: i64) {
        self.speed = speed.max(1);
    }

    /// Ends the way here.
    pub fn halt(&mut self) {
        self.target = self.held;
    }

    /// Bytes more per millisecond, negative while it falls.
    #[must_use]
    pub fn slope(&self) -> i64 {
        self.speed * (self.target - self.held).signum()
    }

    /// Bytes after `ms` more.
    #[must_use]
    pub fn after(&self, ms: i64) -> i64 {
        let way = self.speed.saturating_mul(ms);
        match self.target >= self.held {
            true => self.target.min(self.held.saturating_add(way)),
            false => self.target.max(self.held.saturating_sub(way)),
        }
    }

    /// Goes on for `ms`.
    pub fn advance(&mut self, ms: i64) {
        self.held = self.after(ms);
    }

    /// Milliseconds to the target; `None` when it is there.
    #[must_use]
    pub fn ms_left(&self) -> Option<i64> {
        let way = (self.target - self.held).abs();
        (way > 0).then(|| (way + self.speed - 1) / self.speed.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_arrives_exactly_when_it_says() {
        for (from, to, speed) in [(0, 1000, 300), (1000, 1, 7), (5, 5, 9), (0, 1, 1)] {
            let mut pool = Pool::still(from);
            pool.go(to, speed);
            let left = pool.ms_left().unwrap_or(0);
            assert!(left == 0 || pool.after(left - 1) != to, "{from} to {to}: it is there too early");
            pool.advance(left);
            assert_eq!((pool.held(), pool.ms_left(), pool.slope()), (to, None, 0), "{from} to {to}");
        }
    }
}
