//! What is read, what is refused, and in which words.

use plimsoll_config::config::{Config, KvType, LogFormat, LogLevel, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis, Tokens};
use proptest::prelude::*;

/// The problems of a text, as the user sees them.
fn problems(text: &str) -> String {
    match Config::from_yaml(text, "x.yaml") {
        Ok(config) => panic!("accepted: {text:?} as {config:?}"),
        Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
    }
}

#[test]
fn an_empty_file_is_the_default() {
    for text in ["", "\n", "# only a comment\n", "---\n", "{}", "model:\nworker:\n  # threads: 4\n"] {
        assert_eq!(Config::from_yaml(text, "x.yaml"), Ok(Config::default()), "{text:?}");
    }
}

#[test]
fn the_default_is_what_the_documents_say() {
    let config = Config::default();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.kv.kv_type, KvType::F16);
    assert_eq!(config.context.tokens, Setting::Auto);
    assert_eq!(config.host.line, Setting::Auto);
    assert_eq!(config.worker.threads, Setting::Auto);
    assert_eq!(config.stop.drain_deadline, Millis::from_secs(30));
}

#[test]
fn every_field_is_read() {
    let text = r#"
model: { path: "/m/a.gguf" }
server: { listen: "[::1]:0" }
worker: { path: /bin/w, threads: 3, max_sessions: 4 }
context: { tokens: 4096 }
kv: { type: q4_0 }
queue: { max_waiting: 0 }
stop: { drain_deadline: 1.5s }
host: { line: 14.5 GiB }
log: { format: json, level: debug }
"#;
    let config = Config::from_yaml(text, "x.yaml").expect("all of it is right");
    assert_eq!(config.model.path, Some("/m/a.gguf".into()));
    assert_eq!(config.server.listen.to_string(), "[::1]:0");
    assert_eq!(config.worker.path, Some("/bin/w".into()));
    assert_eq!(config.worker.threads, Setting::Exactly(3));
    assert_eq!(config.worker.max_sessions, 4);
    assert_eq!(config.context.tokens, Setting::Exactly(Tokens(4096)));
    assert_eq!(config.kv.kv_type, KvType::Q4_0);
    assert_eq!(config.queue.max_waiting, 0);
    assert_eq!(config.stop.drain_deadline, Millis(1500));
    assert_eq!(config.host.line, Setting::Exactly(Bytes(14 * (1 << 30) + (1 << 29))));
    assert_eq!((config.log.format, config.log.level), (LogFormat::Json, LogLevel::Debug));
}

#[test]
fn auto_can_be_written() {
    let text = "worker: {threads: auto}\ncontext: {tokens: auto}\nhost: {line: auto}\n";
    assert_eq!(Config::from_yaml(text, "x.yaml"), Ok(Config::default()));
}

#[test]
fn all_problems_come_at_once_in_order_of_place() {
    let text = "\
sever:
  listen: 127.0.0.1:8080
worker:
  thread: 8       # one too few
  max_sessions: 0
  max_sessions: 4
  listen: 1
host:
  line: 32
kv: {type: q5_1}
";
    let expect = "\
x.yaml:1:1: sever: there is no such section (did you mean `server`?); sections are model, server, worker, context, kv, \
queue, stop, host, log
  1 | sever:
    | ^^^^^
x.yaml:4:3: worker.thread: there is no such field (did you mean `threads`?); `worker` has path, threads, max_sessions
  4 |   thread: 8       # one too few
    |   ^^^^^^
x.yaml:5:17: worker.max_sessions: 0 is out of range: write 1 to 64 sessions
  5 |   max_sessions: 0
    |                 ^
x.yaml:6:3: worker.max_sessions: stands here a second time, first on line 5: keep one of them
  6 |   max_sessions: 4
    |   ^^^^^^^^^^^^
x.yaml:7:3: worker.listen: there is no such field (did you mean `server.listen`?); `worker` has path, threads, max_sessions
  7 |   listen: 1
    |   ^^^^^^
x.yaml:9:9: host.line: `32` has no unit: write 32MiB or 32GiB, whichever is meant; or write auto
  9 |   line: 32
    |         ^^
x.yaml:10:12: kv.type: `q5_1` is not known here: write one of f16, q8_0, q4_0
  10 | kv: {type: q5_1}
     |            ^^^^^
";
    assert_eq!(problems(text), expect);
}

