//! Newtypes for what crosses a boundary: bytes, tokens, milliseconds.
//!
//! Sizes are binary and never bare: `32GiB` is a size, `32` and `32GB` are refused with a sentence, because a reader
//! can't tell what was meant. Everything that is shown to a person is formatted here, so that the same figure looks the
//! same in a plan, a log line and a refusal.

use std::fmt;

/// A size in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A number of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u32);

/// A span of time or a point on the caller's monotonic clock, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` MiB. For constants; saturates at the largest size.
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(MIB))
    }

    /// `n` GiB. For constants; saturates at the largest size.
    pub const fn from_gib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(GIB))
    }

    /// The sum, or `None` past `u64::MAX`.
    pub fn checked_add(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_add(other.0).map(Bytes)
    }

    /// The difference, or `None` when it would be negative.
    pub fn checked_sub(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_sub(other.0).map(Bytes)
    }

    /// The product, or `None` past `u64::MAX`.
    pub fn checked_mul(self, n: u64) -> Option<Bytes> {
        self.0.checked_mul(n).map(Bytes)
    }

    /// The sum, at most `u64::MAX`: an absurd size stays absurd and does not fit anywhere.
    pub fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }

    /// The difference, at least 0.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The product, at most `u64::MAX`.
    pub fn saturating_mul(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }

    /// Up to the next whole multiple of `unit`.
    pub fn rounded_up_to(self, unit: Bytes) -> Bytes {
        Bytes(self.0.div_ceil(unit.0).saturating_mul(unit.0))
    }

    /// Down to a whole multiple of `unit`.
    pub fn rounded_down_to(self, unit: Bytes) -> Bytes {
        Bytes(self.0 / unit.0 * unit.0)
    }

    /// Whole MiB, rounded up: what is missing.
    pub fn mib_rounded_up(self) -> u64 {
        self.0.div_ceil(MIB)
    }

    /// Whole MiB, rounded down: what would be freed.
    pub fn mib_rounded_down(self) -> u64 {
        self.0 / MIB
    }

    /// GiB with `decimals` digits after the point and no unit: `55.0`.
    pub fn gib_text(self, decimals: usize) -> String {
        decimal_text(self.0, GIB, decimals)
    }

    /// Reads `32GiB`, `512 MiB`, `1.5GiB`, `4096 B`. A fraction of a byte is dropped.
    ///
    /// # Errors
    /// A unit is missing, unknown or decimal (`GB`), the number is not one, or the size is past `u64::MAX` bytes.
    pub fn parse(text: &str) -> Result<Bytes, UnitError> {
        const UNITS: [(&str, u64); 5] = [("B", 1), ("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("TiB", TIB)];
        let (number, unit) = split_number(text);
        let number = parse_decimal(number).ok_or_else(|| UnitError::NotASize { text: text.to_owned() })?;
        if unit.is_empty() {
            return Err(UnitError::SizeWithoutUnit { text: text.trim().to_owned() });
        }
        match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => number.scale(*factor).map(Bytes).ok_or(UnitError::TooLarge { text: text.to_owned() }),
            None => Err(UnitError::UnknownSizeUnit { unit: unit.to_owned(), meant: meant_size_unit(unit) }),
        }
    }
}

/// Sums sizes; saturates, so that an absurd object makes the sum absurd instead of small.
impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Bytes::saturating_add)
    }
}

/// A holding, as a ledger shows it: two decimals of GiB from 0.1 GiB on, one decimal of MiB or KiB below.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes >= GIB / 10 => format!("{} GiB", decimal_text(bytes, GIB, 2)),
            bytes if bytes >= MIB => format!("{} MiB", decimal_text(bytes, MIB, 1)),
            bytes if bytes >= KIB => format!("{} KiB", decimal_text(bytes, KIB, 1)),
            bytes => format!("{bytes} B"),
        };
        f.pad(&text)
    }
}

impl Tokens {
    /// The difference, at least 0.
    pub fn saturating_sub(self, other: Tokens) -> Tokens {
        Tokens(self.0.saturating_sub(other.0))
    }
}

/// With thousands separated: `131,072`.
impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&thousands(u64::from(self.0)))
    }
}

impl Millis {
    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Millis {
        Millis(n.saturating_mul(1000))
    }

