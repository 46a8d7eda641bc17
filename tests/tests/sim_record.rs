//! A recorded day replays to the same decisions, and to nothing else.

use plimsoll_tests::sim::day::Day;
use plimsoll_tests::sim::ours::Ours;
use plimsoll_tests::sim::record::{Log, Recorder, ReplayError, replay};
use plimsoll_tests::sim::run::Run;
use plimsoll_tests::sim::world::World;
use serde_json::Value;
use std::cell::RefCell;
use std::io::{self, Write};
use std::process::Command;

const SEED: u64 = 77;

/// The log of a few hours, as lines.
fn recorded(world: &str, hours: u32) -> Vec<String> {
    let day = Day::new(&World::load(world).expect("a default world"), SEED, hours);
    let facts = day.world.facts();
    let log = RefCell::new(Log::new(Vec::new(), &facts).expect("memory"));
    let score = Run::new(&day, Box::new(Recorder::new(Box::new(Ours::new(&facts)), &log)), false).play();
    assert!(score.downgrades > 0, "{world}: a day on which nothing was decided shows nothing");
    let text = String::from_utf8(log.into_inner().finish().expect("memory")).expect("JSON");
    text.lines().map(str::to_owned).collect()
}

fn replayed(lines: &[String]) -> Result<u64, ReplayError> {
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    replay(text.as_bytes(), |facts| Box::new(Ours::new(facts)))
}

#[test]
fn a_recorded_day_replays_to_the_same_decisions() {
    for (world, hours) in [("workstation-12g", 4), ("hostile-sensors", 4), ("dense-8g", 3)] {
        let lines = recorded(world, hours);
        let n_steps = replayed(&lines).unwrap_or_else(|error| panic!("{world}: {error}"));
        assert_eq!(n_steps, lines.len() as u64 - 1, "{world}");
        assert!(n_steps > 1_000, "{world}: {n_steps} steps");
    }
}

#[test]
fn a_part_of_a_log_replays_too() {
    let lines = recorded("workstation-12g", 2);
    assert_eq!(replayed(&lines[..lines.len() / 2]).expect("the first half"), lines.len() as u64 / 2 - 1);
}

#[test]
fn another_reading_is_another_decision() {
    let lines = recorded("workstation-12g", 2);
    let at = lines.len() / 2;
    let mut changed = lines.clone();
    let mut step: Value = serde_json::from_str(&lines[at]).expect("JSON");
    let group = &mut step["sight"]["host"]["value"]["groups"][0];
    assert!(group["unreclaimable"].as_u64().is_some_and(|bytes| bytes > 1 << 30), "{group}");
    group["unreclaimable"] = group["limit"].clone(); // nothing is free
    changed[at] = step.to_string();
    match replayed(&changed) {
        Err(ReplayError::Differs { line, recorded, came, .. }) => {
            assert_eq!(line, at as u64 + 1);
            assert!(recorded != came && came.contains("host."), "{came}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_decision_in_the_log_is_told() {
    let mut lines = recorded("workstation-12g", 2);
    let at = lines.iter().position(|line| line.contains("Move {")).expect("something moved");
    lines[at] = lines[at].replacen("Move {", "Stop {", 1);
    let error = replayed(&lines).expect_err("it was changed");
    assert!(matches!(error, ReplayError::Differs { line, .. } if line == at as u64 + 1), "{error}");
}

#[test]
fn what_is_no_log_is_told_in_a_sentence() {
    let lines = recorded("workstation-12g", 1);
    let text = |lines: &[String]| lines.join("\n") + "\n";
    let whole = text(&lines[..3]);
    let version = whole.replacen("\"version\":1", "\"version\":2", 1);
    let long = text(&lines[..1]) + &"x".repeat(5 << 20);
    for (name, log, expect) in [
        ("empty", String::new(), "the log is empty"),
        ("garbage", "\u{0}\u{1}garbage\n".to_owned(), "not a log that this version reads"),
        ("another file", "{\"model\": 3}\n".to_owned(), "not a log that this version reads"),
        ("a list", "[1, 2]\n".to_owned(), "not a log that this version reads"),
        ("version", version, "version 2"),
        ("cut off", whole[..whole.len() - 9].to_owned(), "line 3 is damaged (it has no end"),
        ("no step", text(&lines[..1]) + "{}\n", "line 2 is damaged (missing field"),
        ("a missing reading", whole.replacen("\"next_look_ms\"", "\"look\"", 1), "line 2 is damaged"),
        ("endless line", long, "longer than 4 MiB"),
        ("many groups", whole.replacen("\"n_groups\":1", "\"n_groups\":9", 1), "line 2 is damaged (more groups"),
        ("a lever of no card", whole.replacen("{\"ExpertCache\":0}", "{\"ExpertCache\":9}", 1), "a card beyond the 2"),
    ] {
        let error = replay(log.as_bytes(), |facts| Box::new(Ours::new(facts))).expect_err(name).to_string();
        assert!(error.contains(expect), "{name}: {error}");
    }
}

#[test]
fn a_full_disk_is_told() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let day = Day::new(&World::load("workstation-12g").expect("a default world"), SEED, 1);
    let facts = day.world.facts();
    let log = RefCell::new(Log::new(Full(100_000), &facts).expect("room for the first line"));
    let score = Run::new(&day, Box::new(Recorder::new(Box::new(Ours::new(&facts)), &log)), false).play();
    assert!(score.tokens > 0, "the day goes on");
    let error = log.into_inner().finish().map(|_| ()).expect_err("the disk was full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn the_command_records_and_replays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("day.jsonl").display().to_string();
    let sim = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).expect("UTF-8"))
    };
    let (is_well, said) =
        sim(&["--seeds", "1", "--from-seed", "5", "--hours", "2", "--policy", "ours", "--record", &file]);
    assert!(is_well && said.contains("lost 0"), "{said}");
    let (is_well, said) = sim(&["--replay", &file]);
    assert!(is_well && said.contains("steps, each decided as recorded"), "{said}");
    for (arguments, expect) in [
        (vec!["--seeds", "2", "--policy", "ours", "--record", &file], "one day of one policy"),
        (vec!["--seeds", "1", "--policy", "oracle", "--record", &file], "one day of one policy"),
        (
            vec!["--seeds", "1", "--policy", "ours", "--record", "/nowhere/day"],
            "/nowhere/day: the log can't be written",
        ),
        (vec!["--replay", "/nowhere/day"], "/nowhere/day: the log can't be read"),
        (vec!["--replay", "/dev/null"], "the log is empty"),
        (vec!["--replay", &file, "--seeds", "3"], "--replay"),
    ] {
        let (is_well, said) = sim(&arguments);
        assert!(!is_well && said.contains(expect), "{arguments:?}: {said}");
    }
}
