//! Readings of the machine. Each one is parsed into a plain struct; nothing here judges.
//!
//! One file of the kernel, one module: a pure `parse` of its bytes and a thin `read`. `sample` is all that changes while a
//! worker runs, `inventory` what is looked at once, `memory` what plans and the supervisor ask for.

mod fields;
mod source;

mod meminfo;
mod pressure;
mod swap;
mod vmstat;

mod process;

mod cgroup;
mod room;

mod disk;

pub(crate) mod inventory;
pub(crate) mod sample;

pub(crate) mod memory;
pub(crate) mod port;

pub(crate) use self::disk::speed::{ReadSpeed, SpeedKey, Way};
pub(crate) use self::source::ProbeError;

#[cfg(test)]
mod tests;
