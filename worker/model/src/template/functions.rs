//! What chat templates call beside Jinja's own: `raise_exception`, `tojson` as Python writes it, `strftime_now`.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, State, Value};
use plimsoll_config::limits::TEMPLATE_OUTPUT_EXTRA_BYTES;
use serde::Serialize;
use std::io::{self, Write};

/// What a template said with `raise_exception`. Travels as the source of the engine's error.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub(super) fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message.to_string())))
}

/// A buffer that refuses to grow beyond a limit.
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    pub(super) limit_bytes: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit_bytes - self.bytes.len() {
            return Err(io::Error::other("the output is over its limit"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `tojson(indent=n)`: spaces after `:` and `,`, nothing escaped for HTML, no ASCII-only escapes. Models were trained on that.
#[allow(clippy::needless_pass_by_value, reason = "the engine calls filters with owned arguments")]
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, args: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = args.get("indent")?;
    // Accepted as Python does; what they ask for is the default here.
    let _: Option<bool> = args.get("ensure_ascii")?;
    args.assert_all_used()?;
    let out = Bounded { bytes: Vec::new(), limit_bytes: TEMPLATE_OUTPUT_EXTRA_BYTES };
    let layout = Layout { indent: indent.map(|n| n.min(16)), depth: 0, has_items: false };
    let mut serializer = serde_json::Serializer::with_formatter(out, layout);
    value.serialize(&mut serializer).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    let bytes = serializer.into_inner().bytes;
    state.consume_fuel(bytes.len() as u64 / 4)?;
    String::from_utf8(bytes).map(Value::from).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))
}

/// Python's `json.dumps` layout: on one line with spaces, or one item on a line.
struct Layout {
    indent: Option<usize>,
    depth: usize,
    has_items: bool,
}

impl Layout {
    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(width) = self.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..self.depth * width).try_for_each(|_| out.write_all(b" "))
    }

    fn begin<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        out.write_all(bracket)
    }

    fn item<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match (first, self.indent) {
            (true, _) => {}
            (false, None) => out.write_all(b", ")?,
            (false, Some(_)) => out.write_all(b",")?,
        }
        self.line(out)
    }

    fn end<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.line(out)?;
        }
        self.has_items = true;
        out.write_all(bracket)
    }
}

impl serde_json::ser::Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }
}

static MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
static DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Year, month from 1 and day from 1 of a number of days since 1970-01-01, by counting 400-year cycles from March.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_march_0 = days + 719_468;
    let cycle = from_march_0.div_euclid(146_097);
    let day_of_cycle = from_march_0.rem_euclid(146_097);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_cycle + cycle * 400 + i64::from(month <= 2), month, day)
}

/// Writes seconds since 1970 (UTC) as `format` says, in C's letters. Unknown ones stay as they are.
pub(super) fn strftime(format: &str, unix_s: i64) -> String {
    // Years 1 to 9999; beyond it nothing is meant.
    let unix_s = unix_s.clamp(-62_135_596_800, 253_402_300_799);
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let month_name = MONTHS[(month - 1) as usize];
    let day_name = DAYS[(days + 4).rem_euclid(7) as usize];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&format!("{year:04}")),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('e') => out.push_str(&format!("{day:2}")),
            Some('B') => out.push_str(month_name),
            Some('b' | 'h') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('H') => out.push_str(&format!("{hour:02}")),
            Some('I') => out.push_str(&format!("{:02}", (hour + 11) % 12 + 1)),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('M') => out.push_str(&format!("{minute:02}")),
            Some('S') => out.push_str(&format!("{second:02}")),
            Some('F') => out.push_str(&format!("{year:04}-{month:02}-{day:02}")),
            Some('T') => out.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |unix_s, format: &str, expect: &str| assert_eq!(strftime(format, unix_s), expect);
        check(0, "%A %d %B %Y %H:%M:%S", "Thursday 01 January 1970 00:00:00");
        check(951_782_400, "%d %b %Y", "29 Feb 2000");
        check(1_796_057_999, "%F %T %I %p", "2026-11-30 16:59:59 04 PM");
        check(-1, "%F %T", "1969-12-31 23:59:59");
        check(i64::MAX, "%F", "9999-12-31");
        check(i64::MIN, "%F", "0001-01-01");
        check(0, "100%% %q %", "100% %q %");
    }
}
