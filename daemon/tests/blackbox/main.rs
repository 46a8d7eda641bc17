//! The daemon from outside: real processes, real sockets, and a worker without an engine (`support/fake_worker.py`) that does
//! what the prompt says.

#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test, as it should")]

mod api;
mod bad_input;
mod commands;
mod daemon;
mod death;
mod http;
mod model;
mod shutdown;
mod stream;
