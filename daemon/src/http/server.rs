//! Connections: accepts within a bound, gives each its time limits, and ends them in order.
//!
//! axum's own `serve` has no limit on the time of a request's head, so hyper is driven here.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use plimsoll_config::limits::{
    ACCEPT_PAUSE, HTTP_READ_DEADLINE, MAX_HTTP_CONNECTIONS, MAX_HTTP_HEADER_BYTES, STREAM_STALL_DEADLINE,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Serves until `stop` turns true, then closes the port and returns the connections that still have an answer to send.
pub(crate) async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    loop {
        let full = connections.len() >= MAX_HTTP_CONNECTIONS;
        tokio::select! {
            () = wait_for(&mut stop) => return connections,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if !full => match accepted {
                Ok((stream, _peer)) => {
                    connections.spawn(connection(stream, router.clone(), stop.clone()));
                }
                Err(e) => {
                    // Out of descriptors, or a client that hung up while it waited: neither ends the daemon.
                    tracing::warn!("a connection was not accepted: {e}");
                    tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE.0)).await;
                }
            },
        }
    }
}

/// Returns when `stop` is true, or when nobody is left who could say so.
async fn wait_for(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

async fn connection(stream: TcpStream, router: Router, mut stop: watch::Receiver<bool>) {
    if let Err(e) = prepare(&stream) {
        tracing::debug!("a connection ended before its first request: {e}");
        return;
    }
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HTTP_READ_DEADLINE.0))
        .max_buf_size(MAX_HTTP_HEADER_BYTES);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = std::pin::pin!(served);
    let stopped = tokio::select! {
        result = served.as_mut() => Some(result),
        () = wait_for(&mut stop) => None,
    };
    let result = match stopped {
        Some(result) => result,
        None => {
            served.as_mut().graceful_shutdown(); // the answer under way is still sent
            served.await
        }
    };
    if let Err(e) = result {
        tracing::debug!("a connection ended: {e}");
    }
}

/// Small chunks go out at once; a peer that takes no byte for as long as a stream may stand still is gone.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let stall_ms = u32::try_from(STREAM_STALL_DEADLINE.0).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &stall_ms)?;
    Ok(())
}
