//! Plans and refusals: figures of known machines, their words, and properties of all machines.

mod fixtures;

mod caps;
mod dense;
mod host;
mod properties;
mod words;
mod workstation;
