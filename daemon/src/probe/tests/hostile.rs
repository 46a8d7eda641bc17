//! Bytes that no kernel should write: no parser panics, none takes them for figures, and each error is one short line.

use proptest::prelude::*;

use super::machine::file;
use crate::probe::source::ParseError;
use crate::probe::{cgroup, disk, meminfo, pressure, process, swap, vmstat};

/// Where a good text of a parser is.
type Good = (&'static str, &'static str);
/// A parser, and what it says, as text.
type Parse = fn(&[u8]) -> Result<String, ParseError>;

macro_rules! parser {
    ($name:expr, $parse:expr, $machine:expr, $path:expr) => {
        ($name, |bytes| $parse(bytes).map(|value| format!("{value:?}")), ($machine, $path))
    };
}

const RECORDED: &str = "recorded-6.18";

const PARSERS: [(&str, Parse, Good); 17] = [
    parser!("meminfo", meminfo::parse, RECORDED, "proc/meminfo"),
    parser!("vmstat", vmstat::parse, RECORDED, "proc/vmstat"),
    parser!("pressure", pressure::parse, RECORDED, "proc/pressure/memory"),
    parser!("swaps", swap::parse_areas, "linux-6.8-swap", "proc/swaps"),
    parser!("mm_stat", swap::parse_mm_stat, "linux-6.8-swap", "sys/block/zram0/mm_stat"),
    parser!("status", process::status::parse, RECORDED, "proc/self/status"),
    parser!("stat", process::stat::parse, RECORDED, "proc/self/stat"),
    parser!("io", process::io::parse, RECORDED, "proc/self/io"),
    parser!("smaps_rollup", process::smaps_rollup::parse, RECORDED, "proc/self/smaps_rollup"),
    parser!("membership", cgroup::parse_membership, RECORDED, "proc/self/cgroup"),
    parser!("mounts", cgroup::parse_mounts, RECORDED, "proc/self/mountinfo"),
    parser!("limit", cgroup::limit, "v1-host", "sys/fs/cgroup/memory/user/memory.limit_in_bytes"),
    parser!("usage", cgroup::usage, "v1-host", "sys/fs/cgroup/memory/user/memory.usage_in_bytes"),
    parser!("cache_v1", cgroup::cache_v1, "v1-host", "sys/fs/cgroup/memory/user/memory.stat"),
    parser!("cache_v2", cgroup::cache_v2, "v2-desktop", "sys/fs/cgroup/user.slice/memory.stat"),
    parser!("events", cgroup::events, "v2-desktop", "sys/fs/cgroup/user.slice/memory.events"),
    parser!("rotational", disk::device::parse_flag, "", ""),
];

fn good((machine, path): Good) -> Vec<u8> {
    if machine.is_empty() { b"1\n".to_vec() } else { file(machine, path) }
}

/// Parses, and holds an error to its form.
fn parse(name: &str, parse: Parse, bytes: &[u8]) -> Result<String, ParseError> {
    let outcome = parse(bytes);
    if let Err(e) = &outcome {
        let words = e.to_string();
        let is_clear = !words.is_empty() && words.len() < 1000 && !words.contains(char::is_control);
        assert!(is_clear, "{name} says {words:?}");
    }
    outcome
}

/// The good text with its numbers replaced.
fn with_numbers(good: &str, replacement: &str) -> String {
    let mut text = String::new();
    let mut is_in_number = false;
    for c in good.chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !is_in_number {
            text.push_str(replacement);
        }
        is_in_number = c.is_ascii_digit();
    }
    text
}

#[test]
fn the_good_texts_are_understood() {
    for (name, parser, source) in PARSERS {
        assert!(parse(name, parser, &good(source)).is_ok(), "{name}");
    }
}

