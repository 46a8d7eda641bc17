//! The simulator as a whole: the same day twice, who survives what, and the command's words.

use plimsoll_tests::sim::day::Day;
use plimsoll_tests::sim::fleet::Fleet;
use plimsoll_tests::sim::policies::{ALL, Named};
use plimsoll_tests::sim::run::Run;
use plimsoll_tests::sim::world::{NAMES, World, folder};
use std::process::{Command, Output};

fn world(name: &str) -> World {
    World::load(name).unwrap_or_else(|words| panic!("{name}: {words}"))
}

fn fleet(from_seed: u64, n_seeds: u64, hours: u32) -> Fleet {
    let worlds = NAMES.iter().map(|name| world(name)).collect();
    Fleet { worlds, from_seed, n_seeds, hours, policies: ALL.to_vec() }
}

fn story(day: &Day, named: &Named) -> Vec<String> {
    Run::new(day, (named.make)(day), true).play().story
}

#[test]
fn every_world_file_is_read_and_named_after_itself() {
    for name in NAMES {
        assert_eq!(world(name).name, name);
    }
    let n_files = std::fs::read_dir(folder()).expect("the folder").count();
    assert_eq!(n_files, NAMES.len(), "a world that no seed goes to");
}

#[test]
fn a_world_with_a_mistake_is_refused() {
    let text = std::fs::read_to_string(folder().join("cpu-only.yaml")).expect("a world");
    for (from, to, expect) in [
        ("total_mib: 24960", "total_mib: 24960\n  totl_mib: 3", "totl_mib"),
        ("total_mib: 24960", "total_gib: 24", "total_gib"),
        ("floor_mib: 2400, home_mib: 11800", "floor_mib: 12000, home_mib: 11800", "floor"),
        ("{low: 1800, high: 3000}", "{low: 3001, high: 3000}", "3001"),
        ("cards: []", "cards: 3", "cards"),
    ] {
        let error = World::parse(&text.replacen(from, to, 1)).expect_err(to);
        assert!(error.contains(expect), "{to}: {error}");
    }
}

#[test]
fn the_same_seed_is_the_same_day() {
    for (name, seed) in NAMES.into_iter().zip(40..) {
        let world = world(name);
        for named in &ALL {
            let days = [Day::new(&world, seed, 12), Day::new(&world, seed, 12)];
            let [first, second] = days.map(|day| story(&day, named));
            assert!(!first.is_empty() && first == second, "{name}, seed {seed}, {}", named.name);
        }
        let other = Day::new(&world, seed + 1000, 12);
        assert_ne!(story(&other, &ALL[0]), story(&Day::new(&world, seed, 12), &ALL[0]), "{name}: seeds are alike");
    }
}

#[test]
fn threads_change_no_figure() {
    let fleet = fleet(3, 6, 6);
    let scores = |seeds: Vec<plimsoll_tests::sim::fleet::SeedScores>| format!("{seeds:?}");
    let alone = (3..9).map(|seed| fleet.seed(seed)).collect();
    assert_eq!(scores(fleet.run()), scores(alone));
}

#[test]
fn the_oracle_survives_every_day_and_keeps_every_rule() {
    for seed in fleet(1, 28, 24).run() {
        let (name, oracle) = (seed.world, seed.oracle);
        assert_eq!((oracle.oom(), oracle.lost_answers), (0, 0), "seed {} of {name}", seed.seed);
        assert!(oracle.violations.is_empty(), "seed {} of {name}: {:?}", seed.seed, oracle.violations);
        assert!(oracle.tokens > 50_000, "seed {} of {name}: {} tokens", seed.seed, oracle.tokens);
    }
}

#[test]
fn without_a_policy_workers_die_and_answers_are_lost() {
    let fleet = fleet(1, 14, 24);
    let lines = fleet.lines(&fleet.run());
    let [none, restart, oracle] = [&lines[0], &lines[1], &lines[2]];
    assert!(none.oom >= 7 && none.oom_preventable == none.oom && none.lost_answers > 0, "{none:?}");
    assert!(restart.lost_answers > none.lost_answers, "{restart:?}");
    assert!(none.tokens_vs_oracle_mean < 0.99 && restart.tokens_vs_oracle_mean < 0.99, "{none:?} {restart:?}");
    assert!((oracle.tokens_vs_oracle_mean - 1.0).abs() < 1e-9, "{oracle:?}");
}

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("the command runs")
}

#[test]
fn the_command_ends_with_one_line_for_each_policy() {
    let keys = [
        "policy",
        "seeds",
        "hours",
        "oom",
        "oom_preventable",
        "lost_answers",
        "refusals",
        "downgrades",
        "undone_recoveries_per_hour_p99",
        "tokens_vs_oracle_mean",
        "tokens_vs_oracle_p5",
        "failing_seeds",
    ];
    let output = sim(&["--seeds", "3", "--hours", "2", "--json"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), ALL.len(), "{text}");
    for (line, named) in lines.iter().zip(&ALL) {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let found: Vec<&String> = value.as_object().expect("an object").keys().collect();
        assert_eq!(found, keys, "{line}");
        assert_eq!((&value["policy"], &value["seeds"]), (&named.name.into(), &3.into()));
    }
    let output = sim(&["--seeds", "3", "--hours", "2"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let table: Vec<&str> = text.lines().rev().take(ALL.len() + 1).collect();
    assert!(table.iter().all(|line| line.len() == table[0].len()), "not aligned:\n{text}");
    assert!(text.contains("worst day of none: seed") && text.contains("--story"), "{text}");
}

#[test]
fn a_single_day_tells_its_story() {
    let output = sim(&["--seeds", "1", "--from-seed", "12", "--hours", "3", "--policy", "oracle", "--story"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("08:00:00.000  worker 1 is started with"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("oom ")), "{text}");
}

#[test]
fn wrong_arguments_are_told_in_a_sentence() {
    for (arguments, expect) in [
        (vec!["--policy", "best"], "no policy `best`: they are none, restart"),
        (vec!["--world", "moon"], "one of workstation-12g"),
        (vec!["--seeds", "0"], "0 is not in 1..=1000000"),
        (vec!["--hours", "many"], "invalid value 'many'"),
        (vec!["--story"], "--story tells one day of one policy"),
    ] {
        let output = sim(&arguments);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success() && error.contains(expect), "{arguments:?}: {error}");
    }
}
