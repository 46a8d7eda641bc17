//! What is done when an account fills.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::{
    Governor, Input, Lever, Mode, Note, Order, Phase, Sample, Start, Timed, WorkerReading,
};
use plimsoll_decide::ledger::AccountId;

use crate::bench::{Bench, GPU, Manners, gib, lever, mib, settings};

/// Others grow by so many MiB within so many ms, from 5 s on, and stay.
fn growth(bench: &mut Bench, mib: u64, within_ms: u64) {
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (5_000 + within_ms, (8 << 10) + mib)];
}

#[test]
fn nothing_moves_while_nothing_happens() {
    let mut bench = Bench::new(Mode::Act);
    bench.run(600_000);
    assert!(bench.notes.is_empty(), "{}", bench.story());
    assert!(bench.governor.is_calm(bench.now));
}

#[test]
fn a_growth_takes_the_cheapest_lever_first_and_ends_above_the_line() {
    for (mib, within_ms) in [(4 << 10, 4_000), (12 << 10, 12_000), (12 << 10, 6_000), (20 << 10, 120_000)] {
        let mut bench = Bench::new(Mode::Act);
        growth(&mut bench, mib, within_ms);
        bench.run(5_000 + within_ms + limits::PEAK.0 + 10_000);
        let story = bench.story();
        assert!(bench.lowest_free > 0, "{mib} MiB in {within_ms} ms: killed\n{story}");
        assert!(bench.free() >= bench.margin.0 as i64, "{mib} MiB in {within_ms} ms: over the line\n{story}");
        let first = bench.moves().next().expect("something moved").1.lever;
        assert_eq!(first, Lever::PrefixCache, "{mib} MiB in {within_ms} ms\n{story}");
        assert_eq!(bench.position(Lever::KvCapacity), gib(4), "the budget had enough\n{story}");
    }
}

#[test]
fn one_move_at_a_time_and_each_is_seen_before_the_next() {
    let mut bench = Bench::new(Mode::Act);
    growth(&mut bench, 16 << 10, 16_000);
    bench.run(80_000);
    let mut under_way = None;
    for (at, note) in bench.notes.iter().filter(|(_, note)| !matches!(note, Note::Undone { .. })) {
        match (note, under_way) {
            (Note::Moved(moved, _), None) => under_way = Some(moved.id),
            (Note::Relief { moved, .. }, Some(id)) if moved.id == id => under_way = None,
            _ => panic!("{at}: {note}\n{}", bench.story()),
        }
    }
    assert!(bench.moves().count() > 3, "{}", bench.story());
}

#[test]
fn what_a_lever_does_not_give_is_asked_for_again_and_remembered() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { frees_permille: 500, ..Manners::default() };
    growth(&mut bench, 12 << 10, 12_000);
    bench.run(80_000);
    assert!(bench.lowest_free > 0 && bench.free() >= bench.margin.0 as i64, "{}", bench.story());
    let trust = bench.governor.trust().permille(Lever::ResidentBudget);
    assert!((450..750).contains(&trust), "{trust}\n{}", bench.story());
}

#[test]
fn a_worker_that_does_not_answer_is_ended_before_the_kernel_does_it() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { answers_in_ms: None, ..Manners::default() };
    growth(&mut bench, 20 << 10, 20_000);
    bench.run(25_000);
    let restart = bench.orders.iter().find(|(_, order)| *order == Order::Restart { at_once: true });
    let (at, _) = restart.unwrap_or_else(|| panic!("no restart\n{}", bench.story()));
    bench.now = *at;
    assert!(bench.free() > 0, "at {at} it was too late\n{}", bench.story());
    assert!(bench.notes.iter().any(|(_, note)| matches!(note, Note::Late(_))), "{}", bench.story());
}

#[test]
fn without_a_lever_left_new_work_waits_and_then_the_worker_ends() {
    let mut bench = Bench::new(Mode::Act);
    growth(&mut bench, 55 << 10, 110_000);
    bench.run(115_000);
    let place = |wanted: Order| bench.orders.iter().position(|(_, order)| *order == wanted);
    let (paused, restarted) = (place(Order::PauseAdmission), place(Order::Restart { at_once: false }));
    assert!(paused.is_some() && paused < restarted, "{paused:?} {restarted:?}\n{}", bench.story());
    assert_eq!(bench.position(Lever::ResidentBudget), gib(4));
    assert_eq!(bench.position(Lever::KvCapacity), gib(1));
}

