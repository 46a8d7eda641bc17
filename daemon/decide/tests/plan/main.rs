//! Plans and refusals: figures of known machines, their words, and properties of all machines.

mod fixtures;

mod caps;
mod cards;
mod cases;
mod dense;
mod host;
mod ladder;
mod learned;
mod properties;
mod verdict;
mod words;
mod workstation;
