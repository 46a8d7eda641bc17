//! Cross-crate tests, fixture makers and doubles.
//!
//! - [`places`]: the checkout, the build folder, the models.
//! - [`digest`]: hashes (SHA-256).
//! - [`process`], [`daemon`], [`http`]: real processes and how to talk to them.
//! - [`engine`], [`recorder`]: the engine in the test's own process, and a device that watches it.
//! - [`fixture`]: model files made on demand.
//! - [`sim`]: the simulator: policies over seeded days.
//! - [`tidy`]: the style rules that a machine can check, run as a test.

pub mod daemon;
pub mod digest;
pub mod engine;
pub mod fixture;
pub mod http;
pub mod places;
pub mod process;
pub mod recorder;
pub mod sim;
pub mod tidy;