#[test]
fn each_wrong_value_says_what_to_write() {
    let check = |text: &str, expect: &str| {
        let found = problems(text);
        assert!(found.contains(expect), "{text:?}\n gave {found}\n not {expect}");
        assert_eq!(found.matches("x.yaml:").count(), 1, "one problem in {text:?}: {found}");
    };
    check("server: {listen: 0.0.0.0:8080}", "0.0.0.0:8080 can be reached from other machines");
    check("server: {listen: 192.168.1.5:80}", "listen on 127.0.0.1:80 and put a reverse proxy in front");
    check("server: {listen: 8080}", "expected an address with a port such as 127.0.0.1:8080, found the number 8080");
    check("server: {listen: localhost}", "`localhost` is not an address with a port");
    check("server: {listen: }", "the value is missing");
    check("server: {listen: ~}", "the value is missing");
    check("model: {path: ~/models/a.gguf}", "write the whole path");
    check("model: {path: $HOME/a.gguf}", "write the whole path");
    check("model: {path: ''}", "expected a path in quotes");
    check("model: {path: 5}", "found the number 5");
    check("model: {path: [a]}", "found a list");
    check("model: {path: {a: 1}}", "found a group of fields");
    check("model: {path: \"a\\0b\"}", "control characters");
    check("worker: {threads: 1.5}", "expected a whole number, 1 to 512 threads, found the number 1.5; or write auto");
    check("worker: {threads: .inf}", "expected a whole number, 1 to 512 threads");
    check("worker: {threads: many}", "found `many`; or write auto");
    check("worker: {threads: 99999999999999999999}", "1 to 512 threads");
    check("worker: {threads: -1}", "-1 is out of range");
    check("worker: {threads: true}", "found the truth value `true`");
    check("context: {tokens: 10}", "10 is out of range: write 64 to 2,097,152 tokens; or write auto");
    check("host: {line: 32GB}", "`GB` is not a unit of size here: sizes are binary, write GiB");
    check("host: {line: 1.5}", "`1.5` has no unit");
    check("host: {line: [1]}", "is not a size");
    check("host: {line: 1MiB}", "too little for any model");
    check("stop: {drain_deadline: 30}", "`30` has no unit: write 30s or 30min");
    check("stop: {drain_deadline: 2h}", "longer than anybody waits: write at most 1 h");
    check("log: {level: loud}", "write one of error, warn, info, debug");
    check("log: {level: no}", "x.yaml:1:14: log.level: ");
    check("queue: 5", "queue: expected fields, one on each line (max_waiting), found the number 5");
    check("- a\n- b\n", "expected fields, one on each line (model, server,");
    check("just text", "found `just text`");
    check("1: {}", "expected the name of a field, found the number 1");
    check("experts: {resident_budget: 32GiB}", "there is no such section");
    check("server.listen: 127.0.0.1:1", "(write `listen` on a line of its own, indented under `server:`)");
    check("threads: 2", "there is no such section (did you mean `worker.threads`?); sections are model");
    check("gpu.layers: 2", "there is no such section; sections are model");
    check("model: &m {path: /a}\nqueue: *m\n", "x.yaml:2:8: queue.path");
    check("<<: {model: {path: /a}}", "there is no such section");
}

#[test]
fn a_syntax_error_has_its_place() {
    let check = |text: &str, expect: &str| {
        let found = problems(text);
        assert!(found.starts_with(expect), "{text:?}\n gave {found}");
    };
    check("worker: [\n", "x.yaml:1:9: not YAML: unclosed bracket '['\n  1 | worker: [\n    |         ^");
    check("a: b\n c: d\n", "x.yaml:2:3: not YAML: ");
    check("a: \"x", "x.yaml:1:4: not YAML: unclosed quote");
    check("a: *b", "x.yaml:1:4: not YAML: ");
    check("model: {}\n---\nmodel: {}\n", "x.yaml:3:1: not YAML: only single YAML document");
}

