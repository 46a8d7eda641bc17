//! The daemon, the worker and a real model together. (The daemon's own tests use a worker that is a script: every way in which
//! a worker can misbehave is there.)

use nix::sys::signal::Signal;
use plimsoll_tests::daemon::{Daemon, chat_request, serve_command};
use plimsoll_tests::http::{self, Answer};
use plimsoll_tests::places::{Model, repository_root, target_folder};
use plimsoll_tests::process::{Known, Running, SOON, signal_to, wait_until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;

const CHAT: &str = "/v1/chat/completions";

fn ready() -> Daemon {
    let mut daemon = Daemon::start(&Model::SmolLm2.path());
    daemon.wait_ready();
    daemon
}

/// The answer's text and why it ended.
fn whole_answer(daemon: &Daemon, request: &Value) -> (String, String) {
    whole_answer_at(daemon.address, request)
}

fn whole_answer_at(address: SocketAddr, request: &Value) -> (String, String) {
    let reply = http::post(address, CHAT, request);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let choice = &reply.json()["choices"][0];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&choice["message"]["content"]), text(&choice["finish_reason"]))
}

/// Reads a stream to its end; `on_piece` hears how many pieces there were so far.
fn streamed_answer(mut answer: Answer, mut on_piece: impl FnMut(usize)) -> (String, String) {
    let (mut text, mut finish, mut n_pieces) = (String::new(), None, 0);
    while let Some(event) = answer.next_event().expect("the stream lives") {
        if event == "[DONE]" {
            return (text, finish.expect("a reason before the end"));
        }
        let chunk: Value = serde_json::from_str(&event).expect("JSON");
        assert!(chunk["error"].is_null(), "{event}");
        if let Some(piece) = chunk["choices"][0]["delta"]["content"].as_str().filter(|piece| !piece.is_empty()) {
            text.push_str(piece);
            n_pieces += 1;
            on_piece(n_pieces);
        }
        if let Some(reason) = chunk["choices"][0]["finish_reason"].as_str() {
            finish = Some(reason.to_owned());
        }
    }
    panic!("the stream ended without [DONE] after {text:?}");
}

fn stream(daemon: &Daemon, request: &Value) -> Answer {
    let mut request = request.clone();
    request["stream"] = json!(true);
    let answer = http::send(daemon.address, "POST", CHAT, &request.to_string()).expect("a connection");
    assert_eq!(answer.status, 200);
    answer
}

