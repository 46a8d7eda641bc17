//! Swap areas (`/proc/swaps`) and compressed disks in memory (`/sys/block/zram*/mm_stat`): the silent fourth tier. Quantised
//! weights don't compress, so that zram makes their pressure worse.

use std::fs;
use std::path::Path;

use plimsoll_config::limits::{MAX_SWAP_AREAS, MAX_ZRAM_DISKS};
use plimsoll_config::units::Bytes;

use super::fields::{kib_count, number};
use super::source::{self, ParseError, ProbeError, Why};

/// A swap area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwapArea {
    /// Its device or file, as the kernel writes it.
    pub(crate) name: String,
    /// All of it.
    pub(crate) size: Bytes,
    /// What is used.
    pub(crate) used: Bytes,
}

/// A compressed disk in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Zram {
    /// What was written to it.
    pub(crate) stored: Bytes,
    /// Memory that it takes for that.
    pub(crate) memory: Bytes,
}

/// Areas in the kernel's order; none where swap is off.
///
/// # Errors
/// It can't be read, or is no such table.
pub(crate) fn areas() -> Result<Vec<SwapArea>, ProbeError> {
    // A kernel that was built without swap has no such file, and no area.
    source::load_optional(Path::new("/proc/swaps"), parse_areas).map(Option::unwrap_or_default)
}

/// All compressed disks together; `None` where there is none.
///
/// # Errors
/// There are some that can't be read.
pub(crate) fn zram() -> Result<Option<Zram>, ProbeError> {
    zram_below(Path::new("/sys/block"))
}

fn zram_below(folder: &Path) -> Result<Option<Zram>, ProbeError> {
    let disks = match fs::read_dir(folder) {
        Ok(disks) => disks,
        Err(e) => match Why::of(&e) {
            Why::Absent => return Ok(None),
            why @ (Why::Denied | Why::TooLong | Why::Malformed(_) | Why::System(_)) => {
                return Err(ProbeError::new(folder, why));
            }
        },
    };
    let names = disks.filter_map(|disk| Some(disk.ok()?.file_name().to_str()?.to_owned()));
    let mut all = None;
    for name in names.filter(|name| name.starts_with("zram")).take(MAX_ZRAM_DISKS) {
        if let Some(disk) = source::load_optional(&folder.join(name).join("mm_stat"), parse_mm_stat)? {
            let Zram { stored, memory } = all.unwrap_or_default();
            let (stored, memory) = (stored.saturating_add(disk.stored), memory.saturating_add(disk.memory));
            all = Some(Zram { stored, memory });
        }
    }
    Ok(all)
}

/// A head, then `name type size used priority`, in KiB. Blanks in names are written as `\040`.
pub(super) fn parse_areas(bytes: &[u8]) -> Result<Vec<SwapArea>, ParseError> {
    let text = source::text(bytes);
    let mut lines = text.lines();
    if !lines.next().is_some_and(|head| head.starts_with("Filename")) {
        return Err(ParseError::Missing("head of swap areas"));
    }
    let mut areas = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        if areas.len() == MAX_SWAP_AREAS {
            return Err(ParseError::TooMany { what: "swap areas", max: MAX_SWAP_AREAS });
        }
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(_type), Some(size), Some(used)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(ParseError::Missing("size of a swap area"));
        };
        let name = name.to_owned();
        areas.push(SwapArea { name, size: kib_count("size", size)?, used: kib_count("used", used)? });
    }
    Ok(areas)
}

/// `orig_data_size compr_data_size mem_used_total …`, in bytes.
pub(super) fn parse_mm_stat(bytes: &[u8]) -> Result<Zram, ParseError> {
    let text = source::text(bytes);
    let mut words = text.split_ascii_whitespace();
    let stored = number("orig_data_size", words.next().ok_or(ParseError::Missing("orig_data_size"))?)?;
    let memory = number("mem_used_total", words.nth(1).ok_or(ParseError::Missing("mem_used_total"))?)?;
    Ok(Zram { stored: Bytes(stored), memory: Bytes(memory) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_listed_in_bytes() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0  partition\t4096\t8\t100\n\
                    /swap\\040file file\t\t1024\t\t0\t\t-2\n";
        let area = |name: &str, size, used| SwapArea { name: name.into(), size: Bytes(size), used: Bytes(used) };
        let expect = vec![area("/dev/zram0", 4 << 20, 8192), area("/swap\\040file", 1 << 20, 0)];
        assert_eq!(parse_areas(text.as_bytes()), Ok(expect));
        let endless = format!("Filename\n{}", "/a file 1 1 1\n".repeat(MAX_SWAP_AREAS + 1));
        let too_many = ParseError::TooMany { what: "swap areas", max: MAX_SWAP_AREAS };
        assert_eq!(parse_areas(endless.as_bytes()), Err(too_many));
    }

    #[test]
    fn compressed_disks_are_added_up() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(zram_below(folder.path()), Ok(None));
        for (disk, text) in [("zram0", "4096 1000 2000 0 2000 0 0 0 0\n"), ("zram1", "10 5 6\n"), ("sda", "7 7 7")] {
            fs::create_dir(folder.path().join(disk)).unwrap();
            fs::write(folder.path().join(disk).join("mm_stat"), text).unwrap();
        }
        assert_eq!(zram_below(folder.path()), Ok(Some(Zram { stored: Bytes(4106), memory: Bytes(2006) })));
        fs::write(folder.path().join("zram1/mm_stat"), "10 5").unwrap();
        assert!(zram_below(folder.path()).unwrap_err().to_string().ends_with("mm_stat: has no mem_used_total"));
        assert_eq!(zram_below(&folder.path().join("nowhere")), Ok(None));
    }
}
