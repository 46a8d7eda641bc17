//! What is given back, and when.

use plimsoll_config::limits;
use plimsoll_config::units::Millis;
use plimsoll_decide::governor::{Lever, Mode, Note, Phase};

use crate::bench::{Bench, gib, mib};

/// Others take so many MiB for a while, again and again.
fn waves(bench: &mut Bench, mib: u64, hold_ms: u64, pause_ms: u64, n_waves: u64) {
    let mut corners = vec![(0, 8 << 10)];
    for wave in 0..n_waves {
        let from = 10_000 + wave * (hold_ms + pause_ms);
        corners.push((from, 8 << 10));
        corners.push((from + 5_000, (8 << 10) + mib));
        corners.push((from + hold_ms, (8 << 10) + mib));
        corners.push((from + hold_ms + 1_000, 8 << 10));
    }
    bench.foreign = corners;
}

#[test]
fn levers_come_home_after_a_quiet_time_the_dearest_first() {
    let mut bench = Bench::new(Mode::Act);
    waves(&mut bench, 12 << 10, 100_000, 0, 1);
    bench.run(110_000);
    assert!(bench.position(Lever::ResidentBudget) < gib(36), "{}", bench.story());
    let lowered = bench.moves().filter(|(_, moved)| moved.is_down()).last().expect("something was taken").0;
    bench.run(400_000);
    let story = bench.story();
    let raised: Vec<_> = bench.moves().filter(|(_, moved)| !moved.is_down()).collect();
    assert!(raised.iter().all(|(at, _)| at.since(lowered) >= limits::QUIET_MIN), "{story}");
    assert!(raised.iter().all(|(_, moved)| moved.distance() <= limits::HOST_RAISE_CHUNK), "{story}");
    assert_eq!(raised[0].1.lever, Lever::ResidentBudget, "{story}");
    assert_eq!(raised.last().map(|(_, moved)| moved.lever), Some(Lever::PrefixCache), "{story}");
    for (lever, home) in [(Lever::ResidentBudget, gib(40)), (Lever::PrefixCache, gib(1))] {
        assert_eq!(bench.position(lever), home, "{story}");
    }
    assert!(bench.governor.phases().all(|(_, phase)| *phase == Phase::Home), "{story}");
}

#[test]
fn a_recovery_stops_where_there_is_no_room() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign = vec![(0, 8 << 10), (10_000, 8 << 10), (16_000, 14 << 10)];
    bench.run(3_600_000);
    let room = bench.free() - bench.margin.0 as i64;
    assert!(room >= limits::HOST_BREATH.0 as i64, "{room}\n{}", bench.story());
    let undone = bench.notes.iter().filter(|(_, note)| matches!(note, Note::Undone { .. })).count();
    assert_eq!(undone, 0, "{}", bench.story());
}

#[test]
fn each_undone_recovery_doubles_the_quiet_time() {
    let mut bench = Bench::new(Mode::Act);
    waves(&mut bench, 16 << 10, 20_000, 130_000, 40);
    bench.run(10_000 + 40 * 150_000);
    let undone: Vec<(Millis, Millis)> = bench
        .notes
        .iter()
        .filter_map(|(at, note)| match note {
            Note::Undone { quiet, .. } => Some((*at, *quiet)),
            _ => None,
        })
        .collect();
    assert!(undone.len() >= 3, "{}", bench.story());
    for pair in undone.windows(2) {
        let halved = pair[1].0.since(pair[0].0) >= limits::QUIET_HALVES_AFTER;
        assert!(halved || pair[1].1.0 == (2 * pair[0].1.0).min(limits::QUIET_MAX.0), "{undone:?}");
    }
    for (at, _) in &undone {
        let within = undone.iter().filter(|(other, _)| other >= at && other.since(*at) < Millis(3_600_000)).count();
        assert!(within <= 4, "{within} within an hour from {at}: {undone:?}");
    }
}

#[test]
fn a_file_that_is_read_too_much_makes_the_budget_grow_past_its_home() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign = vec![(0, 6 << 10)];
    bench.reads_per_token = mib(10);
    bench.run(200_000);
    assert!(bench.notes.is_empty(), "what was planned is no pressure\n{}", bench.story());
    bench.reads_per_token = mib(60);
    bench.run(400_000);
    assert!(bench.position(Lever::ResidentBudget) > gib(41), "{}", bench.story());
    assert!(bench.free() >= bench.margin.0 as i64 + limits::HOST_BREATH.0 as i64, "{}", bench.story());
    assert!(bench.story().contains("rule D1"), "{}", bench.story());
    assert!(bench.notes.iter().any(|(_, note)| matches!(note, Note::DiskBound { .. })), "{}", bench.story());
    let n_notes = bench.notes.iter().filter(|(_, note)| matches!(note, Note::DiskBound { .. })).count();
    bench.run(700_000);
    let n_later = bench.notes.iter().filter(|(_, note)| matches!(note, Note::DiskBound { .. })).count();
    assert!(n_later <= n_notes + 1, "once in ten minutes\n{}", bench.story());
}

#[test]
fn a_growth_turns_a_recovery_round() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign = vec![(0, 8 << 10), (10_000, 8 << 10), (15_000, 18 << 10), (20_000, 18 << 10), (21_000, 8 << 10)];
    bench.run(100_000);
    bench.manners.answers_in_ms = Some(2_000); // raising takes long: it reads from the file
    while bench.moves().all(|(_, moved)| moved.is_down()) {
        let next = bench.now.0 + 100;
        bench.run(next);
    }
    let now = bench.now.0;
    bench.foreign = vec![(0, 8 << 10), (now, 8 << 10), (now + 3_000, 22 << 10)];
    bench.manners.answers_in_ms = Some(100);
    bench.run(now + 10_000);
    assert!(bench.lowest_free > 0 && bench.free() >= bench.margin.0 as i64, "{}", bench.story());
    let undone = bench.notes.iter().any(|(_, note)| matches!(note, Note::Undone { .. }));
    assert!(undone, "{}", bench.story());
}
