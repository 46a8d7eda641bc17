//! `plimsoll-worker`: the engine's process. Started by the daemon (`serve`), or by hand for the offline commands.

use clap::Parser;
use plimsoll_worker::cli::{Cli, Command, ServeArgs};
use plimsoll_worker::exit::ExitCode;
use plimsoll_worker::offline::{OfflineError, bench, generate, perplexity, tokenize};
use plimsoll_worker::serve;
use serde::Serialize;
use std::io::{self, Write};

fn main() -> std::process::ExitCode {
    let code = match Cli::parse().command {
        Command::Serve(args) => serve(&args),
        Command::Tokenize(args) => say(tokenize::run(&args), args.json, |t| format!("{:?}", t.ids)),
        Command::Generate(args) => say(generate::run(&args), args.json, |g| g.text.clone()),
        Command::Bench(args) => say(bench::run(&args), args.json, ToString::to_string),
        Command::Perplexity(args) => {
            say(perplexity::run(&args), args.json, |p| format!("perplexity {:.4} over {} tokens", p.ppl, p.tokens))
        }
    };
    code.into()
}

fn serve(args: &ServeArgs) -> ExitCode {
    let (code, words) = match serve::inherited::take_socket(args.fd) {
        Ok(socket) => serve::serve(socket).report(),
        Err(error) => (ExitCode::Usage, Some(error.to_string())),
    };
    words.map_or(code, |words| complain(code, &words))
}

/// Writes an outcome to stdout, as one line of JSON or as words for a person.
fn say<T: Serialize>(outcome: Result<T, OfflineError>, json: bool, words: impl FnOnce(&T) -> String) -> ExitCode {
    let value = match outcome {
        Ok(value) => value,
        Err(error) => return complain(error.exit_code(), &error.to_string()),
    };
    let line = if json { serde_json::to_string(&value).map_err(io::Error::from) } else { Ok(words(&value)) };
    match line.and_then(|line| writeln!(io::stdout(), "{line}")) {
        Ok(()) => ExitCode::Ok,
        Err(error) => complain(ExitCode::System, &format!("the result can't be written: {error}")),
    }
}

fn complain(code: ExitCode, words: &str) -> ExitCode {
    // With stderr closed there is nobody left to tell; the exit code says it too.
    drop(writeln!(io::stderr(), "plimsoll-worker: {words}"));
    code
}
