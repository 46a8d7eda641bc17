//! Time and chance for the shells: the pure parts get both as values from here.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_config::units::Millis;

/// Milliseconds since it was started; never goes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Millis {
        Millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The moment that `at` stands for.
    pub(crate) fn instant(self, at: Millis) -> tokio::time::Instant {
        (self.start + std::time::Duration::from_millis(at.0)).into()
    }
}

/// Seconds since 1970; 0 on a machine whose clock is before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A seed from the system's randomness.
///
/// # Errors
/// The device can't be read.
pub(crate) fn random_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
