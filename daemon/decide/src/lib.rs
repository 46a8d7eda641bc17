//! Pure decisions: state and input in, decision out. No I/O, no clock, no chance, no logging; `now` is an argument.
//!
//! Read in this order: [`ledger`] (who holds which bytes, and what is left), [`plan`] (whether a model fits, where its parts
//! lie, and what to do when it does not), [`render`] (both as text); [`gpu`] (what a driver says), [`identity`] (which
//! processes are ours), [`zero_check`] (whether a card is empty before a start), [`release`] (whether it is empty after an
//! end), [`calibration`] (what is healthy on this machine), [`measured`] (how wrong plans were); [`admission`] (who runs,
//! waits or is refused), [`poison`] (whose step killed a worker), [`lifecycle`] (the worker's life), [`governor`] (which lever
//! moves before a line is reached). The daemon's loop calls them and carries out what they say; nothing else does.

#![forbid(unsafe_code)]

pub mod ledger;
pub mod plan;
pub mod render;

pub mod gpu;
pub mod identity;
pub mod release;
pub mod zero_check;

pub mod calibration;
pub mod measured;

pub mod admission;
pub mod governor;
pub mod lifecycle;
pub mod poison;

mod text;
