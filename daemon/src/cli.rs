//! What the user typed, and which command it means. Parsing only; the commands are elsewhere.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use plimsoll_config::config::parse_listen;

use crate::exit::ExitCode;
use crate::setup::SetupError;
use crate::{commands, serve};

/// Supervisor of a local language model: plans before it loads, watches while it runs.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = ExitCode::help(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer chats: start the worker, keep it alive, serve the HTTP API
    Serve(ServeArgs),
    /// Read a configuration file and report every problem in it
    CheckConfig {
        /// The file
        file: PathBuf,
    },
    /// Say whether a model fits, from its header and the machine's memory
    Plan(PlanArgs),
    /// Text to token ids (the worker's command; --help lists its options)
    #[command(disable_help_flag = true)]
    Tokenize(WorkerArgs),
    /// Continue a text without a daemon (the worker's command)
    #[command(disable_help_flag = true)]
    Generate(WorkerArgs),
    /// Measure prefill and decode speed (the worker's command)
    #[command(disable_help_flag = true)]
    Bench(WorkerArgs),
    /// Measure perplexity on a file (the worker's command)
    #[command(disable_help_flag = true)]
    Perplexity(WorkerArgs),
}

/// Options of `serve`. What is given here replaces the file's value.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file; without it the built-in defaults hold
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Model file (GGUF), or the first part of a split one
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Address and port to listen at; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
}

/// Options of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Model file (GGUF), or the first part of a split one; its header is enough
    #[arg(long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Configuration file; without it the built-in defaults hold
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
struct WorkerArgs {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs the command that `args` asks for.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let is_help = matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            drop(e.print()); // nobody is left to tell when the terminal is gone
            return if is_help { ExitCode::Ok } else { ExitCode::Usage };
        }
    };
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::CheckConfig { file } => commands::check_config(&file),
        Command::Plan(args) => commands::plan(&args),
        Command::Tokenize(WorkerArgs { args }) => commands::worker("tokenize", &args),
        Command::Generate(WorkerArgs { args }) => commands::worker("generate", &args),
        Command::Bench(WorkerArgs { args }) => commands::worker("bench", &args),
        Command::Perplexity(WorkerArgs { args }) => commands::worker("perplexity", &args),
    }
}

/// Writes a line for the person who called, as far as somebody listens: `serve` goes on without its terminal.
pub(crate) fn say(line: impl std::fmt::Display) {
    drop(write_line(line));
}

/// Writes what a command was called for. A closed pipe (`plimsoll plan | head`) is no error.
///
/// # Errors
/// The line did not arrive, say on a full disk: a script must not take the part for the whole.
pub(crate) fn print(line: impl std::fmt::Display) -> Result<(), SetupError> {
    match write_line(line) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(SetupError::System(format!("the result could not be written to stdout: {e}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_line(line: impl std::fmt::Display) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush())
}

/// Writes what went wrong for the person who called.
pub(crate) fn complain(line: impl std::fmt::Display) {
    drop(writeln!(std::io::stderr().lock(), "plimsoll: {line}"));
}