#[test]
fn no_hostile_text_panics_or_is_taken_for_figures() {
    for (name, parser, source) in PARSERS {
        let bytes = good(source);
        let text = String::from_utf8(bytes.clone()).unwrap();
        for end in (0..bytes.len()).step_by(3) {
            let _ = parse(name, parser, &bytes[..end]); // a cut number is a number: only that nothing panics
        }
        for number in ["-5", "18446744073709551616", "99999999999999999999999999", "1e9", "0x10", "NaN", "½", ""] {
            let outcome = parse(name, parser, with_numbers(&text, number).as_bytes());
            // Both say which groups there are, and hold no figures. A group may be called as it likes.
            let is_only_names = ["mounts", "membership"].contains(&name);
            // Its names hold figures (`avg10`, `Pss_…`), so that they are other names then: of optional things that is none.
            let is_none = outcome.as_deref().is_ok_and(|said| !said.contains(|c: char| c.is_ascii_digit()));
            assert!(outcome.is_err() || is_only_names || is_none, "{name} with {number:?}: {outcome:?}");
        }
        let _ = parse(name, parser, text.replace('\n', " ").as_bytes());
        let _ = parse(name, parser, text.replace('\n', "\r\n").as_bytes());
        for junk in [&b"\0"[..], b"\xff\xfe", b"\xc3", b"\n\n\n", b":", b" ", b"(", b")", "é:".as_bytes()] {
            let _ = parse(name, parser, junk);
            let _ = parse(name, parser, &[junk, &bytes[..]].concat());
            let _ = parse(name, parser, &[&bytes[..], junk].concat());
            for at in (0..bytes.len()).step_by(61) {
                let _ = parse(name, parser, &[&bytes[..at], junk, &bytes[at..]].concat());
            }
        }
        for unit in [&b"9"[..], b"\0", b"a:b "] {
            let long = unit.repeat((10 << 20) / unit.len());
            let _ = parse(name, parser, &[&bytes[..], &long].concat());
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let check = |name: &str, bytes: &[u8], expect: &str| {
        let (_, parser, _) = PARSERS.into_iter().find(|(found, ..)| *found == name).unwrap();
        let outcome = parse(name, parser, bytes).map_err(|e| e.to_string());
        let words = outcome.expect_err(name);
        assert!(words.starts_with(expect), "{name}: {words}");
    };
    check("meminfo", b"", "has no MemTotal");
    check("meminfo", b"MemTotal: 5\n", "MemTotal is no size or count: `5`");
    check("meminfo", b"MemTotal: -5 kB\n", "MemTotal is no size or count: `-5 `");
    check("meminfo", b"MemTotal: 18014398509481984 kB\n", "MemTotal is no size or count: `18014398509481984 `");
    check("meminfo", b"MemTotal: 1 kB\nMemFree: 1\0 kB\n", "MemFree is no size or count: `1? `");
    check("vmstat", b"pswpin -1\n", "pswpin is no size or count: `-1`");
    check("vmstat", b"pswpin 18446744073709551616\n", "is not understood: ");
    check("pressure", b"some", "has no some");
    check("pressure", b"some avg10=0.00\n", "has no total");
    check("pressure", b"some avg10=nan total=1\n", "avg10 is no size or count: `nan`");
    check("pressure", b"some avg10=0.00 total=-1\n", "total is no size or count: `-1`");
    check("swaps", b"", "has no head of swap areas");
    check("swaps", b"Filename\n/a file\n", "has no size of a swap area");
    check("mm_stat", b"1 2", "has no mem_used_total");
    check("status", b"Name:\tcat\n", "is not understood: ");
    check("stat", b"", "has no name");
    check("stat", b")(", "has no majflt");
    check("stat", b"1 (a) R 1 1 1 0 -1 0 103 0 -5 0", "majflt is no size or count: `-5`");
    check("io", b"rchar: 1\n", "has no read_bytes");
    check("smaps_rollup", b"Rss: 1 kB\n", "has no Pss");
    check("membership", b"0:memory\n", "is not understood: ");
    check("mounts", b"1 2 - cgroup2\n", "is not understood: ");
    check("limit", b"maximum\n", "limit is no size or count: `maximum");
    check("usage", b"max\n", "usage is no size or count: `max");
    check("cache_v1", b"inactive_file 3\n", "has no total_inactive_file");
    check("cache_v2", b"inactive_file 3\nactive_file x\n", "active_file is no size or count: `x`");
    check("events", b"oom_kill -1\n", "oom_kill is no size or count: `-1`");
    check("rotational", b"2\n", "rotational is no size or count: `2`");
}

/// A good text with a piece replaced by anything.
fn spoilt(bytes: &[u8], at: usize, n: usize, junk: &[u8]) -> Vec<u8> {
    let start = at % (bytes.len() + 1);
    let end = (start + n).min(bytes.len());
    [&bytes[..start], junk, &bytes[end..]].concat()
}

macro_rules! never_panics {
    ($($name:ident),*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(256))]
            $(
                #[test]
                fn $name(
                    junk in prop::collection::vec(any::<u8>(), 0..200),
                    at in any::<usize>(),
                    n in 0..60_usize,
                    is_alone in any::<bool>(),
                ) {
                    let (name, parser, source) = PARSERS.into_iter().find(|(name, ..)| *name == stringify!($name)).unwrap();
                    let bytes = if is_alone { junk } else { spoilt(&good(source), at, n, &junk) };
                    let _ = parse(name, parser, &bytes);
                }
            )*
        }

        #[test]
        fn every_parser_has_its_property() {
            assert_eq!(PARSERS.map(|(name, ..)| name), [$(stringify!($name)),*]);
        }
    };
}

never_panics!(
    meminfo,
    vmstat,
    pressure,
    swaps,
    mm_stat,
    status,
    stat,
    io,
    smaps_rollup,
    membership,
    mounts,
    limit,
    usage,
    cache_v1,
    cache_v2,
    events,
    rotational
);
