//! Lines of a name and a figure, as most files of the kernel have them: `MemFree: 12 kB`, `oom_kill 3`.

use plimsoll_config::units::Bytes;

use super::source::ParseError;

/// A file of such lines. Looking a name up goes through the text: a few names of a short file are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a str);

impl<'a> Fields<'a> {
    /// What stands after a name, up to the end of its line.
    fn find(self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| {
            let (found, value) = line.split_once([':', ' ', '\t'])?;
            (found == name).then(|| value.trim())
        })
    }

    /// A count; `None` on a kernel that does not have it.
    pub(super) fn count(self, name: &'static str) -> Result<Option<u64>, ParseError> {
        self.find(name).map(|value| number(name, value)).transpose()
    }

    /// A count that every kernel has.
    pub(super) fn needed_count(self, name: &'static str) -> Result<u64, ParseError> {
        self.count(name)?.ok_or(ParseError::Missing(name))
    }

    /// A size in `kB`, which are KiB; `None` on a kernel that does not have it.
    pub(super) fn size(self, name: &'static str) -> Result<Option<Bytes>, ParseError> {
        self.find(name).map(|value| kib(name, value)).transpose()
    }

    /// A size in `kB` that every kernel has.
    pub(super) fn needed_size(self, name: &'static str) -> Result<Bytes, ParseError> {
        self.size(name)?.ok_or(ParseError::Missing(name))
    }
}

/// A whole number that is not negative.
pub(super) fn number(field: &'static str, text: &str) -> Result<u64, ParseError> {
    text.trim().parse().map_err(|_| ParseError::not_a_number(field, text))
}

/// `12 kB`.
fn kib(field: &'static str, text: &str) -> Result<Bytes, ParseError> {
    let digits = text.strip_suffix("kB").ok_or_else(|| ParseError::not_a_number(field, text))?;
    kib_count(field, digits)
}

/// A number of KiB without a unit.
pub(super) fn kib_count(field: &'static str, digits: &str) -> Result<Bytes, ParseError> {
    Bytes(number(field, digits)?).checked_mul(1024).ok_or_else(|| ParseError::not_a_number(field, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_right_or_an_error() {
        // (text, count, size in KiB); an error is what it quotes.
        type Expect = Result<Option<u64>, &'static str>;
        let cases: [(&str, Expect, Expect); 9] = [
            ("A 3\n", Ok(Some(3)), Err("3")),
            ("A:\t3 kB\n", Err("3 kB"), Ok(Some(3))),
            ("B 1\nA 2", Ok(Some(2)), Err("2")),
            ("AA 1\n", Ok(None), Ok(None)),
            ("A\n", Ok(None), Ok(None)),
            ("A -1", Err("-1"), Err("-1")),
            ("A 18446744073709551616", Err("18446744073709551616"), Err("18446744073709551616")),
            ("A 18446744073709551615 kB", Err("18446744073709551615 kB"), Err("18446744073709551615 ")),
            ("A 1 MB", Err("1 MB"), Err("1 MB")),
        ];
        let not = |found| ParseError::not_a_number("A", found);
        for (text, count, size) in cases {
            assert_eq!(Fields(text).count("A"), count.map_err(not), "{text:?}");
            let size = size.map(|kib| kib.map(|kib| Bytes(kib << 10)));
            assert_eq!(Fields(text).size("A"), size.map_err(not), "{text:?}");
        }
        assert_eq!(Fields("").needed_count("A"), Err(ParseError::Missing("A")));
        assert_eq!(Fields("").needed_size("A"), Err(ParseError::Missing("A")));
    }
}
