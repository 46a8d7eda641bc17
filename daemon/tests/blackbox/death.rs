//! The worker dies, hangs or can't load: what its clients see, and that none is left behind.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::http::{PATIENCE, get, post, send, send_with};

fn complete(daemon: &Daemon, prompt: &str) -> (u16, Value) {
    post(daemon.address, "/v1/completions", &json!({ "prompt": prompt, "seed": 5 }))
}

#[test]
fn kill_9_of_the_worker_between_requests_costs_nothing() {
    let mut daemon = Setup::default().ready();
    let worker = daemon.log.wait_for("worker started");
    assert!(worker.contains("pid="), "{worker}");
    for n in 0..3 {
        let pid = daemon.worker_started();
        assert_eq!(complete(&daemon, "!say before").0, 200);
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let (status, body) = complete(&daemon, "!say after");
        assert_eq!((status, &body["choices"][0]["text"]), (200, &json!("after")), "death {n}: {body}");
    }
}

#[test]
fn the_machine_s_readings_are_logged_before_each_start_of_a_worker() {
    let mut daemon = Setup::with("log:\n  level: debug\n").start();
    let inventory = daemon.log.wait_for("inventory");
    assert!(
        inventory.contains("state_disk_free_bytes=") && inventory.contains("own_proportional_bytes="),
        "{inventory}"
    );
    for _ in 0..2 {
        let readings = daemon.log.wait_for("readings");
        for figure in ["total_bytes=", "headroom_bytes=", "refaults_file=", "plimsoll (", "anon_bytes="] {
            assert!(readings.contains(figure), "{figure} is missing: {readings}");
        }
        kill(Pid::from_raw(daemon.worker_started()), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn an_answer_survives_its_worker() {
    let mut daemon = Setup::default().ready();
    let (status, body) = complete(&daemon, "!die 3 one answer");
    assert_eq!((status, &body["choices"][0]["text"]), (200, &json!("one answer")), "{body}");
    let (first, second) = (daemon.frame("submit"), daemon.frame("submit"));
    assert_eq!(second["generated"], json!(b"one"));
    for same in ["prompt", "sampling", "max_tokens"] {
        assert_eq!(first[same], second[same]);
    }
}

#[test]
fn a_stream_survives_its_worker_without_a_doubled_or_lost_token() {
    let daemon = Setup::default().ready();
    let body = json!({"prompt": "!die 3 one answer", "stream": true}).to_string();
    let events = send(daemon.address, "POST", "/v1/completions", body.as_bytes()).events();
    let text: String = events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok())
        .filter_map(|chunk| chunk["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, "one answer");
}

#[test]
fn a_request_that_crashes_every_worker_is_given_up_and_kept_and_the_daemon_lives() {
    let mut daemon = Setup::default().ready();
    let (status, body) = complete(&daemon, "!crash");
    let error = &body["error"];
    assert_eq!((status, &error["type"]), (500, &json!("poisoned_request_error")), "{body}");
    assert_eq!(error["code"], "request_ends_worker");
    assert!(error["message"].as_str().unwrap().contains("2 workers died with this request"), "{body}");
    for _ in 0..2 {
        daemon.frame("submit");
    }
    daemon.log.has_or_gets("request kept for replay");
    let kept = std::fs::read_dir(daemon.folder.path().join("plimsoll/kept")).unwrap().next().unwrap().unwrap();
    let record: Value = serde_json::from_str(&std::fs::read_to_string(kept.path()).unwrap()).unwrap();
    assert_eq!((&record["prompt"], &record["sampling"]["seed"]), (&json!(b"!crash"), &json!(5)), "{record}");
    assert!(record["died_of"].as_str().unwrap().contains("SIGSEGV"), "{record}");
    assert_eq!(complete(&daemon, "!say well").0, 200);
}

#[test]
fn an_innocent_request_outlives_the_one_that_crashes_its_worker() {
    let daemon = Setup::default().ready();
    let body = json!({"prompt": "!slow an innocent answer", "stream": true}).to_string();
    let mut innocent = send(daemon.address, "POST", "/v1/completions", body.as_bytes());
    innocent.chunk().unwrap(); // it runs
    let (status, body) = complete(&daemon, "!crash");
    assert_eq!((status, &body["error"]["code"]), (500, &json!("request_ends_worker")), "{body}");
    let text: String = innocent.events().join("");
    assert!(text.contains("\"finish_reason\":\"stop\""), "{text}");
}

#[test]
fn a_request_is_not_blamed_for_kills_from_outside() {
    let mut daemon = Setup::default().ready();
    let body = json!({"prompt": "!slow still here after all of that", "stream": true}).to_string();
    let mut answer = send(daemon.address, "POST", "/v1/completions", body.as_bytes());
    answer.chunk().unwrap();
    for _ in 0..3 {
        let pid = daemon.worker_started();
        daemon.frame("submit");
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    assert!(answer.events().join("").contains("\"finish_reason\":\"stop\""));
}

#[test]
fn a_request_whose_client_wants_to_wait_no_longer_is_told_so() {
    let daemon =
        Setup::with(&format!("worker:\n  path: {}\n  max_sessions: 1\n", crate::daemon::fake_worker().display()))
            .ready();
    let body = json!({"prompt": "!wait", "stream": true}).to_string();
    let _running = send(daemon.address, "POST", "/v1/completions", body.as_bytes());
    let refused = send_with(daemon.address, "/v1/completions", "Prefer: wait=0\r\n", br#"{"prompt": "x"}"#);
    let (status, body) = refused.json();
    assert_eq!((status, &body["error"]["code"]), (503, &json!("deadline_passed")), "{body}");
    let refused = send_with(daemon.address, "/v1/completions", "Prefer: wait=1\r\n", br#"{"prompt": "x"}"#);
    let (status, body) = refused.json();
    assert_eq!((status, &body["error"]["code"]), (503, &json!("deadline_passed")), "{body}");
}

#[test]
fn a_hung_worker_is_replaced() {
    let mut daemon = Setup::default().ready();
    let (status, body) = complete(&daemon, "!say before");
    assert_eq!(status, 200, "{body}");
    let pid = daemon.worker_started();
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    let (status, body) = complete(&daemon, "!say after");
    assert_eq!((status, &body["choices"][0]["text"]), (200, &json!("after")), "{body}");
}

#[test]
fn requests_wait_for_the_load_and_readyz_says_that_it_loads() {
    let mut daemon = Setup::load("never").start();
    daemon.frame("start");
    let (status, body) = get(daemon.address, "/readyz");
    assert_eq!((status, &body["ready"]), (503, &json!(false)), "{body}");
    assert_eq!(body["state"], "starting");
    assert_eq!(get(daemon.address, "/healthz").0, 200);
    let request = json!({"prompt": "x", "stream": true}).to_string();
    let mut waiting = send(daemon.address, "POST", "/v1/completions", request.as_bytes());
    assert_eq!((waiting.status, waiting.chunk().unwrap().as_deref()), (200, Some(": ping\n\n")));
}

#[test]
fn a_model_that_the_worker_refuses_is_told_and_the_daemon_stays() {
    for (load, words) in [("bad_model", "the fake was told to refuse"), ("version", "version 99")] {
        let mut daemon = Setup::load(load).start();
        daemon.log.wait_for("state=\"failed\"");
        let (status, body) = get(daemon.address, "/readyz");
        assert_eq!((status, &body["state"]), (503, &json!("failed")), "{body}");
        assert!(body["reason"].as_str().unwrap().contains(words), "{body}");
        let refused = send(daemon.address, "POST", "/v1/completions", br#"{"prompt": "x"}"#);
        assert_eq!(refused.header("retry-after"), None, "waiting does not help");
        let (status, body) = refused.json();
        assert_eq!(status, 503);
        assert!(body["error"]["message"].as_str().unwrap().contains(words), "{body}");
    }
}

/// The budget of deaths is spent, the daemon says so and stays.
fn is_given_up(load: &'static str) {
    let mut daemon = Setup::load(load).start();
    daemon.log.wait_for("state=\"failed\"");
    let (status, body) = get(daemon.address, "/readyz");
    assert_eq!(status, 503);
    let reason = body["reason"].as_str().unwrap();
    assert!(reason.contains("workers died") && reason.contains("none is started for 9 min"), "{body}");
    let refused = send(daemon.address, "POST", "/v1/completions", br#"{"prompt": "x"}"#);
    let retry_after_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&retry_after_s), "{retry_after_s}");
}

#[test]
fn a_worker_that_always_dies_is_not_started_for_ever() {
    is_given_up("die");
}

#[test]
fn a_worker_that_talks_nonsense_is_not_started_for_ever() {
    is_given_up("garbage");
}

#[test]
fn the_worker_has_one_socket_its_own_session_and_a_clean_environment() {
    let mut daemon = Setup::default().ready();
    let line = daemon.log.wait_for("fake started pid ");
    assert!(line.contains("sockets 1 anonymous 0 "), "{line}");
    assert!(!line.contains("SECRET_OF_THE_DESKTOP") && line.contains("PLIMSOLL_FAKE_LOAD"), "{line}");
    daemon.log.has_or_gets("a line on stdout");
    let pid: i32 = line.split("pid ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let stat = procfs::process::Process::new(pid).unwrap().stat().unwrap();
    assert_eq!((stat.session, stat.ppid), (pid, daemon.pid() as i32));
    let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert!(score.trim().parse::<i32>().unwrap() >= 500, "{score}");
}

#[test]
fn kill_9_of_the_daemon_leaves_no_worker() {
    for load in ["ok", "never"] {
        let mut daemon = Setup::load(load).start();
        daemon.worker_started();
        let death = daemon.worker_death();
        daemon.frame("start");
        daemon.signal(Signal::SIGKILL);
        death.recv_timeout(PATIENCE).expect("the worker is still there");
    }
}

#[test]
fn a_full_queue_is_429_and_those_who_wait_are_served() {
    let mut daemon = Setup::with(&format!(
        "worker:\n  path: {}\n  max_sessions: 1\nqueue:\n  max_waiting: 1\n",
        crate::daemon::fake_worker().display()
    ))
    .ready();
    let stream = |prompt: &str| {
        let body = json!({"prompt": prompt, "stream": true}).to_string();
        send(daemon.address, "POST", "/v1/completions", body.as_bytes())
    };
    let running = stream("!wait");
    let waiting = stream("!say next");
    let refused = send(daemon.address, "POST", "/v1/completions", br#"{"prompt": "x"}"#);
    assert!(refused.header("retry-after").is_some());
    let (status, body) = refused.json();
    assert_eq!((status, &body["error"]["type"]), (429, &json!("rate_limit_error")), "{body}");
    drop(running);
    assert!(waiting.events().join("").contains("\"finish_reason\":\"stop\""));
    daemon.frame("cancel");
}
