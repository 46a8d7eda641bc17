//! The governor against a small machine.

mod bench;
mod pressure;
mod properties;
mod recovery;
mod words;
