//! A day in sentences, one line for each event, with the time of the wall's clock. Nothing is built when nobody reads.

use super::day::FIRST_HOUR;

/// What happened on a day.
#[derive(Debug, Clone, Default)]
pub struct Story {
    wanted: bool,
    lines: Vec<String>,
}

impl Story {
    /// An empty story; it stays empty unless `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self { wanted, lines: Vec::new() }
    }

    /// Whether somebody reads.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// One line. `wall_ms` counts from the day's beginning.
    pub fn tell(&mut self, wall_ms: i64, words: impl FnOnce() -> String) {
        if self.wanted {
            self.lines.push(format!("{}  {}", time_of_day(wall_ms), words()));
        }
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// `15:31:02.450`, with the number of the day before it from the second on.
#[must_use]
pub fn time_of_day(wall_ms: i64) -> String {
    let ms = wall_ms + FIRST_HOUR * 3_600_000;
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let day = match hours / 24 {
        0 => String::new(),
        day => format!("day {} ", day + 1),
    };
    format!("{day}{:02}:{minutes:02}:{seconds:02}.{:03}", hours % 24, ms % 1000)
}

/// GiB with two digits after the point.
#[must_use]
pub fn gib(bytes: i64) -> String {
    const CENTI: i64 = (1 << 30) / 100;
    let hundredths = (bytes + CENTI / 2 * bytes.signum()) / CENTI;
    let sign = if hundredths < 0 { "-" } else { "" };
    format!("{sign}{}.{:02} GiB", hundredths.abs() / 100, hundredths.abs() % 100)
}
