//! The one unsafe edge of this crate: a file as bytes.
#![allow(unsafe_code, reason = "mapping a file is unsafe by nature; see SAFETY")]

use memmap2::Mmap;
use std::fs::File;
use std::io;

/// Maps the whole of `file`, read-only and private. An empty file gives an empty map.
///
/// Who maps must know what a map is: when somebody cuts the file short underneath, touching a lost page raises SIGBUS and ends
/// this process. Only the worker maps (it is made to be restarted); the daemon reads headers by ordinary reads.
///
/// # Errors
/// What the system says.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and private, and its bytes are only ever used as plain `u8` (every bit pattern is valid; no
    // reference into it is handed out as a type with invariants). What Rust can't rule out is a change of the file by another
    // process while it is mapped: changed bytes give wrong weights, never memory unsafety here, because no length, offset or
    // index is read from the map after it was checked (the header is parsed into owned values first). A file cut short raises
    // SIGBUS, which ends the process: a death that the supervisor sees and classifies, not a silent corruption. Model files are
    // replaced by rename, which leaves the mapped inode whole.
    unsafe { Mmap::map(file) }
}
