//! Pure decisions: state and input in, decision out. No I/O, no clock, no chance, no logging; `now` is an argument.
//!
//! Read in this order: [`ledger`] (who holds which bytes, and what is left), [`plan`] (whether a model fits, and what to do
//! when it does not), [`render`] (both as text), [`admission`] (who runs, waits or is refused), [`lifecycle`] (the
//! worker's life). The daemon's loop calls them and carries out what they say; nothing else does.

#![forbid(unsafe_code)]

pub mod ledger;
pub mod plan;
pub mod render;

pub mod admission;
pub mod lifecycle;
