//! Every bound of the system, with its reason. A queue, cache, retry or loop that has none is a bug.

/// Longest frame between daemon and worker. A prompt of 262,144 ids is about 2 MiB of JSON; 16 MiB leaves room for any
/// context in use and stops a corrupt length from asking for memory.
pub const MAX_FRAME_BYTES: usize = 16 << 20;
