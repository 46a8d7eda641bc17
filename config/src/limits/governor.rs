//! The bounds of the governor: when it looks, when it moves a lever, how far, and when it gives back.

use crate::units::{Bytes, Millis};

/// Longest pause between two looks at the machine. Cheap (under 0.1 ms), and a compiler that starts is seen at once.
pub const SAMPLE_MAX: Millis = Millis(200);

/// Shortest pause between two looks: more of them would only see the kernel's counters stand still.
pub const SAMPLE_MIN: Millis = Millis(5);

/// Pause between two looks at a sensor that says nothing new: soon enough after it is back, and no load on what may be overloaded.
pub const SAMPLE_BLIND: Millis = Millis(50);

/// A reading that is older counts as none, and the account as filling at its fastest: five looks in a row were missed.
pub const READING_MAX_AGE: Millis = Millis::from_secs(1);

/// Readings that make a slope: ten and more pairs, and the median is right with one reading in four wrong.
pub const TREND_SAMPLES: usize = 6;

/// Readings that are older say nothing about the slope now.
pub const TREND_WINDOW: Millis = Millis::from_secs(3);

/// The fastest growth seen is believed possible for this long, then half of it, down to what was believed at first: a quiet
/// night says nothing about the morning.
pub const FASTEST_HALF_LIFE: Millis = Millis::from_secs(60 * 60);

/// Bytes a second by which host memory is believed to be able to fill before anything was seen: a compiler's burst.
pub const FASTEST_HOST_GROWTH: Bytes = Bytes::from_gib(1);

/// The same for a card: a program that loads a model over the bus.
pub const FASTEST_VRAM_GROWTH: Bytes = Bytes::from_gib(2);

/// Growth of host memory that is noise, bytes a second: a browser does that all day.
pub const HOST_SLOPE_NOISE: Bytes = Bytes::from_mib(128);

/// The same on a card.
pub const VRAM_SLOPE_NOISE: Bytes = Bytes::from_mib(32);

/// A counter of host memory that stops to the byte while it was falling is believed after this long.
pub const STUCK_BELIEVED: Millis = Millis::from_secs(10);

/// A card that nobody can read is assumed to fill for this long, no longer: what is too full there fails, it does not kill.
pub const BLIND_VRAM_GROWTH: Millis = Millis::from_secs(2);

/// A limit that will be reached within this time is worth any lever: some looks, a hand-over, the return, and all that twice.
pub const TIME_TO_LIMIT_NOW: Millis = Millis(2_500);

/// How far ahead a move of host memory looks: a hand-over, the return, and the look that shows both. The next move follows.
pub const HOST_LEAD: Millis = Millis::from_secs(1);

/// The same on a card, where the margin is not a matter of life and death.
pub const VRAM_LEAD: Millis = Millis(250);

/// A limit that will be reached within this time is worth a lever that costs next to nothing.
pub const TIME_TO_LIMIT_SOON: Millis = Millis::from_secs(4);

/// Beyond a line for less than this is a peak: a lever that is lowered for it stays low for two minutes and more.
pub const PEAK: Millis = Millis::from_secs(30);

/// What host memory keeps free above its line after a move, so that the next breath of the desktop is no alarm.
pub const HOST_BREATH: Bytes = Bytes::from_mib(128);

/// The same on a card.
pub const VRAM_BREATH: Bytes = Bytes::from_mib(64);

/// Least bytes that are taken from host memory at once: a move costs a hand-over.
pub const HOST_SHED_MIN: Bytes = Bytes::from_mib(256);

/// The same on a card.
pub const VRAM_SHED_MIN: Bytes = Bytes::from_mib(64);

/// All levers move by whole slabs.
pub const SLAB: Bytes = Bytes::from_mib(2);

/// Most bytes of host memory that are given back at once: a second of reading, after which the account is looked at again.
pub const HOST_RAISE_CHUNK: Bytes = Bytes::from_gib(2);

/// The same on a card.
pub const VRAM_RAISE_CHUNK: Bytes = Bytes::from_mib(256);

/// Less is not worth a move, unless it is all that is missing.
pub const RAISE_MIN: Bytes = Bytes::from_mib(64);

/// Pause between two chunks of one recovery: a few looks at what the first one did.
pub const RAISE_PAUSE: Millis = Millis::from_secs(1);

/// A worker that has not answered an order to free bytes for this long is stuck in a read; the next lever is tried.
pub const LOWER_DEADLINE: Millis = Millis::from_secs(3);

/// The same for an order to take bytes, which are read from a file that may be slow.
pub const RAISE_DEADLINE: Millis = Millis::from_secs(60);

/// An order that is so late, beside the return of its bytes, is not waited for when the last bytes are going: six times the
/// longest way to a hand-over.
pub const OVERDUE: Millis = Millis(300);

/// Bytes that a worker returns in a second at least: 0.1 ms for a slab of 2 MiB was measured, and this is less than half.
pub const RETURN_PER_SECOND: Bytes = Bytes::from_gib(8);

/// The last bytes are going when they will be gone within this time: what a clean end of the worker takes, and half again.
pub const STOP_LEAD: Millis = Millis(1_500);

/// A lever is believed to give this share of its promise at least, in thousandths: with less it would not be one.
pub const TRUST_MIN_PERMILLE: u64 = 125;

/// Nothing is given back before an account has been quiet for this long.
pub const QUIET_MIN: Millis = Millis::from_secs(2 * 60);

/// A recovery that has to be undone within this time was wrong, however short the quiet time was: a program that comes back
/// after a coffee is the same one.
pub const UNDONE_WITHIN: Millis = Millis::from_secs(10 * 60);

/// And only as much as has been there for so long: a program that pauses between two bursts leaves no room.
pub const ROOM_LASTING: Millis = Millis::from_secs(60);

/// However often recoveries had to be undone, it is tried again after this long.
pub const QUIET_MAX: Millis = Millis::from_secs(64 * 60);

/// An hour without an undone recovery halves the quiet time.
pub const QUIET_HALVES_AFTER: Millis = Millis::from_secs(60 * 60);

/// A request waits this long for its card to shrink; then it runs slowly rather than not at all.
pub const REQUEST_START_WAIT: Millis = Millis::from_secs(5);

/// A card on which nothing is left to shrink is looked at for so long after the last move before a request runs under its
/// line: readings enough to see a growth that the move has hidden.
pub const REQUEST_SETTLES: Millis = Millis::from_secs(1);

/// A governor that only watches says the same about an account once in this time.
pub const PAPER_PAUSE: Millis = Millis::from_secs(30);

/// The file is read too much at this share of what was planned, in percent.
pub const FILE_READS_PERCENT: u64 = 150;

/// Fewer bytes a token are not felt: a millisecond of a usual disk.
pub const FILE_READS_MIN: Bytes = Bytes::from_mib(2);

/// Reads have to be too many for this long: a change of topic passes.
pub const FILE_READS_LASTING: Millis = Millis::from_secs(30);

/// That the file is read too much and nothing can be done is said once in this time.
pub const DISK_NOTE_PAUSE: Millis = Millis::from_secs(10 * 60);
