//! Files of the kernel: read whole, with a bound, and every failure with the file's name.
//!
//! All the probes read through here. A source that is not there is an answer of its own: what a kernel does not have is
//! named, never guessed.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use plimsoll_config::limits::{MAX_KERNEL_FILE_BYTES, MAX_SHOWN_FIGURE_CHARS, MAX_SHOWN_PARSER_CHARS};
use procfs::ProcError;

/// A source that gave nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeError {
    path: PathBuf,
    why: Why,
}

/// Why a source gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// This kernel, container or process does not have it.
    Absent,
    /// We may not read it.
    Denied,
    /// It does not end within the bound.
    TooLong,
    /// It says something that it should not.
    Malformed(ParseError),
    /// The system's own words.
    System(String),
}

/// What is wrong with the bytes of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// A field that every kernel writes is missing.
    Missing(&'static str),
    /// A field that should be a whole number that is not negative and fits 64 bits.
    NotANumber {
        /// The field.
        field: &'static str,
        /// The beginning of what it holds.
        found: String,
    },
    /// More than the bound of something.
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The words of the parser that was used.
    Other(String),
}

impl ProbeError {
    pub(crate) fn new(path: impl Into<PathBuf>, why: Why) -> Self {
        Self { path: path.into(), why }
    }

    /// It is not that something is wrong: there is no such thing here.
    pub(crate) fn is_absent(&self) -> bool {
        match self.why {
            Why::Absent => true,
            Why::Denied | Why::TooLong | Why::Malformed(_) | Why::System(_) => false,
        }
    }
}

impl Why {
    /// What an error of the system means for a source.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            // ESRCH: the process went while its file was open. EOPNOTSUPP, ENODEV: built in, and switched off.
            Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH | Errno::EOPNOTSUPP | Errno::ENODEV) => Self::Absent,
            Some(Errno::EACCES | Errno::EPERM) => Self::Denied,
            _ => Self::System(error.to_string()),
        }
    }
}

impl ParseError {
    pub(super) fn not_a_number(field: &'static str, found: &str) -> Self {
        Self::NotANumber { field, found: shown(found, MAX_SHOWN_FIGURE_CHARS) }
    }

    /// The words of `procfs`, which may quote all of what it was given, and take whatever they don't expect for a bug of theirs.
    #[allow(clippy::needless_pass_by_value, reason = "goes into `map_err` as it is")]
    pub(super) fn of_procfs(error: ProcError) -> Self {
        let words = match &error {
            ProcError::InternalError(e) => e.msg.trim_start_matches("Internal Unwrap Error: ").to_owned(),
            ProcError::PermissionDenied(_)
            | ProcError::NotFound(_)
            | ProcError::Incomplete(_)
            | ProcError::Io(..)
            | ProcError::Other(_) => error.to_string(),
        };
        Self::Other(format!("is not understood: {}", shown(&words, MAX_SHOWN_PARSER_CHARS)))
    }
}

/// One short line, whatever was read.
fn shown(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.why {
            Why::Absent => f.write_str("is not there"),
            Why::Denied => f.write_str("may not be read by this user"),
            Why::TooLong => write!(f, "is longer than {MAX_KERNEL_FILE_BYTES} bytes"),
            Why::Malformed(e) => e.fmt(f),
            Why::System(words) => f.write_str(words),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(field) => write!(f, "has no {field}"),
            Self::NotANumber { field, found } => write!(f, "{field} is no size or count: `{found}`"),
            Self::TooMany { what, max } => write!(f, "has more than {max} {what}"),
            Self::Other(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for ProbeError {}
impl std::error::Error for ParseError {}

/// Reads and parses one file.
///
/// # Errors
/// It can't be read, or says what it should not.
pub(super) fn load<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, ParseError>) -> Result<T, ProbeError> {
    let bytes = read(path).map_err(|why| ProbeError::new(path, why))?;
    parse(&bytes).map_err(|e| ProbeError::new(path, Why::Malformed(e)))
}

/// The same of a file that not every kernel has.
///
/// # Errors
/// It is there, and can't be read or says what it should not.
pub(super) fn load_optional<T>(
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
) -> Result<Option<T>, ProbeError> {
    match load(path, parse) {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_absent() => Ok(None),
        Err(e) => Err(e),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Why> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| Why::of(&e))?;
    file.take(MAX_KERNEL_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|e| Why::of(&e))?;
    if bytes.len() > MAX_KERNEL_FILE_BYTES {
        return Err(Why::TooLong);
    }
    Ok(bytes)
}

/// A process may call itself anything, names are cut inside a letter: what is no text becomes `�`, and figures stay.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_names_the_file_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        let said = |outcome: Result<(), ProbeError>| outcome.unwrap_err().to_string();
        let check = |expect: &str| assert_eq!(said(load(&path, |_| Err(ParseError::Missing("x")))), expect);
        check(&format!("{}: is not there", path.display()));
        assert_eq!(load_optional(&path, |_| Ok(())), Ok(None));
        std::fs::write(&path, "").unwrap();
        check(&format!("{}: has no x", path.display()));
        assert!(load_optional(&path, |_| Err::<(), _>(ParseError::Missing("x"))).is_err());
        std::fs::write(&path, vec![b'1'; MAX_KERNEL_FILE_BYTES]).unwrap();
        assert!(load(&path, |_| Ok(())).is_ok());
        std::fs::write(&path, vec![b'1'; MAX_KERNEL_FILE_BYTES + 1]).unwrap();
        check(&format!("{}: is longer than {MAX_KERNEL_FILE_BYTES} bytes", path.display()));
        assert!(said(load(folder.path(), |_| Ok(()))).contains("directory"));
    }

    #[test]
    fn errors_of_the_system_have_a_meaning() {
        for (errno, expect) in
            [(Errno::ESRCH, Why::Absent), (Errno::EOPNOTSUPP, Why::Absent), (Errno::EACCES, Why::Denied)]
        {
            assert_eq!(Why::of(&errno.into()), expect, "{errno}");
        }
        assert!(matches!(Why::of(&Errno::EIO.into()), Why::System(_)));
    }
}
