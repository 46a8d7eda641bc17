//! Whole answers, counts, sampling values, models, health and every refusal of the API.

use serde_json::{Value, json};

use crate::daemon::Setup;
use crate::http::{get, post, send, send_raw};
use crate::model::{IM_END, IM_START, N_CTX};

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

#[test]
fn a_chat_is_answered_with_counts() {
    let mut daemon = Setup::default().ready();
    let (status, body) =
        post(daemon.address, "/v1/chat/completions", &json!({"messages": user("!say Grüße"), "seed": 7}));
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "tiny");
    let choice = &body["choices"][0];
    assert_eq!(choice["message"], json!({"role": "assistant", "content": "Grüße", "refusal": null}));
    assert_eq!((&choice["finish_reason"], &choice["index"]), (&json!("stop"), &json!(0)));
    let submit = daemon.frame("submit");
    let n_prompt = submit["prompt"].as_array().unwrap().len();
    assert_eq!(body["usage"], json!({"prompt_tokens": n_prompt, "completion_tokens": 7, "total_tokens": n_prompt + 7}));
    assert_eq!(submit["sampling"]["seed"], 7);
    assert_eq!(submit["max_tokens"], N_CTX - n_prompt, "up to the end of the context");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(body["system_fingerprint"].is_string() && body["created"].is_u64());
}

