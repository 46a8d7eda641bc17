//! The governor against a small machine.

mod bench;
mod edges;
mod pressure;
mod properties;
mod recovery;
mod words;
