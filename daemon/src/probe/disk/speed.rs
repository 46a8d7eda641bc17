//! How fast the model's file can be read past the page cache, measured on the file itself: what drives promise and what
//! they do through a filesystem differ by a factor of two either way.
//!
//! Bounded in bytes and time, and spread over the file. Done once for a file on a device: who calls keeps the result.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use plimsoll_config::limits::{
    DIRECT_READ_ALIGNMENT, READ_SPEED_BYTES, READ_SPEED_CHUNK, READ_SPEED_MIN, READ_SPEED_TIME,
};
use plimsoll_config::units::{Bytes, Millis};

use crate::probe::source::{ProbeError, Why};

/// What a figure was measured of. It holds as long as this is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpeedKey {
    /// The number of the file's device.
    pub(crate) device: u64,
    /// The file's size.
    pub(crate) file: Bytes,
}

/// How the bytes were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the device, past the page cache.
    Direct,
    /// Through the page cache, which was asked to forget the file before: the filesystem has no other way. It may have
    /// remembered, so that the figure is an upper bound.
    Buffered,
}

/// A measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadSpeed {
    /// Of what.
    pub(crate) key: SpeedKey,
    /// How.
    pub(crate) way: Way,
    /// Bytes in a second.
    pub(crate) bytes_per_second: Bytes,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Direct, Self::Buffered];

    /// One word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        }
    }
}

/// What a figure of this file has to be of.
///
/// # Errors
/// The file is not there.
pub(crate) fn key(path: &Path) -> Result<SpeedKey, ProbeError> {
    let metadata = std::fs::metadata(path).map_err(|e| failed(path, &e))?;
    Ok(SpeedKey { device: metadata.dev(), file: Bytes(metadata.len()) })
}

/// Reads at most [`READ_SPEED_BYTES`], for about [`READ_SPEED_TIME`].
///
/// # Errors
/// The file can't be read, is too short to tell, or has holes, which no device has to be asked for.
pub(crate) fn measure(path: &Path) -> Result<ReadSpeed, ProbeError> {
    let key = key(path)?;
    let metadata = std::fs::metadata(path).map_err(|e| failed(path, &e))?;
    if key.file < READ_SPEED_MIN {
        return Err(ProbeError::new(path, Why::System(format!("is too short to measure its disk: {}", key.file))));
    }
    // Compressed files take fewer blocks too: then a read measures the CPU, and the figure would be of neither.
    if Bytes(metadata.blocks()).saturating_mul(512) < Bytes(metadata.len() / 10 * 9) {
        return Err(ProbeError::new(path, Why::System("has holes or is compressed: its disk is not measured".into())));
    }
    let (way, done) = match read(path, Way::Direct, key.file) {
        Ok(done) => (Way::Direct, done),
        // EINVAL: this filesystem has no direct reads, which some say when opening and some when reading.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            (Way::Buffered, read(path, Way::Buffered, key.file).map_err(|e| failed(path, &e))?)
        }
        Err(e) => return Err(failed(path, &e)),
    };
    Ok(ReadSpeed { key, way, bytes_per_second: done.per_second() })
}

fn failed(path: &Path, error: &io::Error) -> ProbeError {
    ProbeError::new(path, Why::of(error))
}

/// What was read and how long it took.
struct Done {
    bytes: u64,
    nanoseconds: u128,
}

impl Done {
    fn per_second(&self) -> Bytes {
        let per_second = u128::from(self.bytes) * 1_000_000_000 / self.nanoseconds.max(1);
        Bytes(u64::try_from(per_second).unwrap_or(u64::MAX))
    }
}

fn read(path: &Path, way: Way, file: Bytes) -> io::Result<Done> {
    let flags = match way {
        Way::Direct => OFlag::O_DIRECT,
        Way::Buffered => OFlag::empty(),
    };
    let source = OpenOptions::new().read(true).custom_flags((flags | OFlag::O_CLOEXEC).bits()).open(path)?;
    if way == Way::Buffered {
        posix_fadvise(&source, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    time(&source, file)
}

fn time(source: &File, file: Bytes) -> io::Result<Done> {
    let chunk = READ_SPEED_CHUNK.0 as usize;
    let mut space = vec![0; chunk + DIRECT_READ_ALIGNMENT];
    // The address that a direct read needs lies somewhere in the first page of the buffer.
    let skip = space.as_ptr().align_offset(DIRECT_READ_ALIGNMENT).min(DIRECT_READ_ALIGNMENT);
    let buffer = &mut space[skip..skip + chunk];
    let start = Instant::now();
    let mut bytes = 0;
    for offset in offsets(file) {
        bytes += source.read_at(buffer, offset)? as u64;
        if Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)) >= READ_SPEED_TIME {
            break;
        }
    }
    Ok(Done { bytes, nanoseconds: start.elapsed().as_nanos() })
}

/// Where to read: aligned places at equal distances, as many as the bound allows, each chunk once.
fn offsets(file: Bytes) -> impl Iterator<Item = u64> {
    let n_chunks = file.0.div_ceil(READ_SPEED_CHUNK.0);
    let n_reads = n_chunks.min(READ_SPEED_BYTES.0 / READ_SPEED_CHUNK.0);
    (0..n_reads).map(move |place| place * n_chunks / n_reads * READ_SPEED_CHUNK.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn reads_are_aligned_bounded_and_inside_of_the_file() {
        const GIB: u64 = 1 << 30;
        for file in [1, READ_SPEED_CHUNK.0, READ_SPEED_CHUNK.0 + 1, 255 << 20, 256 << 20, 257 << 20, GIB * 33, 1 << 60]
        {
            let offsets: Vec<u64> = offsets(Bytes(file)).collect();
            assert!(offsets.len() as u64 * READ_SPEED_CHUNK.0 <= READ_SPEED_BYTES.0 && !offsets.is_empty(), "{file}");
            assert!(
                offsets.iter().all(|at| *at < file && at % DIRECT_READ_ALIGNMENT as u64 == 0),
                "{file}: {offsets:?}"
            );
            assert!(offsets.windows(2).all(|pair| pair[0] + READ_SPEED_CHUNK.0 <= pair[1]), "{file}: {offsets:?}");
        }
    }

    #[test]
    fn a_file_on_this_machine_is_measured_and_what_tells_nothing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let said = || measure(&path).unwrap_err().to_string();
        assert!(said().ends_with("is not there"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 4096]).unwrap();
        assert!(said().contains("too short"), "{}", said());
        file.write_all(&vec![7; 9 << 20]).unwrap();
        file.sync_all().unwrap();
        let speed = measure(&path).unwrap();
        assert_eq!(speed.key, key(&path).unwrap());
        assert!(speed.bytes_per_second > Bytes(0) && Way::ALL.contains(&speed.way), "{speed:?}");
        file.set_len(1 << 30).unwrap();
        assert!(said().contains("holes"), "{}", said());
        assert_ne!(key(&path).unwrap(), speed.key);
    }

    #[test]
    fn the_page_cache_is_the_other_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        std::fs::write(&path, vec![7; 5 << 20]).unwrap();
        assert_eq!(read(&path, Way::Buffered, Bytes(5 << 20)).unwrap().bytes, 5 << 20);
        assert_eq!(Done { bytes: 3, nanoseconds: 0 }.per_second(), Bytes(3_000_000_000));
    }
}
