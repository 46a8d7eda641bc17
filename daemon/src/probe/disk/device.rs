//! The block device that a file is on, by its number: `/sys/dev/block/259:2`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::{major, minor};

use crate::probe::source::{self, ParseError, ProbeError, Why};

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its name: `nvme0n1p2`.
    pub(crate) name: String,
    /// Whether its disk turns, and a jump costs milliseconds; `None` where that is not told.
    pub(crate) is_rotational: Option<bool>,
}

/// The device of a file.
///
/// # Errors
/// The file is not there, or its filesystem has no one device of its own: in memory, over a network, over several.
pub(crate) fn read(path: &Path) -> Result<Device, ProbeError> {
    let number = fs::metadata(path).map_err(|e| ProbeError::new(path, Why::of(&e)))?.dev();
    of_link(&Path::new("/sys/dev/block").join(format!("{}:{}", major(number), minor(number))))
}

/// The link leads to `…/block/nvme0n1` or, of a partition, to `…/block/nvme0n1/nvme0n1p2`; the queue is the disk's.
fn of_link(link: &Path) -> Result<Device, ProbeError> {
    let folder = fs::canonicalize(link).map_err(|e| ProbeError::new(link, Why::of(&e)))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let disk = match folder.parent() {
        Some(parent) if folder.join("partition").exists() => parent,
        Some(_) | None => &folder,
    };
    let is_rotational = source::load_optional(&disk.join("queue/rotational"), parse_flag)?;
    Ok(Device { name, is_rotational })
}

pub(in crate::probe) fn parse_flag(bytes: &[u8]) -> Result<bool, ParseError> {
    match source::text(bytes).trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(ParseError::not_a_number("rotational", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("block/nvme0n1");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(disk.join("nvme0n1p2")).unwrap();
        fs::write(disk.join("queue/rotational"), "1\n").unwrap();
        fs::write(disk.join("nvme0n1p2/partition"), "2\n").unwrap();
        let device = |name: &str, is_rotational| Ok(Device { name: name.into(), is_rotational });
        assert_eq!(of_link(&disk.join("nvme0n1p2")), device("nvme0n1p2", Some(true)));
        assert_eq!(of_link(&disk), device("nvme0n1", Some(true)));
        fs::remove_file(disk.join("queue/rotational")).unwrap();
        assert_eq!(of_link(&disk), device("nvme0n1", None));
        fs::write(disk.join("queue/rotational"), "2").unwrap();
        assert!(of_link(&disk).is_err());
        assert!(of_link(&folder.path().join("0:42")).unwrap_err().is_absent());
    }
}
