//! `plimsoll`: the daemon and its commands. Thin shells around `plimsoll-decide`: nothing here judges.
//!
//! Read in this order: `cli`, `exit`, `setup` (from words to values), `commands`, `serve`, `supervisor` (the worker's owner),
//! `http` (the API), then the edges to the machine: `actuate` (spawn and signal), `probe` (read).

mod cli;
mod exit;
mod setup;

mod commands;
mod model;
mod plan;
mod serve;

mod supervisor;

mod http;
mod journal;
mod text;

mod actuate;
mod probe;

mod clock;
mod logging;
mod state;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os()).into()
}