#[test]
fn a_file_with_endless_problems_is_reported_on_one_page() {
    let text: String = (0..200).map(|i| format!("field{i}: 1\n")).collect();
    let problems = Config::from_yaml(&text, "x.yaml").expect_err("none of them exists");
    assert_eq!(problems.len(), limits::MAX_CONFIG_PROBLEMS + 1);
    assert!(problems.last().is_some_and(|last| last.sentence == "and 150 more problems after this one"));
}

#[test]
fn a_file_that_is_too_long_is_not_parsed() {
    let text = " ".repeat(limits::MAX_CONFIG_BYTES + 1);
    assert!(problems(&text).contains("longer than 256 KiB"));
}

#[test]
fn hostile_texts_end_in_problems() {
    let nested = "[".repeat(100_000);
    let deep_map: String = (0..2000).map(|i| format!("{}a:\n", " ".repeat(i % 400))).collect();
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n";
    let long_line = format!("{}: 1", "k".repeat(10_000));
    for text in
        [nested.as_str(), &deep_map, bomb, &long_line, "\u{0}", "a\u{7f}: 1", "é: 1", "?", ":", "%YAML 9.9\n---\na"]
    {
        let found = problems(text);
        assert!(found.lines().all(|line| line.chars().count() < 12_000), "{} long", found.len());
    }
}

#[test]
fn a_long_line_is_cropped_around_its_place() {
    let text = format!("worker: {{path: \"/{}\", thread: 1}}", "p".repeat(300));
    let found = problems(&text);
    let lines: Vec<&str> = found.lines().collect();
    assert!(lines[1].chars().count() < 120 && lines[1].contains("thread"), "{found}");
    let caret = lines[2].find('^').expect("a mark");
    assert_eq!(&lines[1][caret..caret + 6], "thread");
}

#[test]
fn the_examples_are_accepted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is part of the crate") {
        let path = entry.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        if let Err(problems) = Config::from_yaml(&text, &name) {
            panic!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        assert!(text.starts_with("# "), "{name} opens with what it is for");
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["12g-workstation.yaml", "24g-dense.yaml", "8g-box.yaml", "benchmark.yaml", "cpu-only.yaml"]);
}

/// A text with every field, to be damaged.
const WHOLE: &str = "model: { path: \"/m/a.gguf\" }\nserver:\n  listen: 127.0.0.1:8080\nworker:\n  threads: 3 # all\n  \
    max_sessions: 4\ncontext: {tokens: auto}\nkv:\n  type: q8_0\nhost: {line: 14 GiB}\nstop: {drain_deadline: 5s}\n";

/// Whatever the text: a configuration, or problems that have a place in it.
fn check_any(text: &str) -> Result<(), TestCaseError> {
    if let Err(problems) = Config::from_yaml(text, "x.yaml") {
        prop_assert!(!problems.is_empty() && problems.len() <= limits::MAX_CONFIG_PROBLEMS + 1);
        for problem in problems {
            prop_assert!(problem.line >= 1 && problem.column >= 1, "{}", problem);
            prop_assert!(problem.line as usize <= text.lines().count() + 1, "{}", problem);
            prop_assert!(!problem.sentence.is_empty());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_problems(text in "[a-z0-9:{}\\[\\]\"'#&*!|>%@~ ,\\-\\n\\t.\\PC]{0,120}") {
        check_any(&text)?;
    }

    #[test]
    fn a_damaged_text_is_a_configuration_or_problems(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<char>(), 0..3u8), 1..6),
    ) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for (index, new, kind) in cuts {
            let at = index.index(text.len());
            match kind {
                0 => text[at] = new,
                1 => text.insert(at, new),
                _ => { text.remove(at); }
            }
        }
        check_any(&text.into_iter().collect::<String>())?;
    }
}

#[test]
fn the_whole_text_is_right() {
    assert!(Config::from_yaml(WHOLE, "x.yaml").is_ok());
}
