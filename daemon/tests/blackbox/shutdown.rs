//! SIGTERM and SIGINT: what runs may end, nothing new begins, no process is left, exit 0.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::daemon::Setup;
use crate::http::{PATIENCE, get, post, send};

#[test]
fn a_signal_ends_an_idle_daemon_and_its_worker() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = Setup::default().ready();
        daemon.worker_started();
        let death = daemon.worker_death();
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0));
        death.recv_timeout(PATIENCE).expect("the worker is still there");
    }
}

#[test]
fn a_running_answer_ends_first_and_a_waiting_one_is_refused() {
    let mut daemon =
        Setup::with(&format!("worker:\n  path: {}\n  max_sessions: 1\n", crate::daemon::fake_worker().display()))
            .ready();
    let stream = |prompt: &str| {
        let body = json!({"prompt": prompt, "stream": true}).to_string();
        send(daemon.address, "POST", "/v1/completions", body.as_bytes())
    };
    let mut running = stream("!slow a rather long answer that takes a while to be written");
    running.wait_for("\"text\":\"a\"");
    let waiting = stream("!say x");
    daemon.signal(Signal::SIGTERM);
    let refused = waiting.events().join("\n");
    assert!(refused.contains("\"error\"") && refused.contains("ending"), "{refused}");
    let rest = running.events();
    assert_eq!(rest.last().map(String::as_str), Some("[DONE]"));
    assert!(rest.join("").contains("\"finish_reason\":\"stop\""));
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(std::net::TcpStream::connect(daemon.address).is_err(), "the port is closed");
}

#[test]
fn the_drain_s_deadline_ends_what_is_left() {
    let mut daemon = Setup::with("stop:\n  drain_deadline: 300ms\n").ready();
    let body = json!({"prompt": "!wait", "stream": true}).to_string();
    let running = send(daemon.address, "POST", "/v1/completions", body.as_bytes());
    daemon.signal(Signal::SIGTERM);
    let events = running.events().join("\n");
    assert!(events.contains("\"error\"") && !events.contains("[DONE]"), "{events}");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_second_signal_cuts_the_drain_short() {
    let mut daemon = Setup::with("stop:\n  drain_deadline: 10min\n").ready();
    let body = json!({"prompt": "!wait", "stream": true}).to_string();
    let running = send(daemon.address, "POST", "/v1/completions", body.as_bytes());
    daemon.signal(Signal::SIGTERM);
    daemon.log.wait_for("state=\"draining\"");
    assert_eq!(get(daemon.address, "/healthz").0, 200);
    let (status, body) = get(daemon.address, "/readyz");
    assert_eq!((status, &body["state"]), (503, &json!("draining")), "{body}");
    let (status, body) = post(daemon.address, "/v1/completions", &json!({"prompt": "x"}));
    assert_eq!((status, &body["error"]["code"]), (503, &json!("draining")), "{body}");
    daemon.signal(Signal::SIGTERM);
    assert!(running.events().join("\n").contains("\"error\""));
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_signal_during_the_load_ends_it() {
    let mut daemon = Setup::load("never").start();
    daemon.frame("start");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_log_for_machines_is_json_line_by_line() {
    let mut daemon = Setup::with("log:\n  format: json\n").ready();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
    let log = daemon.log.until_end();
    assert!(log.lines().count() > 3, "{log}");
    for line in log.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(event["level"].is_string() && event["fields"]["message"].is_string(), "{line}");
    }
}
