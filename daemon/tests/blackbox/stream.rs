//! Streams: the order of the chunks, stop strings, comments while waiting, and what a client that leaves or stands still does.

use std::io::Write;
use std::net::TcpStream;

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

use crate::daemon::Setup;
use crate::http::{Response, post, send};

fn chat(text: &str, more: &Value) -> Vec<u8> {
    let mut body = json!({"messages": [{"role": "user", "content": text}], "stream": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

/// The chunks of a stream as JSON; the last event must be `[DONE]`.
fn chunks(response: Response) -> Vec<Value> {
    assert_eq!(response.status, 200);
    assert!(response.header("content-type").unwrap().starts_with("text/event-stream"));
    let mut events = response.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn text_of(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

#[test]
fn chunks_come_in_the_order_that_clients_expect() {
    let daemon = Setup::default().ready();
    let body = chat("!say Grüße", &json!({"stream_options": {"include_usage": true}}));
    let chunks = chunks(send(daemon.address, "POST", "/v1/chat/completions", &body));
    let (first, last, usage) = (&chunks[0], &chunks[chunks.len() - 2], &chunks[chunks.len() - 1]);
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(text_of(&chunks), "Grüße");
    assert_eq!((&last["choices"][0]["finish_reason"], &last["choices"][0]["delta"]), (&json!("stop"), &json!({})));
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(7)));
    assert!(chunks[..chunks.len() - 1].iter().all(|chunk| chunk["usage"].is_null()));
    assert!(chunks[..chunks.len() - 2].iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()));
    assert!(chunks.iter().all(|chunk| chunk["id"] == first["id"] && chunk["object"] == "chat.completion.chunk"));
}

#[test]
fn without_the_option_there_is_no_usage() {
    let daemon = Setup::default().ready();
    let chunks = chunks(send(daemon.address, "POST", "/v1/chat/completions", &chat("!say x", &json!({}))));
    assert!(
        chunks.iter().all(|chunk| chunk.get("usage").is_none() && !chunk["choices"].as_array().unwrap().is_empty())
    );
}

#[test]
fn no_part_of_a_stop_string_is_shown_whatever_the_tokens() {
    let daemon = Setup::default().ready();
    for (said, stop, shown, finish) in [
        ("!slow ab<|x|>cd", json!("<|x|>"), "ab", "stop"),
        ("!slow ab<|x", json!("<|x|>"), "ab<|x", "stop"),
        ("!slow aab", json!(["ab", "zz"]), "a", "stop"),
    ] {
        let body = chat(said, &json!({ "stop": stop }));
        let chunks = chunks(send(daemon.address, "POST", "/v1/chat/completions", &body));
        assert_eq!(text_of(&chunks), shown, "{said}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], finish, "{said}");
    }
}

#[test]
fn a_stop_string_ends_the_work_too() {
    let mut daemon = Setup::default().ready();
    let body = chat("!slow one STOP and a long tail that nobody will read", &json!({"stop": ["STOP"]}));
    let chunks = chunks(send(daemon.address, "POST", "/v1/chat/completions", &body));
    assert_eq!(text_of(&chunks), "one ");
    let submit = daemon.frame("submit");
    assert_eq!(daemon.frame("cancel")["request"], submit["request"]);
}

#[test]
fn plain_completions_stream_text_chunks() {
    let daemon = Setup::default().ready();
    let body = json!({"prompt": "!say xyz", "stream": true}).to_string();
    let chunks = chunks(send(daemon.address, "POST", "/v1/completions", body.as_bytes()));
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, "xyz");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_waiting_stream_gets_comments() {
    let daemon = Setup::default().ready();
    let mut response = send(daemon.address, "POST", "/v1/chat/completions", &chat("!wait", &json!({})));
    assert!(response.chunk().unwrap().unwrap().contains("\"role\":\"assistant\""));
    assert_eq!(response.chunk().unwrap().unwrap(), ": ping\n\n");
}

#[test]
fn a_client_that_leaves_cancels_its_request_at_once() {
    let mut daemon = Setup::default().ready();
    for stream in [true, false] {
        let body = json!({"messages": [{"role": "user", "content": "!wait"}], "stream": stream}).to_string();
        let mut client = TcpStream::connect(daemon.address).unwrap();
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
        client.write_all((head + &body).as_bytes()).unwrap();
        let submit = daemon.frame("submit");
        drop(client);
        assert_eq!(daemon.frame("cancel")["request"], submit["request"], "stream: {stream}");
    }
    let (status, _) = post(daemon.address, "/v1/completions", &json!({"prompt": "!say still here"}));
    assert_eq!(status, 200);
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let mut daemon = Setup::with("context:\n  tokens: 400000\n").ready();
    let body = chat("!flood", &json!({"max_tokens": 200_000}));
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut idle = TcpStream::connect(daemon.address).unwrap();
    setsockopt(&idle, sockopt::RcvBuf, &4096).unwrap(); // the kernel is not to read it all for the client
    idle.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    daemon.frame("submit");
    // The engine's other session answers, and the flood itself comes to its end in the journal.
    let (status, answer) = post(daemon.address, "/v1/completions", &json!({"prompt": "!say free"}));
    assert_eq!((status, &answer["choices"][0]["text"]), (200, &json!("free")));
    daemon.log.wait_for("n_generated=200000");
}
