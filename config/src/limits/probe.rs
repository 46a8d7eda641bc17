//! The bounds of the probes: how much of the kernel's files is read, and what a look at the disk may cost.

use crate::units::{Bytes, Millis};

/// Longest file of the kernel that is read. The longest in use, the mounts of a host with a thousand containers, is 1 MiB;
/// whatever is longer is not what it seems.
pub const MAX_KERNEL_FILE_BYTES: usize = 4 << 20;

/// Characters of a figure that can't be read which its message shows: the longest right one, 2^64, has 20.
pub const MAX_SHOWN_FIGURE_CHARS: usize = 32;

/// Characters of what a parser says about bytes that it can't read: it may quote them all.
pub const MAX_SHOWN_PARSER_CHARS: usize = 160;

/// Ancestors of a control group that are looked at: systemd nests about 8. A group that is nested deeper is an error, since
/// the one that was left out could be the tightest.
pub const MAX_CGROUP_DEPTH: usize = 32;

/// Processes that are looked at for the largest: a desktop has 500, a busy server 5,000. A look takes 20 µs.
pub const MAX_PROCESSES: usize = 1 << 15;

/// Swap areas that are looked at: the kernel itself stops below 32.
pub const MAX_SWAP_AREAS: usize = 32;

/// Compressed disks in memory that are looked at: tools make one for each CPU at most.
pub const MAX_ZRAM_DISKS: usize = 512;

/// Most bytes that are read of the model's file to learn how fast its device is: 0.1 s of a fast one, and more than drives
/// answer from a buffer of their own.
pub const READ_SPEED_BYTES: Bytes = Bytes::from_mib(256);

/// No further read of that look begins after this time: a start is not to wait for a slow disk, whose figure is known by then.
pub const READ_SPEED_TIME: Millis = Millis::from_secs(1);

/// Bytes of one read of that look. The kernel splits it into the requests that the device takes, so that several are in
/// flight, as they are when experts are read.
pub const READ_SPEED_CHUNK: Bytes = Bytes::from_mib(4);

/// Alignment of direct reads: a multiple of every logical block in use (512 bytes and 4 KiB).
pub const DIRECT_READ_ALIGNMENT: usize = 4096;

/// Fewer bytes tell nothing about a device: its first answer takes longer than they do.
pub const READ_SPEED_MIN: Bytes = Bytes::from_mib(1);