#[test]
fn the_template_s_special_tokens_are_tokens_and_a_message_s_are_text() {
    let mut daemon = Setup::default().ready();
    let messages = json!([
        {"role": "developer", "content": "be <|im_end|> brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]);
    let (status, body) = post(daemon.address, "/v1/chat/completions", &json!({ "messages": messages }));
    assert_eq!(status, 200, "{body}");
    let prompt: Vec<u32> = serde_json::from_value(daemon.frame("submit")["prompt"].clone()).unwrap();
    let mut expected = Vec::new();
    for text in ["system\nbe <|im_end|> brief", "user\none\ntwo"] {
        expected.push(IM_START);
        expected.extend(text.bytes().map(u32::from));
        expected.extend([IM_END, u32::from(b'\n')]);
    }
    expected.push(IM_START);
    expected.extend("assistant\n".bytes().map(u32::from));
    assert_eq!(prompt, expected);
}

#[test]
fn sampling_values_reach_the_worker_and_an_absent_seed_is_drawn() {
    let mut daemon = Setup::default().ready();
    let body = json!({
        "messages": user("hi"), "temperature": 0.5, "top_p": 0.25, "top_k": 3, "min_p": 0.125, "repeat_penalty": 1.5,
        "max_completion_tokens": 9, "user": "u", "store": false, "service_tier": "auto", "an_unknown_field": {},
    });
    let mut seeds = Vec::new();
    for _ in 0..2 {
        assert_eq!(post(daemon.address, "/v1/chat/completions", &body).0, 200);
        let submit = daemon.frame("submit");
        let sampling = &submit["sampling"];
        assert_eq!((&sampling["temperature"], &sampling["top_p"]), (&json!(0.5), &json!(0.25)));
        assert_eq!((&sampling["top_k"], &sampling["min_p"]), (&json!(3), &json!(0.125)));
        assert_eq!((&sampling["repeat_penalty"], &submit["max_tokens"]), (&json!(1.5), &json!(9)));
        seeds.push(sampling["seed"].as_u64().unwrap());
    }
    assert_ne!(seeds[0], seeds[1]);
}

#[test]
fn the_answer_ends_at_max_tokens_and_before_a_stop_string() {
    let daemon = Setup::default().ready();
    let cases = [
        (json!({"messages": user("!flood"), "max_tokens": 3}), "aaa", "length", 3),
        (json!({"messages": user("!say one STOP two"), "stop": "STOP"}), "one ", "stop", 8),
        (json!({"messages": user("!say one STOP two"), "stop": ["zzz", " two"]}), "one STOP", "stop", 12),
        (json!({"messages": user("!say one STO"), "stop": ["STOP"]}), "one STO", "stop", 7),
        (json!({"messages": user("!ids 104,226,130")}), "h\u{fffd}", "stop", 3),
        (json!({"messages": user("!ids 104,256,105")}), "hi", "stop", 3),
    ];
    for (body, text, finish, n_completion) in cases {
        let (status, answer) = post(daemon.address, "/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["choices"][0]["message"]["content"], text, "{body}");
        assert_eq!(answer["choices"][0]["finish_reason"], finish, "{body}");
        assert_eq!(answer["usage"]["completion_tokens"], n_completion, "{body}");
    }
}

#[test]
fn a_plain_prompt_is_text_or_ids_and_its_special_tokens_are_parsed() {
    let mut daemon = Setup::default().ready();
    let say = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let cases = [
        (json!("!say x"), say("!say x")),
        (json!(["!say x"]), say("!say x")),
        (json!(say("!say x")), say("!say x")),
        (json!([say("!say x")]), say("!say x")),
        (json!("<|im_start|>\n!say x"), [vec![IM_START], say("\n!say x")].concat()),
    ];
    for (prompt, ids) in cases {
        let (status, body) = post(daemon.address, "/v1/completions", &json!({ "prompt": prompt }));
        assert_eq!(status, 200, "{body}");
        assert_eq!((&body["object"], &body["choices"][0]["text"]), (&json!("text_completion"), &json!("x")));
        assert_eq!(daemon.frame("submit")["prompt"], json!(ids));
    }
}

#[test]
fn models_and_health_say_what_is() {
    let daemon = Setup::default().ready();
    let (status, models) = get(daemon.address, "/v1/models");
    assert_eq!(status, 200);
    let model = &models["data"][0];
    assert_eq!((&model["id"], &model["max_model_len"]), (&json!("tiny"), &json!(N_CTX)));
    assert_eq!((&model["context_length"], &model["meta"]["n_vocab"]), (&json!(N_CTX), &json!(259)));
    assert_eq!(get(daemon.address, "/v1/models/tiny").1["id"], "tiny");
    assert_eq!(get(daemon.address, "/v1/models/other").0, 404);
    assert_eq!(get(daemon.address, "/healthz").0, 200);
    assert_eq!(get(daemon.address, "/readyz"), (200, json!({"ready": true, "state": "ready", "reason": "ready"})));
}

#[test]
fn every_refusal_has_the_api_s_shape() {
    let daemon = Setup::default().ready();
    let chat = "/v1/chat/completions";
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("POST", chat, "{", 400, "not valid JSON"),
        ("POST", chat, "[]", 400, "JSON object"),
        ("POST", chat, "{}", 400, "messages"),
        ("POST", chat, r#"{"messages": [{"role": "user", "content": "x"}], "n": 2}"#, 400, "n is not supported"),
        ("POST", chat, r#"{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}"#, 400, "tools"),
        ("POST", chat, r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#, 400, "image_url"),
        ("POST", "/v1/completions", r#"{"prompt": ["a", "b"]}"#, 400, "prompt"),
        ("POST", "/v1/completions", r#"{"prompt": [259]}"#, 400, "259"),
        ("POST", "/v1/completions", r#"{"prompt": ""}"#, 400, "empty"),
        ("GET", chat, "", 405, "GET"),
        ("GET", "/nothing", "", 404, "/nothing"),
        ("GET", "/v1/models/%ff", "", 400, "name can't be read"),
        ("DELETE", "/v1/models", "", 405, "DELETE"),
    ];
    for (method, path, body, status, words) in cases {
        let (got, json) = send(daemon.address, method, path, body.as_bytes()).json();
        assert_eq!(got, *status, "{method} {path} {body}: {json}");
        let error = json["error"].as_object().unwrap();
        assert!(error["message"].as_str().unwrap().contains(words), "{method} {path} {body}: {json}");
        for field in ["type", "param", "code"] {
            assert!(error.contains_key(field), "{field} is missing: {json}");
        }
    }
}

#[test]
fn an_over_long_prompt_is_json_with_both_counts_also_for_a_stream() {
    let daemon = Setup::default().ready();
    for stream in [false, true] {
        let body = json!({"prompt": "x".repeat(N_CTX), "stream": stream});
        let (status, json) = post(daemon.address, "/v1/completions", &body);
        assert_eq!(status, 400, "{json}");
        let error = &json["error"];
        assert_eq!(error["type"], "exceed_context_size_error");
        assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(N_CTX), &json!(N_CTX)));
        let words = json.to_string();
        assert!(
            words.contains("exceeds the available context size") && words.contains("context_length_exceeded"),
            "{words}"
        );
    }
}

#[test]
fn bodies_and_heads_are_bounded() {
    let daemon = Setup::default().ready();
    let said =
        send_raw(daemon.address, b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\n\r\n");
    let (status, json) = said.json();
    assert_eq!(status, 413, "{json}");
    let mut chunked = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..9 {
        chunked.extend(b"100000\r\n");
        chunked.extend(vec![b' '; 1 << 20]);
        chunked.extend(b"\r\n");
    }
    assert_eq!(send_raw(daemon.address, &chunked).json().0, 413);
    let head = format!("GET /healthz HTTP/1.1\r\nHost: t\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(send_raw(daemon.address, head.as_bytes()).status, 431);
    assert_eq!(get(daemon.address, "/healthz").0, 200);
}

#[test]
fn what_the_engine_fails_is_told_with_the_right_status() {
    let daemon = Setup::default().ready();
    for (class, status) in [("bad_request", 400), ("engine", 500), ("out_of_memory", 500)] {
        for stream in [false, true] {
            let body = json!({"messages": user(&format!("!fail {class}")), "stream": stream});
            let (got, json) = post(daemon.address, "/v1/chat/completions", &body);
            assert_eq!((got, &json["error"]["message"]), (status, &json!("it was told to fail")));
        }
    }
    let (status, json) =
        post(daemon.address, "/v1/chat/completions", &json!({"messages": user("!too-many"), "max_tokens": 4}));
    assert_eq!(status, 500, "{json}");
}
