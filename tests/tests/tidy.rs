//! The repository keeps its own style rules, and each rule catches what it is for.

use plimsoll_tests::places::repository_root;
use plimsoll_tests::tidy::{self, Offence, sources};
use std::process::Command;

fn listed(offences: &[Offence]) -> String {
    offences.iter().map(|offence| format!("\n  {offence}")).collect()
}

#[test]
fn the_repository_is_tidy() {
    let files = sources::read_repository(&repository_root()).expect("the checkout is readable");
    assert!(files.iter().any(|file| file.path == "tests/tests/tidy.rs"), "the walk finds this file");
    let offences = tidy::check(&files, true);
    assert!(offences.is_empty(), "{} offences:{}", offences.len(), listed(&offences));
}

#[test]
fn crates_depend_in_one_direction() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(repository_root())
        .output()
        .expect("cargo runs");
    let metadata = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let offences = tidy::check_dependencies(&metadata).expect("cargo writes JSON");
    assert!(offences.is_empty(), "{} offences:{}", offences.len(), listed(&offences));
}

/// The rules that one made-up file breaks, in order of lines.
fn rules_broken(path: &str, text: &str) -> Vec<&'static str> {
    let mut rules: Vec<&str> =
        tidy::check(&[sources::Source::new(path, text)], false).into_iter().map(|offence| offence.rule).collect();
    rules.dedup();
    rules
}

fn check(path: &str, text: &str, expect: &[&str]) {
    assert_eq!(rules_broken(path, text), expect, "{path}:\n{text}");
}

#[test]
fn planted_code_is_caught() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("config/src/a.rs", "//! A.\nfn f() {}\n", &[]),
        ("config/src/a.rs", "fn f() {}\n", &["opening"]),
        ("config/src/a.rs", "//! A.\nfn f() { todo!() }\n", &["unfinished"]),
        ("config/src/a.rs", "//! A.\nfn f() { unimplemented!(\"later\") }\n", &["unfinished"]),
        ("config/src/a.rs", "//! A.\nfn f() { dbg!(1); }\n", &["leftover"]),
        ("config/src/a.rs", "//! A.\nfn f() -> &'static str { \"todo!()\" }\n", &[]),
        ("config/src/a.rs", "//! A.\nfn f() { println!(\"x\"); }\n", &["print"]),
        ("config/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests { fn f() { println!(\"x\"); } }\n", &[]),
        ("config/src/a.rs", "//! A.\n#[cfg(not(a))]\nmod m { fn f() { print!(\"x\"); } }\n", &["print"]),
        ("kernels/examples/speed.rs", "//! A.\nfn f() { println!(\"x\"); }\n", &[]),
        ("config/tests/a.rs", "//! A.\n#[test]\n#[ignore]\nfn f() {}\n", &["ignored-test"]),
        ("config/tests/a.rs", "//! A.\n#[test]\nfn f() { assert!(true); }\n", &["empty-test"]),
        ("config/src/a.rs", "//! A.\nfn f() { unsafe { g() } }\n", &["unsafe"]),
        ("kernels/src/a.rs", "//! A.\nfn f() { unsafe { g() } }\n", &[]),
        ("config/src/a.rs", "//! A.\n// unsafe is a word in a comment.\n", &[]),
        ("config/src/a.rs", "//! A.\nfn f( {}\n", &["parse"]),
        ("daemon/decide/src/a.rs", "//! A.\nfn f() -> Instant { Instant::now() }\n", &["pure-core"]),
        ("daemon/decide/src/a.rs", "//! A.\nuse std::fs;\n", &["pure-core"]),
        ("daemon/src/a.rs", "//! A.\nuse std::fs;\n", &[]),
        ("worker/src/schedule.rs", "//! A.\nuse std::thread;\n", &["pure-core"]),
        ("daemon/src/http.rs", "//! A.\nfn f() { Command::new(\"x\"); }\n", &["actuator"]),
        ("daemon/src/actuate/spawn.rs", "//! A.\nfn f() { Command::new(\"x\"); }\n", &[]),
    ];
    for (path, text, expect) in cases {
        check(path, text, expect);
    }
}

