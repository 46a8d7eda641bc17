//! `plimsoll serve`: everything that can be refused is checked first, then the port is taken, then the worker is started.
//!
//! ```text
//! config → model header → worker's program → port │ supervisor → worker     SIGTERM → drain → worker ends → exit 0
//!   64        66, 6            64              7  │ from here on it stays up     (again: now)
//! ```
//! After the port is ours, the daemon does not exit on a refusal: it says why at `/readyz` and looks again.

mod startup;

use std::time::Duration;

use plimsoll_config::limits::CLOSE_DEADLINE;
use plimsoll_config::units::Millis;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use self::startup::House;
use crate::cli::{ServeArgs, complain};
use crate::exit::ExitCode;
use crate::setup::SetupError;
use crate::supervisor::Handle;

/// Runs until a signal ends it.
pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    match try_run(args) {
        Ok(()) => ExitCode::Ok,
        Err(e) => {
            complain(&e);
            e.exit_code()
        }
    }
}

fn try_run(args: &ServeArgs) -> Result<(), SetupError> {
    let system = |e: std::io::Error| SetupError::System(format!("the daemon can't start: {e}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        // Before anything is started: a signal during the start must find us listening.
        let mut signals = Signals::new().map_err(system)?;
        let house = startup::build(args)?;
        live(house, &mut signals).await
    })
}

/// SIGTERM and SIGINT mean the same.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

async fn live(house: House, signals: &mut Signals) -> Result<(), SetupError> {
    let House { clock, engine, mut supervisor, router, listener, drain_deadline, announce } = house;
    let (close, closing) = watch::channel(false);
    let server = tokio::spawn(crate::http::server::serve(listener, router, closing));
    let announcing = tokio::spawn(startup::announce_ready(engine.watch_status(), announce));

    let name = tokio::select! {
        name = signals.next() => name,
        // It only ends when it is told to. Without it nothing is supervised: better to be started again.
        ended = &mut supervisor => {
            let why = ended.err().map_or_else(|| "it returned".into(), |e| e.to_string());
            return Err(SetupError::System(format!("the supervisor failed: {why}")));
        }
    };
    tracing::info!("{name}: no new requests; running answers may take {drain_deadline}; once more ends them now");
    announcing.abort();
    let deadline = clock.now().saturating_add(drain_deadline);
    // The port stays open meanwhile: who comes now is told that this server is ending, not refused without a word.
    wait_for_worker(&engine, &mut supervisor, deadline, signals).await;
    let _ = close.send(true); // the server is only gone if it panicked
    finish_connections(server).await;
    tracing::info!("ended");
    Ok(())
}

async fn wait_for_worker(engine: &Handle, supervisor: &mut JoinHandle<()>, deadline: Millis, signals: &mut Signals) {
    engine.drain(deadline).await;
    let mut is_cut = false;
    loop {
        tokio::select! {
            ended = &mut *supervisor => {
                if let Err(e) = ended {
                    tracing::error!("the supervisor failed: {e}"); // its worker ends by the end of its socket
                }
                return;
            }
            name = signals.next(), if !is_cut => {
                tracing::info!("{name} again: running answers end now");
                is_cut = true;
                engine.stop_now().await;
            }
        }
    }
}

/// Lets the last answers out, then cuts what still hangs on.
async fn finish_connections(server: JoinHandle<JoinSet<()>>) {
    let Ok(mut connections) = server.await else { return };
    let flushed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_millis(CLOSE_DEADLINE.0), flushed).await.is_err() {
        tracing::debug!("connections were cut");
    }
}