    /// This point plus a span; at most the end of time.
    pub fn saturating_add(self, span: Millis) -> Millis {
        Millis(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`; 0 when `earlier` is later.
    pub fn since(self, earlier: Millis) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// Whole seconds, rounded up: what a `Retry-After` says.
    pub fn secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Reads `500ms`, `1.5s`, `30 s`, `2min`, `1h`.
    ///
    /// # Errors
    /// A unit is missing or unknown, the number is not one, or the span is past `u64::MAX` milliseconds.
    pub fn parse(text: &str) -> Result<Millis, UnitError> {
        const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000)];
        let (number, unit) = split_number(text);
        let number = parse_decimal(number).ok_or_else(|| UnitError::NotATime { text: text.to_owned() })?;
        if unit.is_empty() {
            return Err(UnitError::TimeWithoutUnit { text: text.trim().to_owned() });
        }
        match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => number.scale(*factor).map(Millis).ok_or(UnitError::TooLarge { text: text.to_owned() }),
            None => Err(UnitError::UnknownTimeUnit { unit: unit.to_owned() }),
        }
    }
}

/// The two largest units that matter: `212 ms`, `3.8 s`, `2 min 5 s`, `2 h 14 min`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
            0 => format!("{large} {large_unit}"),
            _ => format!("{large} {large_unit} {small} {small_unit}"),
        };
        let text = match self.0 {
            ms if ms < 1000 => format!("{ms} ms"),
            ms if ms < 60_000 && ms % 1000 < 100 => format!("{} s", ms / 1000),
            ms if ms < 60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
            ms if ms < 3_600_000 => pair(ms / 60_000, "min", ms % 60_000 / 1000, "s"),
            ms => pair(ms / 3_600_000, "h", ms % 3_600_000 / 60_000, "min"),
        };
        f.pad(&text)
    }
}

/// Why a text is not a size or a time. Each sentence says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitError {
    /// Not `<number><unit>`.
    NotASize {
        /// What was written.
        text: String,
    },
    /// A size without a unit.
    SizeWithoutUnit {
        /// What was written.
        text: String,
    },
    /// A unit that is not a binary one.
    UnknownSizeUnit {
        /// What was written.
        unit: String,
        /// The unit that was probably meant.
        meant: Option<&'static str>,
    },
    /// Not `<number><unit>`.
    NotATime {
        /// What was written.
        text: String,
    },
    /// A time without a unit.
    TimeWithoutUnit {
        /// What was written.
        text: String,
    },
    /// A unit of time that is not known.
    UnknownTimeUnit {
        /// What was written.
        unit: String,
    },
    /// Past 64 bits.
    TooLarge {
        /// What was written.
        text: String,
    },
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitError::NotASize { text } => {
                write!(f, "`{text}` is not a size: write a number and a unit, such as 32GiB or 512MiB")
            }
            UnitError::SizeWithoutUnit { text } => {
                write!(f, "`{text}` has no unit: write {text}MiB or {text}GiB, whichever is meant")
            }
            UnitError::UnknownSizeUnit { unit, meant: Some(meant) } => {
                write!(f, "`{unit}` is not a unit of size here: sizes are binary, write {meant}")
            }
            UnitError::UnknownSizeUnit { unit, meant: None } => {
                write!(f, "`{unit}` is not a unit of size: use B, KiB, MiB, GiB or TiB")
            }
            UnitError::NotATime { text } => {
                write!(f, "`{text}` is not a time: write a number and a unit, such as 30s or 500ms")
            }
            UnitError::TimeWithoutUnit { text } => {
                write!(f, "`{text}` has no unit: write {text}s or {text}min, whichever is meant")
            }
            UnitError::UnknownTimeUnit { unit } => write!(f, "`{unit}` is not a unit of time: use ms, s, min or h"),
            UnitError::TooLarge { text } => write!(f, "`{text}` is more than can be counted in 64 bits"),
        }
    }
}

impl std::error::Error for UnitError {}

/// A count with its thousands separated by commas: `16,640`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `value ÷ unit` with `decimals` digits, rounded half up, thousands separated. Integer arithmetic: exact for any size.
fn decimal_text(value: u64, unit: u64, decimals: usize) -> String {
    let scale = 10u128.pow(decimals as u32);
    let scaled = (u128::from(value) * scale + u128::from(unit) / 2) / u128::from(unit);
    let whole = thousands((scaled / scale) as u64); // at most u64::MAX ÷ 1024 + 1: fits
    match decimals {
        0 => whole,
        _ => format!("{whole}.{:0decimals$}", scaled % scale),
    }
}

/// A decimal number as `digits × 10^-decimals`.
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    /// The number times `factor`, rounded down; `None` past `u64::MAX`.
    fn scale(&self, factor: u64) -> Option<u64> {
        let product = self.digits.checked_mul(u128::from(factor))?;
        u64::try_from(product / 10u128.pow(self.decimals)).ok()
    }
}

/// Splits `512 MiB` into its number and its unit, both trimmed.
fn split_number(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Reads `32` or `1.5`: digits, and at most one point with digits on both sides. At most 20 + 9 digits, so that the
/// product with the largest unit stays inside 128 bits.
fn parse_decimal(text: &str) -> Option<Decimal> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 9 {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?; // a second point in `fraction` fails here
    Some(Decimal { digits, decimals: fraction.len() as u32 })
}

/// The unit that somebody who wrote `unit` probably had in mind.
fn meant_size_unit(unit: &str) -> Option<&'static str> {
    match unit.to_ascii_lowercase().as_str() {
        "k" | "kb" | "ki" | "kib" => Some("KiB"),
        "m" | "mb" | "mi" | "mib" => Some("MiB"),
        "g" | "gb" | "gi" | "gib" => Some("GiB"),
        "t" | "tb" | "ti" | "tib" => Some("TiB"),
        "b" | "byte" | "bytes" => Some("B"),
        _ => None,
    }
}