#[test]
fn planted_catch_all_arms_are_caught() {
    let inside = |arms: &str| format!("//! A.\nfn f(x: X) -> u8 {{\n    match x {{ {arms} }}\n}}\n");
    let cases: &[(&str, &[&str])] = &[
        ("X::A => 1, X::B => 2", &[]),
        ("X::A => 1, _ => 2", &["wildcard-arm"]),
        ("X::A => 1, other => g(other)", &["wildcard-arm"]),
        ("X::A => 1, x if x.is_big() => 2, X::B => 3", &[]),
        ("1 => 1, _ => 2", &[]),
        ("0..=9 => 1, n => n", &[]),
        ("Some(\"a\") => 1, _ => 2", &[]),
        ("Bytes::ZERO => 1, more => g(more)", &[]),
        ("n if n < 2 => 1, _ => 2", &[]),
        ("(X::Alpha, _) => 1, _ => 2", &["wildcard-arm"]),
        ("X::Alpha { .. } if g() => 1, _ => 2", &["wildcard-arm"]),
        ("Some(X::Alpha) | None => 1, Some(_) => 2", &[]),
    ];
    for (arms, expect) in cases {
        check("daemon/decide/src/a.rs", &inside(arms), expect);
        check("daemon/src/a.rs", &inside(arms), &[]);
    }
}

#[test]
fn planted_words_are_caught_in_any_kind_of_file() {
    let cases = [
        (["FIX", "ME later"], "leftover"),
        (["XX", "X"], "leftover"),
        (["a HA", "CK"], "leftover"),
        (["TO", "DO"], "leftover"),
        (["cd /wo", "rk/main"], "machine-path"),
        (["see /tmp/", "wt"], "machine-path"),
        (["get https://pypi", ".org/x"], "registry-host"),
    ];
    for (halves, rule) in cases {
        for path in ["README.md", "Makefile", "tests/scripts/a.py", "config/examples/a.yaml"] {
            check(path, &halves.concat(), &[rule]);
        }
    }
    check("README.md", &["A file name made of XX", "XXXX"].concat(), &[]);
}

#[test]
fn planted_lengths_are_caught() {
    let lines = |n: usize| "    g();\n".repeat(n);
    let function = |n: usize| format!("//! A.\nfn f() {{\n{}}}\n", lines(n - 2));
    check("config/src/a.rs", &function(70), &[]);
    check("config/src/a.rs", &function(71), &["function-length"]);
    check("config/tests/a.rs", &function(71), &[]);
    check("tests/src/a.rs", &function(71), &["function-length"]);
    let method = format!("//! A.\nimpl A {{\n/// Doc.\nfn f() {{\n{}}}\n}}\n", lines(80));
    check("config/src/a.rs", &method, &["function-length"]);
    let tested = format!("//! A.\n#[cfg(test)]\nmod tests {{\nfn f() {{\n{}}}\n}}\n", lines(80));
    check("config/src/a.rs", &tested, &[]);

    check("config/src/a.rs", &format!("//! A.\n{}", "\n".repeat(499)), &[]);
    check("config/src/a.rs", &format!("//! A.\n{}", "\n".repeat(500)), &["file-length"]);
    let beside = format!("//! A.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(400), "\n".repeat(400));
    check("config/src/a.rs", &beside, &[]);
    let too_many_tests = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(500));
    check("config/src/a.rs", &too_many_tests, &["file-length"]);
    check("tests/scripts/a.py", &"pass\n".repeat(501), &["file-length"]);
    check("README.md", &"word\n".repeat(501), &[]);
}

#[test]
fn planted_manifests_are_caught() {
    check("x/Cargo.toml", "[package]\nname = \"x\"\n", &["lints"]);
    check("x/Cargo.toml", "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n", &[]);
    check("Cargo.toml", "[workspace]\nmembers = []\n", &[]);
}

#[test]
fn planted_dependencies_are_caught() {
    let cases = [
        ("plimsoll-decide", "plimsoll-config", "null", 0),
        ("plimsoll-decide", "tokio", "null", 1),
        ("plimsoll-decide", "proptest", "\"dev\"", 0),
        ("plimsoll-decide", "cc", "\"build\"", 1),
        ("plimsoll-config", "plimsoll-decide", "null", 1),
        ("plimsoll-kernels", "plimsoll-config", "null", 1),
        ("plimsoll-worker", "tokio", "null", 1),
        ("plimsoll", "tokio", "null", 0),
        ("plimsoll", "plimsoll-worker", "null", 1),
        ("plimsoll-new", "serde", "null", 1),
    ];
    for (name, dependency, kind, n_offences) in cases {
        let member = |name: &str| format!(r#"{{"name": "{name}", "dependencies": []}}"#);
        let others: Vec<String> = ["plimsoll-config", "plimsoll-decide", "plimsoll-worker"]
            .into_iter()
            .filter(|other| *other != name)
            .map(member)
            .collect();
        let metadata = format!(
            r#"{{"packages": [{{"name": "{name}", "dependencies": [{{"name": "{dependency}", "kind": {kind}}}]}}, {}]}}"#,
            others.join(", ")
        );
        let offences = tidy::check_dependencies(&metadata).expect("valid JSON");
        assert_eq!(offences.len(), n_offences, "{name} on {dependency} ({kind}): {}", listed(&offences));
    }
}
