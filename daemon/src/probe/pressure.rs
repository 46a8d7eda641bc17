//! Pressure stall information about memory: for how much of the time somebody, or everybody, waited for it. Of the machine
//! (`/proc/pressure/memory`) and of a control group (`memory.pressure`): the same lines.
//!
//! Not `procfs`' own type: it panics on a line of one word, needs both lines, and takes `NaN` for a share.

use std::path::Path;

use super::source::{self, ParseError, ProbeError};

/// Who waited, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// At least one task waited.
    pub(crate) some: Stall,
    /// All of them did.
    pub(crate) full: Option<Stall>,
}

/// Time in which tasks waited for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    /// Share of the last 10 s, in thousandths.
    pub(crate) permille_10s: u64,
    /// All of it since the start, in microseconds.
    pub(crate) total_us: u64,
}

/// `None`: this kernel does not measure it, or was told not to.
///
/// # Errors
/// It is there and can't be read.
pub(crate) fn read(path: &Path) -> Result<Option<Pressure>, ProbeError> {
    source::load_optional(path, parse)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Pressure, ParseError> {
    let text = source::text(bytes);
    let stall = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(stall);
    Ok(Pressure { some: stall("some").ok_or(ParseError::Missing("some"))??, full: stall("full").transpose()? })
}

/// `avg10=2.10 avg60=0.12 avg300=0.00 total=391926`.
fn stall(line: &str) -> Result<Stall, ParseError> {
    let find = |name: &'static str| {
        let pairs = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        pairs.filter(|(found, _)| *found == name).map(|(_, value)| value).next().ok_or(ParseError::Missing(name))
    };
    let (share, total) = (find("avg10")?, find("total")?);
    Ok(Stall {
        permille_10s: permille(share).ok_or_else(|| ParseError::not_a_number("avg10", share))?,
        total_us: total.parse().map_err(|_| ParseError::not_a_number("total", total))?,
    })
}

/// Percent with decimals, `2.10`, in thousandths. More than all of the time is none.
fn permille(percent: &str) -> Option<u64> {
    let (whole, decimals) = percent.split_once('.')?;
    let tenths = decimals.bytes().all(|b| b.is_ascii_digit()).then(|| decimals.get(..1))??;
    let permille = whole.parse::<u64>().ok()?.checked_mul(10)?.checked_add(tenths.parse().ok()?)?;
    (permille <= 1000).then_some(permille)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_thousandths_of_the_time() {
        for (text, expect) in [
            ("0.00", Some(0)),
            ("2.19", Some(21)),
            ("99.99", Some(999)),
            ("100.00", Some(1000)),
            ("100.10", None),
            ("-1.00", None),
            ("NaN", None),
            ("1.", None),
            ("1.x0", None),
            ("18446744073709551615.0", None),
        ] {
            assert_eq!(permille(text), expect, "{text}");
        }
    }

    #[test]
    fn a_kernel_may_have_one_line() {
        let some = Stall { permille_10s: 21, total_us: 7 };
        let line = "some avg10=2.10 avg60=0.12 avg300=0.00 total=7\n";
        assert_eq!(parse(line.as_bytes()), Ok(Pressure { some, full: None }));
        let both = format!("{line}full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        assert_eq!(parse(both.as_bytes()).unwrap().full, Some(Stall { permille_10s: 0, total_us: 0 }));
        assert_eq!(read(Path::new("/proc/pressure/nothing")), Ok(None));
    }
}