#[test]
fn while_it_loads_only_the_end_of_the_worker_can_help() {
    let mut governor = Governor::new(settings(Mode::Act));
    let mut bench = Bench::new(Mode::Act);
    bench.levers = vec![lever(Lever::ResidentBudget, AccountId::Host, Bytes::ZERO, Bytes::ZERO)];
    governor.step(Millis(0), &Input::WorkerStarted);
    let mut restarted = None;
    for second in 0..40 {
        // 40 GiB still to be loaded, 62 in all, and others take one more each second.
        bench.now = Millis(second * 1000);
        bench.foreign = vec![(0, (8 << 10) + (second << 10))];
        let mut sample = bench.fresh();
        let worker = WorkerReading { levers: Vec::new(), to_load: vec![(AccountId::Host, gib(40))], work: Vec::new() };
        sample.worker = Some(Timed { at: bench.now, value: worker });
        let out = governor.step(bench.now, &Input::Sample(sample));
        for order in &out.orders {
            let Order::Restart { at_once } = order else { panic!("{order:?}") };
            assert_eq!(*at_once, restarted.is_some(), "killed only when it was told, and is still there");
            restarted.get_or_insert(second);
        }
    }
    assert!(restarted.is_some_and(|second| (10..14).contains(&second)), "{restarted:?}");
}

#[test]
fn nobody_is_stopped_where_nobody_is() {
    let mut bench = Bench::new(Mode::Act);
    bench.run(1_000);
    let out = bench.governor.step(bench.now, &Input::WorkerGone);
    assert!(out.orders.is_empty());
    bench.manners = Manners { blind: Some((0, 120_000)), ..Manners::default() };
    bench.run(60_000);
    assert!(bench.orders.is_empty(), "{}", bench.story());
    // And the next worker is watched from its first byte on.
    let fresh = bench.fresh();
    bench.governor.step(bench.now, &Input::Sample(fresh));
    bench.now = Millis(bench.now.0 + 200);
    bench.governor.step(bench.now, &Input::WorkerStarted);
    let mut sample = bench.fresh();
    let worker = WorkerReading { levers: Vec::new(), to_load: vec![(AccountId::Host, gib(70))], work: Vec::new() };
    sample.worker = Some(Timed { at: bench.now, value: worker });
    let out = bench.governor.step(bench.now, &Input::Sample(sample));
    assert_eq!(out.orders, [Order::Restart { at_once: false }]);
}

#[test]
fn an_old_reading_counts_as_the_worst() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { blind: Some((10_000, 60_000)), ..Manners::default() };
    bench.run(9_000);
    assert!(bench.notes.is_empty());
    bench.run(30_000);
    let (at, _) = bench.moves().next().unwrap_or_else(|| panic!("nothing was taken\n{}", bench.story()));
    assert!(at > Millis(10_000), "{}", bench.story());
    assert!(bench.moves().all(|(_, moved)| moved.is_down()), "{}", bench.story());
}

#[test]
fn a_counter_that_stops_in_a_growth_is_not_believed() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { stuck: Some((6_500, 14_000)), ..Manners::default() };
    growth(&mut bench, 14 << 10, 9_000);
    bench.run(30_000);
    assert!(bench.lowest_free > 0, "{}", bench.story());
    assert!(bench.moves().any(|(at, _)| at.0 > 6_500 && at.0 < 14_000), "{}", bench.story());
}

#[test]
fn a_jump_is_no_growth() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign = vec![(0, 6 << 10), (10_000, 6 << 10), (10_001, 9 << 10)];
    bench.levers.retain(|reading| reading.lever != Lever::PrefixCache);
    bench.run(30_000);
    assert!(bench.notes.is_empty(), "there is room for all of it\n{}", bench.story());
}

#[test]
fn swap_that_fills_is_pressure_although_there_is_room() {
    let mut bench = Bench::new(Mode::Act);
    bench.run(5_000);
    bench.swap_used = gib(1);
    bench.run(8_000);
    assert!(bench.moves().count() >= 1, "{}", bench.story());
    assert!(bench.story().contains("rule H6"), "{}", bench.story());
}

