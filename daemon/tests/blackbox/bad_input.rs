//! Bad input to `serve`: the words, the exit code, and that nothing was started.

use std::net::TcpListener;

use crate::daemon::{Setup, run};
use crate::model;

#[test]
fn all_problems_of_a_configuration_are_told_at_once() {
    let setup = Setup::with("queue:\n  max_wating: 3\nlog:\n  level: loud\n");
    let (code, stdout, stderr) = setup.run();
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("max_wating") && stderr.contains("loud"), "{stderr}");
    assert!(stderr.contains("plimsoll.yaml:8:") && stderr.contains("plimsoll.yaml:10:"), "{stderr}");
    assert_eq!(stdout, "");
}

#[test]
fn a_missing_model_is_named_with_what_was_looked_for() {
    let setup = Setup::default();
    let (code, stdout, stderr) = run(setup.command().args(["--model", "/nowhere/model.gguf"]));
    assert_eq!(code, 66, "{stderr}");
    assert!(stderr.contains("/nowhere/model.gguf"), "{stderr}");
    assert_eq!(stdout, "");
}

#[test]
fn no_model_at_all_is_a_configuration_problem() {
    let (code, _, stderr) = run(std::process::Command::new(crate::daemon::PLIMSOLL).arg("serve"));
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("--model"), "{stderr}");
}

#[test]
fn a_damaged_model_has_its_own_code() {
    let whole = model::bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.gguf");
    for (name, bytes) in [
        ("empty", &whole[..0]),
        ("cut in the header", &whole[..200]),
        ("cut in the data", &whole[..whole.len() - 64]),
        ("something else", &b"hello, this is not a model"[..]),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let (code, _, stderr) = run(Setup::default().command().args(["--model", path.to_str().unwrap()]));
        assert_eq!(code, 6, "{name}: {stderr}");
        assert!(stderr.contains("damaged.gguf"), "{name}: {stderr}");
    }
}

#[test]
fn a_taken_port_says_by_whom_and_no_worker_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, stderr) = run(Setup::default().command().args(["--listen", &address]));
    assert_eq!(code, 7, "{stderr}");
    assert!(stderr.contains(&address) && stderr.contains(&format!("pid {}", std::process::id())), "{stderr}");
    assert!(!stderr.contains("fake started"), "{stderr}");
}

#[test]
fn a_missing_worker_program_is_told_before_the_port_is_taken() {
    let (code, _, stderr) = Setup::with("worker:\n  path: /nowhere/plimsoll-worker\n").run();
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere/plimsoll-worker"), "{stderr}");
}

#[test]
fn a_wrong_command_line_is_usage() {
    for args in [&["dance"][..], &[], &["serve", "--listen", "nonsense"], &["serve", "--listen", "0.0.0.0:80"]] {
        let (code, _, stderr) = run(std::process::Command::new(crate::daemon::PLIMSOLL).args(args));
        assert_eq!(code, 2, "{args:?}: {stderr}");
    }
}

#[test]
fn an_impossible_plan_keeps_the_daemon_up_with_the_reason() {
    let mut daemon = Setup::with("host:\n  line: 256MiB\ncontext:\n  tokens: 2000000\n").start();
    daemon.log.wait_for("DOES NOT FIT");
    let (status, body) = crate::http::get(daemon.address, "/readyz");
    assert_eq!((status, &body["state"]), (503, &serde_json::json!("checking")), "{body}");
    let reason = body["reason"].as_str().unwrap();
    assert!(reason.starts_with("DOES NOT FIT: host memory is short by "), "{body}");
    assert!(reason.ends_with("; run `plimsoll plan` for the ledger and offers"), "{body}");
    let (status, body) = crate::http::post(daemon.address, "/v1/completions", &serde_json::json!({"prompt": "x"}));
    assert_eq!(status, 503, "{body}");
    assert_eq!(body["error"]["message"].as_str().unwrap().lines().count(), 1, "{body}");
    assert!(!body.to_string().contains("foreign"), "the ledger is for this machine's log: {body}");
}
