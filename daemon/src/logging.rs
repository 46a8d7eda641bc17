//! The log: one event, one line, on stderr. Standard output belongs to what a person asked for.

use std::io::IsTerminal;

use plimsoll_config::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::TryInitError;

/// Starts it for the rest of the process.
///
/// # Errors
/// It was started before.
pub(crate) fn start(log: Log) -> Result<(), TryInitError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(log.level.name()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match log.format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().finish().try_init(),
    }
}
