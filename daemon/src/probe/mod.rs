//! Readings of the machine. Each one is parsed into a plain struct; nothing here judges.

pub(crate) mod memory;
pub(crate) mod port;
