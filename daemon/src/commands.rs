//! The commands that end by themselves: `check-config`, `plan`, and the worker's own, which replace this process.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_decide::render;

use crate::actuate::become_worker::become_worker;
use crate::cli::{PlanArgs, complain, say};
use crate::exit::ExitCode;
use crate::model;
use crate::plan::{self, Planner};
use crate::setup::{self, SetupError};

/// `plimsoll check-config FILE`.
pub(crate) fn check_config(file: &Path) -> ExitCode {
    match setup::config(Some(file)) {
        Ok(_) => {
            say(format_args!("{}: ok", file.display()));
            ExitCode::Ok
        }
        Err(e) => {
            complain(&e);
            e.exit_code()
        }
    }
}

/// `plimsoll plan --model FILE [--config FILE] [--json]`: 0 if it fits, 3 if not.
pub(crate) fn plan(args: &PlanArgs) -> ExitCode {
    match try_plan(args) {
        Ok(code) => code,
        Err(e) => {
            complain(&e);
            e.exit_code()
        }
    }
}

fn try_plan(args: &PlanArgs) -> Result<ExitCode, SetupError> {
    let mut config = setup::config(args.config.as_deref())?;
    if args.model.is_some() {
        config.model.path.clone_from(&args.model);
    }
    let path = config.model.path.clone().ok_or(SetupError::NoModel)?;
    let sized = model::read_sizes(&path)?;
    let planner = Planner::new(&config, sized.sizes, path.display().to_string());
    let outcome = match planner.plan() {
        Ok(Ok(plan)) => Ok(plan),
        Ok(Err(e)) => return Err(SetupError::System(format!("the machine's memory could not be read: {e}"))),
        Err(refusal) => Err(refusal),
    };
    if args.json {
        let mut json = plan::to_json(&outcome);
        json["model"] = sized.title.into();
        say(json);
    } else {
        say(format_args!("{}", sized.title));
        match &outcome {
            Ok(plan) => say(render::plan_text(plan).trim_end()),
            Err(refusal) => say(render::refusal_text(refusal).trim_end()),
        }
    }
    Ok(if outcome.is_ok() { ExitCode::Ok } else { ExitCode::DoesNotFit })
}

/// Becomes the worker with the same arguments. Returns only if that fails.
pub(crate) fn worker(command: &str, args: &[OsString]) -> ExitCode {
    let program = match setup::existing_worker(None) {
        Ok(program) => program,
        Err(e) => {
            complain(&e);
            return e.exit_code();
        }
    };
    let e = become_worker(&program, command, args);
    complain(format_args!("{} can't be started: {e}", program.display()));
    ExitCode::Configuration
}