#[test]
fn a_card_shrinks_before_the_prompt_runs() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign_card = vec![(0, 2 << 10), (5_000, 2 << 10), (5_001, (4 << 10) - 256)];
    bench.run(4_900);
    bench.now = Millis(5_100);
    // The jump has been read, and the request comes before anything was done about it.
    let fresh = bench.fresh();
    let out = bench.governor.step(bench.now, &Input::Sample(fresh));
    bench.carry_out(&out);
    let out = bench.governor.step(bench.now, &Input::RequestStarts);
    assert_eq!(out.start, Some(Start::ShrinkFirst), "{}", bench.story());
    bench.carry_out(&out);
    bench.run(6_000);
    let out = bench.governor.step(bench.now, &Input::RequestStarts);
    assert_eq!(out.start, Some(Start::Go), "{}", bench.story());
    assert!(bench.free_card() >= mib(512).0 as i64, "{}", bench.story());
    assert!(bench.moves().all(|(_, moved)| moved.account == GPU), "{}", bench.story());
}

#[test]
fn a_request_does_not_wait_for_ever() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { answers_in_ms: None, ..Manners::default() };
    bench.foreign_card = vec![(0, (4 << 10) - 300)];
    let mut went = None;
    while went.is_none() && bench.now.0 < 60_000 {
        let next = bench.now.0 + 200;
        bench.run(next);
        let out = bench.governor.step(bench.now, &Input::RequestStarts);
        went = (out.start == Some(Start::Go)).then_some((bench.now, out));
    }
    let (at, out) = went.expect("it went");
    assert!(at <= Millis(limits::REQUEST_START_WAIT.0 + 1_000), "{at}");
    assert_eq!(out.notes.last(), Some(&Note::StartedUnderLine(GPU)));
}

#[test]
fn where_a_prompt_would_kill_its_worker_the_request_waits_and_the_worker_stays() {
    let mut bench = Bench::new(Mode::Act);
    bench.levers.retain(|reading| reading.account == AccountId::Host); // nothing on the card can shrink
    bench.foreign_card = vec![(0, (12 << 10) - 100), (100_000, (12 << 10) - 100), (100_001, 2 << 10)];
    bench.run(1_000);
    let went = ask_until_go(&mut bench, 200_000).expect("it went when the others had left");
    assert!((Millis(100_000)..Millis(102_000)).contains(&went), "{went}");
    assert_eq!(bench.orders, [], "{}", bench.story());
}

#[test]
fn a_short_peak_beyond_the_line_passes() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (10_000, 12 << 10), (30_000, 12 << 10), (31_000, 8 << 10)];
    bench.run(600_000);
    assert!(bench.notes.is_empty(), "the margin is there for it\n{}", bench.story());
}

#[test]
fn a_governor_that_observes_writes_and_does_nothing() {
    let mut bench = Bench::new(Mode::Observe);
    growth(&mut bench, 20 << 10, 20_000);
    bench.run(120_000);
    assert!(bench.orders.is_empty());
    let n_notes = bench.notes.iter().filter(|(_, note)| matches!(note, Note::WouldMove(..))).count();
    assert!((2..=5).contains(&n_notes), "once in 30 s\n{}", bench.story());
}

#[test]
fn a_governor_that_is_off_is_silent() {
    let mut bench = Bench::new(Mode::Off);
    growth(&mut bench, 20 << 10, 20_000);
    bench.run(60_000);
    assert!(bench.orders.is_empty() && bench.notes.is_empty());
    assert_eq!(bench.governor.step(bench.now, &Input::RequestStarts).start, Some(Start::Go));
}

#[test]
fn while_figures_are_taken_the_cache_stands_still_at_a_request() {
    let mut bench = Bench::new(Mode::Act);
    let mut settings = settings(Mode::Act);
    settings.is_benchmark = true;
    bench.governor = Governor::new(settings);
    bench.governor.step(Millis(0), &Input::WorkerReady);
    bench.foreign_card = vec![(0, (4 << 10) - 256)];
    bench.governor.step(Millis(0), &Input::Sample(Sample::default()));
    let out = bench.governor.step(Millis(0), &Input::RequestStarts);
    assert_eq!(out.start, Some(Start::Go));
    assert!(out.orders.is_empty());
}

#[test]
fn a_lever_that_is_late_is_waited_for() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { answers_in_ms: None, ..Manners::default() };
    growth(&mut bench, 8 << 10, 60_000);
    bench.run(120_000);
    assert_eq!(bench.moves().count(), 1, "one job loop answers for all levers\n{}", bench.story());
    let n_late = bench.notes.iter().filter(|(_, note)| matches!(note, Note::Late(_))).count();
    assert_eq!(n_late, 1, "{}", bench.story());
    let host = bench.governor.phases().find(|(id, _)| *id == AccountId::Host).expect("it is watched").1;
    assert!(matches!(host, Phase::Lowering(_)), "{host:?}");
}

