//! `/proc/<pid>/stat`: when a process began and how often it waited for a disk to have its memory.
//!
//! Not `procfs`' own type: it panics on parentheses in the wrong places.

use crate::probe::fields::number;
use crate::probe::source::{self, ParseError, ProbeError};

/// What is wanted of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Pages that had to be read from a disk first, since its start.
    pub(crate) major_faults: u64,
    /// When it began, in clock ticks since the machine was started: with its number, what tells it from another.
    pub(crate) start_ticks: u64,
}

/// # Errors
/// The process is not there, or not to be seen.
pub(crate) fn read(pid: u32) -> Result<Stat, ProbeError> {
    source::load(&super::file(pid, "stat"), parse)
}

/// Fields by their number in proc_pid_stat(5); the first two, the pid and a name with anything in it, end at the last `)`.
pub(in crate::probe) fn parse(bytes: &[u8]) -> Result<Stat, ParseError> {
    const AFTER_NAME: usize = 3;
    let text = source::text(bytes);
    let (_, rest) = text.rsplit_once(')').ok_or(ParseError::Missing("name"))?;
    let field = |name: &'static str, place: usize| {
        let word = rest.split_ascii_whitespace().nth(place - AFTER_NAME).ok_or(ParseError::Missing(name))?;
        number(name, word)
    };
    Ok(Stat { major_faults: field("majflt", 12)?, start_ticks: field("starttime", 22)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_anything() {
        for name in ["cat", "a) R 1 2 (b", "", ") ) )", "\u{fffd}"] {
            let line = format!("7 ({name}) R 1 1 1 0 -1 0 103 0 5 0 0 0 0 0 20 0 1 0 2081093 3133440\n");
            assert_eq!(parse(line.as_bytes()), Ok(Stat { major_faults: 5, start_ticks: 2_081_093 }), "{name:?}");
        }
    }
}
