//! The start of `serve`: checks, the port, the supervisor, and the lines that a person sees in the first minute.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use plimsoll_config::Config;
use plimsoll_config::limits::MAX_TOKENISING;
use plimsoll_config::units::Millis;
use plimsoll_decide::admission::Capacity;
use plimsoll_decide::plan::DiskReading;
use plimsoll_decide::render;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::cli::{ServeArgs, say};
use crate::clock::{self, Clock};
use crate::http::{self, App, BodyMemory};
use crate::plan::{Ask, Planner};
use crate::probe::inventory::ModelDisk;
use crate::setup::{self, SetupError};
use crate::state::StateFolder;
use crate::supervisor::{self, Handle, Status};
use crate::{logging, model, probe};

/// All that runs.
pub(super) struct House {
    pub(super) clock: Clock,
    pub(super) engine: Handle,
    pub(super) supervisor: JoinHandle<()>,
    pub(super) router: Router,
    pub(super) listener: TcpListener,
    pub(super) drain_deadline: Millis,
    /// The address to announce.
    pub(super) announce: SocketAddr,
}

/// Checks everything, then starts everything.
///
/// # Errors
/// What is wrong; nothing was started then.
pub(super) fn build(args: &ServeArgs) -> Result<House, SetupError> {
    let config = config(args)?;
    logging::start(config.log).map_err(|e| SetupError::System(format!("the log can't start: {e}")))?;
    let path = config.model.path.clone().ok_or(SetupError::NoModel)?;
    let model = model::load(&path, config.kv.kv_type)?;
    let program = setup::existing_worker(config.worker.path.as_deref())?;
    let (listener, address) = bind(config.server.listen)?;

    say(format_args!("model    {}", model.title));
    let source = args.config.as_ref().map_or("built-in defaults".into(), |path| path.display().to_string());
    say(format_args!("plimsoll {} · config: {source}", env!("CARGO_PKG_VERSION")));
    if let Some(note) = model.text.template_note() {
        say(format_args!("         note: {note}"));
    }
    let state = StateFolder::of_environment(&path);
    let disk = model_disk(&path, &state);
    let planner = Arc::new(Planner::new(&config, model.sizes, path.display().to_string(), state.load_truth(), disk));
    say(format_args!("gpu      not used: this build has a cpu backend · {} threads", planner.n_threads()));
    let next = if say_plan(&planner) { "loading; requests wait" } else { "not ready; I look again until it fits" };
    say(format_args!("listen   http://{address} · {next}"));

    let clock = Clock::start();
    let capacity = Capacity {
        n_ctx: None, // the first plan says it
        kv: None,
        max_running: config.worker.max_sessions,
        max_waiting: config.queue.max_waiting,
    };
    let learned = state.load_learned();
    let state = state.into_writer().map_err(|e| SetupError::System(format!("the state folder has no writer: {e}")))?;
    let setup = supervisor::Setup { clock, program, planner, capacity, learned, state };
    let (engine, supervisor) =
        supervisor::start(setup).map_err(|e| SetupError::System(format!("the supervisor can't start: {e}")))?;
    let app = App {
        clock,
        engine: engine.clone(),
        text: Arc::new(model.text),
        card: model.card,
        bodies: BodyMemory::new(),
        tokenising: Semaphore::new(MAX_TOKENISING),
        started_s: clock::unix_seconds(),
    };
    Ok(House {
        clock,
        engine,
        supervisor,
        router: http::router(Arc::new(app)),
        listener,
        drain_deadline: config.stop.drain_deadline,
        announce: address,
    })
}

fn config(args: &ServeArgs) -> Result<Config, SetupError> {
    let mut config = setup::config(args.config.as_deref())?;
    if args.model.is_some() {
        config.model.path.clone_from(&args.model);
    }
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    Ok(config)
}

/// The disk of the model's file: measured by the first daemon that has it there, before the worker reads it too.
fn model_disk(model: &Path, state: &StateFolder) -> Option<DiskReading> {
    let disk = ModelDisk::look(model, |key| state.load_read_speed(key));
    if let Ok(speed) = &disk.speed {
        state.store_read_speed(speed);
    }
    if tracing::enabled!(tracing::Level::DEBUG) {
        disk.log(model, state.path());
    }
    disk.reading()
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), SetupError> {
    let refused = |e: std::io::Error| {
        let in_use = e.kind() == std::io::ErrorKind::AddrInUse;
        let holder = if in_use { probe::port::holder(address) } else { None };
        let why = match holder {
            Some(holder) => format!("it is taken by {holder}; end it or choose another address with --listen"),
            None if in_use => {
                "it is taken by a process that can't be seen from here; choose another address with --listen".into()
            }
            None => e.to_string(),
        };
        SetupError::Bind { address, in_use, why }
    };
    // std sets SO_REUSEADDR, which a quick restart needs; a second listener is still refused.
    let listener = std::net::TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let listener = TcpListener::from_std(listener).map_err(refused)?;
    let actual = listener.local_addr().map_err(refused)?;
    Ok((listener, actual))
}

/// True if the plan fits as the machine is now.
fn say_plan(planner: &Planner) -> bool {
    match planner.plan(Ask::default()) {
        Ok(Ok(plan)) => {
            let knobs = &plan.knobs;
            let summary = render::summary(&plan.ledger);
            say(format_args!("plan     {summary} · context {} × {}", knobs.max_sessions, knobs.n_ctx));
            for note in &plan.notes {
                say(format_args!("         note: {}", render::note_text(note)));
            }
            true
        }
        Ok(Err(e)) => {
            say(format_args!("plan     none yet: the machine's memory could not be read: {e}"));
            false
        }
        Err(refusal) => {
            say(format_args!("plan     {}", render::refusal_text(&refusal).trim_end()));
            false
        }
    }
}

/// Says once that requests are answered, and how to send one.
pub(super) async fn announce_ready(mut status: watch::Receiver<Status>, address: SocketAddr) {
    let Ok(first) = status.wait_for(|status| status.ready).await.map(|status| status.clone()) else { return };
    say(format_args!(
        "engine   {} · loaded in {} ms · context {}",
        first.backend,
        first.load_ms,
        first.n_ctx.unwrap_or_default()
    ));
    say(format_args!("ready    http://{address}"));
    say(format_args!(
        "         curl -s http://{address}/v1/chat/completions -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    ));
}