/// Asks every 200 ms for a request until it may run; when it may, and the answers on the way.
fn ask_until_go(bench: &mut Bench, until_ms: u64) -> Option<Millis> {
    while bench.now.0 < until_ms {
        let out = bench.governor.step(bench.now, &Input::RequestStarts);
        bench.carry_out(&out);
        if out.start == Some(Start::Go) {
            return Some(bench.now);
        }
        let next = bench.now.0 + 200;
        bench.run(next);
    }
    None
}

#[test]
fn a_request_waits_while_somebody_fills_its_card() {
    let mut bench = Bench::new(Mode::Act);
    bench.levers.retain(|reading| reading.account == AccountId::Host); // nothing on the card can shrink
    // Of 12 GiB, 256 MiB stay free at last: enough for the prompt's 128, too few for the line.
    bench.foreign_card = vec![(0, 2 << 10), (1_000, 2 << 10), (5_750, (12 << 10) - 256)];
    bench.run(5_500);
    assert!(bench.free_card() > mib(512).0 as i64, "it is above the line, and sinking");
    let went = ask_until_go(&mut bench, 20_000).expect("it went");
    assert!(went > Millis(5_750), "at {went} nobody knew where it would end\n{}", bench.story());
    assert_eq!(bench.orders, [], "{}", bench.story());
}

#[test]
fn a_card_that_nobody_can_read_shrinks_for_a_request_and_its_worker_stays() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign_card = vec![(0, 1 << 10)]; // 3 GiB free, when it was last read
    // A quiet night before: the fastest growth is still believed possible.
    bench.now = Millis::from_secs(8 * 3600);
    let evening = bench.now.0;
    bench.manners = Manners { blind: Some((evening + 5_000, evening + 60_000)), ..Manners::default() };
    bench.run(evening + 4_000);
    assert_eq!(ask_until_go(&mut bench, evening + 4_900), Some(bench.now), "it can be read, and there is room");
    bench.run(evening + 10_000);
    let went = ask_until_go(&mut bench, evening + 60_000);
    assert!(went.is_some_and(|at| at.0 < evening + 18_000), "{went:?}\n{}", bench.story());
    assert!(bench.position(Lever::ExpertCache) < gib(8), "{}", bench.story());
    assert!(bench.orders.iter().all(|(_, order)| matches!(order, Order::Move(_))), "{}", bench.story());
}

#[test]
fn a_blind_sensor_is_not_asked_as_if_it_could_answer() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { blind: Some((10_000, 60_000)), ..Manners::default() };
    bench.run(20_000);
    let old = bench.fresh();
    let out = bench.governor.step(Millis(bench.now.0 + 5_000), &Input::Sample(old));
    assert_eq!(out.next_sample, Millis(bench.now.0 + 5_000 + limits::SAMPLE_BLIND.0));
}

#[test]
fn after_a_move_a_card_is_looked_at_before_a_request_runs_under_its_line() {
    let mut bench = Bench::new(Mode::Act);
    bench.levers.retain(|reading| reading.account == AccountId::Host);
    bench.levers.push(lever(Lever::ExpertCache, GPU, mib(256), Bytes::ZERO));
    // 100 MiB free, and 356 when the cache has given all: enough for the prompt's 128, too few for the line.
    bench.foreign_card = vec![(0, (12 << 10) - 256 - 100)];
    bench.run(800);
    let went = ask_until_go(&mut bench, 20_000).expect("it went");
    let landed = bench.notes.iter().rfind(|(_, note)| matches!(note, Note::Relief { .. })).expect("it shrank").0;
    assert!(went.since(landed) >= limits::REQUEST_SETTLES, "{went} after {landed}\n{}", bench.story());
    assert!(went <= Millis(7_000), "{went}: bounded");
}

#[test]
fn a_full_card_is_full_also_when_nobody_can_read_it_any_more() {
    let mut bench = Bench::new(Mode::Act);
    bench.levers.retain(|reading| reading.account == AccountId::Host);
    bench.foreign_card = vec![(0, (12 << 10) - 100), (50_000, (12 << 10) - 100), (50_001, 2 << 10)];
    bench.manners = Manners { blind: Some((5_000, 60_000)), ..Manners::default() };
    bench.run(1_000);
    let went = ask_until_go(&mut bench, 90_000).expect("it went when the card could be read again");
    assert!(went >= Millis(60_000), "{went}\n{}", bench.story());
}