#[test]
fn the_official_python_client_is_served() {
    let packages = target_folder().join("python");
    assert!(packages.is_dir(), "{} is missing: run `make fetch-test-python`", packages.display());
    let daemon = ready();
    let mut command = Command::new("python3");
    command.arg(repository_root().join("tests/python/openai_client.py")).arg(format!("http://{}", daemon.address));
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut client = Running::start(command);
    let status = client.wait(SOON);
    assert!(status.success(), "{}\n{}", client.said(), daemon.process.said());
    let seen: Value = serde_json::from_str(&client.stdout()).expect("one line of JSON");

    let whole = &seen["whole"];
    assert_eq!((&whole["object"], &whole["role"]), (&json!("chat.completion"), &json!("assistant")), "{seen}");
    let text = whole["text"].as_str().expect("a text");
    assert!(!text.is_empty());

    let streamed = &seen["streamed"];
    let pieces: Vec<&str> = streamed["pieces"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(pieces.len() > 1, "{seen}");
    assert_eq!(pieces.concat(), text, "streamed and whole are the same answer");
    assert_eq!(streamed["roles"], json!(["assistant"]));
    assert_eq!(streamed["finish_reasons"], json!([whole["finish_reason"]]));
    assert_eq!(streamed["usages"], json!([[whole["prompt_tokens"], whole["completion_tokens"]]]));
    assert_eq!(streamed["empty_choices"], 1, "the chunk with the usage");
    assert!(streamed["objects"].as_array().expect("a list").iter().all(|object| object == "chat.completion.chunk"));

    assert_eq!(seen["completion"]["object"], "text_completion");
    assert!(seen["completion"]["text"].as_str().expect("a text").starts_with(" Paris"), "{seen}");
    assert_eq!(seen["too_long"]["status"], 400, "{seen}");
    assert_eq!(seen["too_long"]["type"], "exceed_context_size_error");
}

#[test]
fn a_worker_killed_between_requests_is_not_noticed() {
    let mut daemon = ready();
    let request = chat_request("Say hello.", 16, &json!({}));
    let before = whole_answer(&daemon, &request);
    let worker = daemon.wait_worker(None);
    signal_to(worker.pid, Signal::SIGKILL);
    assert_eq!(whole_answer(&daemon, &request), before, "{}", daemon.process.said());
    assert_ne!(daemon.wait_worker(Some(worker)), worker);
}

#[test]
fn an_answer_goes_on_when_its_worker_is_killed() {
    let mut daemon = ready();
    for knobs in [json!({}), json!({"temperature": 0.8, "top_p": 0.95, "seed": 42})] {
        let request = chat_request("Tell me a long story about a ship and its master.", 64, &knobs);
        let undisturbed = whole_answer(&daemon, &request);
        assert_eq!(undisturbed.1, "length", "long enough to be disturbed");
        let worker = daemon.wait_worker(None);
        let disturbed = streamed_answer(stream(&daemon, &request), |n_pieces| {
            if n_pieces == 5 {
                signal_to(worker.pid, Signal::SIGKILL);
            }
        });
        assert_eq!(disturbed, undisturbed, "{knobs}\n{}", daemon.process.said());
        assert_ne!(daemon.wait_worker(Some(worker)), worker, "another worker wrote the rest");
    }
}

#[test]
fn two_answers_at_once_are_the_ones_that_each_would_be_alone() {
    let daemon = ready();
    let requests = ["Count to ten.", "Name three rivers of Europe."].map(|words| chat_request(words, 32, &json!({})));
    let alone = [whole_answer(&daemon, &requests[0]), whole_answer(&daemon, &requests[1])];
    let address = daemon.address;
    let together = std::thread::scope(|scope| {
        let second = scope.spawn(|| whole_answer_at(address, &requests[1]));
        [whole_answer_at(address, &requests[0]), second.join().expect("an answer")]
    });
    assert_eq!(together, alone);
}

/// Kills the daemon and waits until its worker is gone.
fn kill_daemon(daemon: &mut Daemon, worker: Known) {
    daemon.process.kill().expect("it runs");
    wait_until("the worker ends with its daemon", SOON, || !worker.is_alive());
}

#[test]
fn no_worker_outlives_a_killed_daemon() {
    let mut daemon = ready();
    let worker = daemon.wait_worker(None);
    kill_daemon(&mut daemon, worker);
}

#[test]
fn no_worker_outlives_a_daemon_killed_in_the_middle_of_an_answer() {
    let mut daemon = ready();
    let worker = daemon.wait_worker(None);
    let mut answer = stream(&daemon, &chat_request("Tell me a long story.", 512, &json!({})));
    answer.next_event().expect("the stream lives").expect("a first chunk");
    kill_daemon(&mut daemon, worker);
}

#[test]
fn no_worker_outlives_a_daemon_killed_in_the_middle_of_a_load() {
    let mut daemon = Daemon::start(&Model::SmolLm2.path());
    let worker = daemon.wait_worker(None);
    // A mapped file loads in a moment: hold the worker in it.
    signal_to(worker.pid, Signal::SIGSTOP);
    assert_eq!(http::get(daemon.address, "/readyz").status, 503, "it has not loaded yet\n{}", daemon.process.said());
    daemon.process.kill().expect("it runs");
    // The kernel's parent-death signal may have ended it already; if not, it must end as soon as it runs again.
    if worker.is_alive() {
        signal_to(worker.pid, Signal::SIGCONT);
    }
    wait_until("the worker ends with its daemon", SOON, || !worker.is_alive());
}

#[test]
fn a_signal_lets_the_running_answer_end_and_exits_with_0() {
    let mut daemon = ready();
    let worker = daemon.wait_worker(None);
    let request = chat_request("Tell me a story about a lighthouse.", 32, &json!({}));
    let undisturbed = whole_answer(&daemon, &request);
    let answer = stream(&daemon, &request);
    let pid = daemon.process.pid();
    let drained = streamed_answer(answer, |n_pieces| {
        if n_pieces == 3 {
            signal_to(pid, Signal::SIGTERM);
        }
    });
    assert_eq!(drained, undisturbed);
    assert_eq!(daemon.process.wait(SOON).code(), Some(0), "{}", daemon.process.said());
    assert!(!worker.is_alive(), "the worker ends before its daemon");
}

#[test]
fn a_second_daemon_at_the_same_address_says_so_and_leaves_nothing() {
    let daemon = ready();
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut second = Running::start(serve_command(&Model::SmolLm2.path(), daemon.address, home.path()));
    let pid = second.pid();
    assert_eq!(second.wait(SOON).code(), Some(7), "{}", second.said());
    assert!(second.stderr().contains(&daemon.address.port().to_string()), "{}", second.said());
    assert_eq!(Known::child_of(pid, "plimsoll-worker"), None);
    assert_eq!(http::get(daemon.address, "/healthz").status, 200, "the first one lives");
}
