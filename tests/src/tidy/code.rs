//! Calls and keywords that have one right place, or none.

use super::Offence;
use super::parsed::Parsed;

/// A sequence of tokens that is not to be written.
struct Ban {
    rule: &'static str,
    tokens: &'static [&'static str],
    /// Paths (parts of them) that it is about; empty: everywhere.
    only_in: &'static [&'static str],
    /// Paths (parts of them) where it is right.
    allowed_in: &'static [&'static str],
    /// Whether test code is free.
    tests_free: bool,
    why: &'static str,
}

impl Ban {
    const fn everywhere(rule: &'static str, tokens: &'static [&'static str], why: &'static str) -> Self {
        Self { rule, tokens, only_in: &[], allowed_in: &[], tests_free: false, why }
    }

    const fn print(tokens: &'static [&'static str]) -> Self {
        let why = "panics when nobody reads: write to a handle, return the words, or log an event";
        Self { rule: "print", tokens, only_in: &[], allowed_in: &COMMAND_LINES, tests_free: true, why }
    }

    const fn pure(tokens: &'static [&'static str]) -> Self {
        let why = "decisions do no I/O and read no clock: take the reading or `now` as an argument";
        Self { rule: "pure-core", tokens, only_in: &PURE, allowed_in: &[], tests_free: true, why }
    }

    const fn actuator(tokens: &'static [&'static str]) -> Self {
        let why = "only daemon/src/actuate starts, signals and kills: call it from there";
        Self {
            rule: "actuator",
            tokens,
            only_in: &["daemon/src/"],
            allowed_in: &["daemon/src/actuate"],
            tests_free: true,
            why,
        }
    }
}

/// Where `println!` is right. Commands write to a handle that they were given, so that a closed pipe is an error to handle.
const COMMAND_LINES: [&str; 1] = ["/examples/"];
/// The pure cores.
const PURE: [&str; 2] = ["daemon/decide/src/", "worker/src/schedule.rs"];

const UNFINISHED: &str = "unfinished: do it now, or return an error that says what is not supported";
const SWITCHED_OFF: &str = "a test that is switched off proves nothing: fix it or take it out";

const BANS: [Ban; 22] = [
    Ban::everywhere("unfinished", &["todo", "!"], UNFINISHED),
    Ban::everywhere("unfinished", &["unimplemented", "!"], UNFINISHED),
    Ban::everywhere("leftover", &["dbg", "!"], "a leftover of debugging"),
    Ban::everywhere("empty-test", &["assert", "!", "(", "true", ")"], "asserts nothing"),
    Ban::everywhere("ignored-test", &["#", "[", "ignore"], SWITCHED_OFF),
    Ban::print(&["println", "!"]),
    Ban::print(&["print", "!"]),
    Ban::print(&["eprintln", "!"]),
    Ban::print(&["eprint", "!"]),
    Ban::pure(&["Instant"]),
    Ban::pure(&["SystemTime"]),
    Ban::pure(&["std", ":", ":", "fs"]),
    Ban::pure(&["std", ":", ":", "net"]),
    Ban::pure(&["std", ":", ":", "io"]),
    Ban::pure(&["std", ":", ":", "env"]),
    Ban::pure(&["std", ":", ":", "thread"]),
    Ban::pure(&["std", ":", ":", "process"]),
    Ban::pure(&["RandomState"]),
    Ban::actuator(&["Command", ":", ":", "new"]),
    Ban::actuator(&["signal", ":", ":", "kill"]),
    Ban::actuator(&["killpg"]),
    Ban::actuator(&["pidfd_send_signal"]),
];

/// Where `unsafe` may stand outside of `kernels/`: (file, reason). An entry that has none any more is an offence.
const UNSAFE_EDGES: [(&str, &str); 3] = [
    ("daemon/src/actuate/spawn.rs", "code between fork and exec, and close_range, have no safe form"),
    ("worker/model/src/map.rs", "maps a file that others could change"),
    ("worker/src/serve/inherited.rs", "takes over a descriptor by its number"),
];
const UNSAFE_CRATE: &str = "kernels/";

pub(super) fn check(parsed: &Parsed<'_>, offences: &mut Vec<Offence>, used: &mut Vec<String>) {
    let source = parsed.source;
    let is_under = |places: &[&str]| places.iter().any(|place| source.path.contains(place));
    for ban in &BANS {
        if (!ban.only_in.is_empty() && !is_under(ban.only_in)) || is_under(ban.allowed_in) {
            continue;
        }
        for line in parsed.find(ban.tokens).filter(|line| !(ban.tests_free && parsed.is_test(*line))) {
            let words = format!("`{}`: {}", ban.tokens.concat(), ban.why);
            offences.push(Offence::new(source, line, ban.rule, words));
        }
    }
    check_unsafe(parsed, offences, used);
    let opening = source.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if !opening.starts_with("//!") {
        offences.push(Offence::new(source, 1, "opening", "a file opens with `//!`: what it is for, who calls it"));
    }
}

fn check_unsafe(parsed: &Parsed<'_>, offences: &mut Vec<Offence>, used: &mut Vec<String>) {
    let source = parsed.source;
    let is_edge = UNSAFE_EDGES.iter().any(|(file, _)| *file == source.path);
    for line in parsed.find(&["unsafe"]) {
        if is_edge {
            used.push(source.path.clone());
        } else if !source.path.starts_with(UNSAFE_CRATE) {
            let words = "`unsafe` stands in kernels and in the named edges of tests/src/tidy/code.rs only";
            offences.push(Offence::new(source, line, "unsafe", words));
        }
    }
}

/// Entries of [`UNSAFE_EDGES`] that nothing needs any more.
pub(super) fn stale(used: &[String]) -> Vec<Offence> {
    let unused = UNSAFE_EDGES.iter().filter(|(file, _)| !used.iter().any(|path| path == file));
    unused
        .map(|(file, _)| Offence {
            path: (*file).to_owned(),
            line: 0,
            rule: "stale-exception",
            words: "has no `unsafe` (any more): take it off the list in tests/src/tidy/code.rs".to_owned(),
        })
        .collect()
}
