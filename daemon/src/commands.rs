//! The commands that end by themselves: `check-config`, `plan`, and the worker's own, which replace this process.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_decide::render;

use crate::actuate::become_worker::become_worker;
use crate::cli::{PlanArgs, complain, print};
use crate::exit::ExitCode;
use crate::model;
use crate::plan::{self, Ask, Planner};
use crate::probe::inventory::ModelDisk;
use crate::setup::{self, SetupError};
use crate::state::StateFolder;

/// `plimsoll check-config FILE`.
pub(crate) fn check_config(file: &Path) -> ExitCode {
    match setup::config(Some(file)).and_then(|_| print(format_args!("{}: ok", file.display()))) {
        Ok(()) => ExitCode::Ok,
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
    let state = StateFolder::of_environment(&path);
    let disk = ModelDisk::look(&path, |key| state.load_read_speed(key)).reading();
    let planner = Planner::new(&config, sized.sizes, path.display().to_string(), state.load_truth(), disk);
    let outcome = match planner.plan(Ask::default()) {
        Ok(Ok(plan)) => Ok(plan),
        Ok(Err(e)) => return Err(SetupError::System(format!("the machine's memory could not be read: {e}"))),
        Err(refusal) => Err(refusal),
    };
    if args.json {
        let mut json = plan::to_json(&outcome);
        json["model"] = sized.title.into();
        json["file_cut"] = sized.cut.map_or(serde_json::Value::Null, |cut| {
            serde_json::json!({"there_bytes": cut.there.0, "needed_bytes": cut.needed.0, "text": cut.to_string()})
        });
        print(json)?;
    } else {
        print(&sized.title)?;
        match &outcome {
            Ok(plan) => print(render::plan_text(plan).trim_end())?,
            Err(refusal) => print(render::refusal_text(refusal).trim_end())?,
        }
        if let Some(cut) = sized.cut {
            print(format_args!("  note: {cut}"))?;
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
