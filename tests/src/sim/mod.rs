//! A seeded virtual world in which a policy runs a whole day in a fraction of a second.
//!
//! Everything that does not react to us is drawn from (world, seed) before the day begins; the rest follows in whole
//! milliseconds and bytes, so that a day is the same on every machine. `src/bin/sim.rs` is the command.
//!
//! Read in this order: [`lever`], [`sight`], [`policy`] (what a policy sees and orders), [`world`] (the files); [`curve`],
//! [`draw`], [`day`], [`clients`] (what is drawn); [`pool`], [`worker`], [`physics`], [`memory`], [`sensors`] (what follows);
//! [`run`] with `events` and `carry` (the loop); [`checker`], [`score`], [`story`] (what came of it); [`desk`], [`plan`],
//! [`policies`] (who decides), [`script`] (for tests); [`fleet`] (many days); [`record`] (a day as a log, and its replay).

pub mod lever;
pub mod ours;
pub mod policy;
pub mod sight;
pub mod world;

pub mod clients;
pub mod curve;
pub mod day;
pub mod draw;

pub mod memory;
pub mod physics;
pub mod pool;
pub mod sensors;
pub mod worker;

mod carry;
pub mod events;
pub mod run;

pub mod checker;
pub mod score;
pub mod story;

pub mod desk;
pub mod plan;
pub mod policies;
pub mod script;

pub mod fleet;

pub mod number;
pub mod record;
