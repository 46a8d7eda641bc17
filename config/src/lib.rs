//! Configuration, units and every bound of the system.
//!
//! Read in this order: [`units`] (bytes, tokens, time), [`limits`] (every bound with its reason), [`config`] (what the
//! program uses). With the feature `yaml`, which the daemon alone turns on, `Config::from_yaml` reads a file and
//! reports every [`Problem`] in it at once; without it this crate depends on nothing.

#![forbid(unsafe_code)]

pub mod config;
pub mod limits;
pub mod problem;
pub mod units;

#[cfg(feature = "yaml")]
mod fields;
#[cfg(feature = "yaml")]
mod raw;
#[cfg(feature = "yaml")]
mod suggest;
#[cfg(feature = "yaml")]
mod tree;

pub use config::Config;
pub use problem::Problem;
