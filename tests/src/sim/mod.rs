//! A seeded virtual world in which a policy runs a whole day in a fraction of a second.
//!
//! Everything that does not react to us is drawn from (world, seed) before the day begins; the rest follows in whole
//! milliseconds and bytes, so that a day is the same on every machine. `src/bin/sim.rs` is the command.
//!
//! Read in this order: [`lever`], [`sight`], [`policy`] (what a policy sees and orders), [`world`] (the files).

pub mod lever;
pub mod policy;
pub mod sight;
pub mod world;
