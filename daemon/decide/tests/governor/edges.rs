//! Where one thing ends and the next begins: the last millisecond of a pause, the byte at a threshold, the first of two rules.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::least::Least;
use plimsoll_decide::governor::quiet::Quiet;
use plimsoll_decide::governor::trend::Trend;
use plimsoll_decide::governor::{
    Answer, Governor, HostReading, Input, Lever, Mode, Move, MoveId, Note, Order, Output, Sample, Start, Timed,
    WorkerReading,
};
use plimsoll_decide::ledger::AccountId;

use crate::bench::{Bench, GPU, Manners, gib, lever, mib, settings};

/// A worker that loads, on a host whose counter stands still to the byte.
fn loading(bench: &Bench, now: Millis, free: Bytes, to_load: Bytes) -> Sample {
    let mut sample = bench.fresh();
    let host = sample.host.as_mut().expect("it is read");
    (host.at, host.value.free, host.value.room) = (now, free, free.0 as i64 - bench.margin.0 as i64);
    sample.cards.iter_mut().for_each(|card| card.at = now);
    let worker = WorkerReading { levers: Vec::new(), to_load: vec![(AccountId::Host, to_load)], work: Vec::new() };
    sample.worker = Some(Timed { at: now, value: worker });
    sample
}

/// A governor whose worker serves.
fn serving() -> Governor {
    let mut governor = Governor::new(settings(Mode::Act));
    governor.step(Millis(0), &Input::WorkerReady);
    governor
}

/// One look at a host of which so much is free, with a line that keeps 7 GiB, and at a budget of 40.
fn look(governor: &mut Governor, ms: u64, free: Bytes) -> Output {
    let at = Millis(ms);
    let host = HostReading { free, room: free.0 as i64 - gib(7).0 as i64, ..HostReading::default() };
    let budget = lever(Lever::ResidentBudget, AccountId::Host, gib(40), gib(4));
    let worker = WorkerReading { levers: vec![budget], ..WorkerReading::default() };
    let sample = Sample {
        host: Some(Timed { at, value: host }),
        worker: Some(Timed { at, value: worker }),
        ..Sample::default()
    };
    governor.step(at, &Input::Sample(sample))
}

#[test]
fn new_settings_are_obeyed_from_the_next_step_on() {
    let mut bench = Bench::new(Mode::Act);
    bench.run(1_000);
    bench.governor.set(settings(Mode::Off));
    bench.foreign = vec![(0, 8 << 10), (1_000, 8 << 10), (10_000, 20 << 10)];
    bench.run(20_000);
    assert!(bench.notes.is_empty() && bench.orders.is_empty(), "{}", bench.story());
}

#[test]
fn calm_is_only_where_nothing_is_under_way_and_everything_is_known() {
    let mut bench = Bench::new(Mode::Act);
    bench.run(5_000);
    assert!(bench.governor.is_calm(bench.now) && bench.governor.wakes_at().is_none());
    let read = bench.governor.clone();
    let last = (0..=400)
        .map(|ms| Millis(bench.now.0 - ms))
        .find(|at| read.is_calm(at.saturating_add(limits::READING_MAX_AGE)));
    let last = last.expect("a reading of the last 400 ms");
    assert!(!read.is_calm(Millis(last.0 + limits::READING_MAX_AGE.0 + 1)), "it is too old");

    // Short of room, and too shortly for a rule.
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (25_000, (8 << 10) + 2_500), (60_000, (8 << 10) + 2_500)];
    bench.run(28_000);
    assert!(bench.orders.is_empty(), "{}", bench.story());
    assert!(!bench.governor.is_calm(bench.now), "the line is left");

    bench.manners = Manners { answers_in_ms: None, ..Manners::default() };
    bench.run(58_000);
    let (sent, _) = bench.moves().next().unwrap_or_else(|| panic!("no move\n{}", bench.story()));
    assert!(!bench.governor.is_calm(bench.now), "a move is under way");
    assert_eq!(bench.governor.wakes_at(), Some(sent.saturating_add(limits::LOWER_DEADLINE)));

    let mut bench = Bench::new(Mode::Act);
    bench.foreign_card = vec![(0, (4 << 10) - 300)];
    bench.manners = Manners { answers_in_ms: None, ..Manners::default() };
    bench.run(400);
    bench.governor.step(bench.now, &Input::RequestStarts);
    assert!(!bench.governor.is_calm(bench.now), "a request waits");
}

#[test]
fn with_much_room_the_next_look_is_the_slowest() {
    let mut bench = Bench::new(Mode::Act);
    bench.run(2_000);
    let sample = bench.fresh();
    let out = bench.governor.step(bench.now, &Input::Sample(sample));
    assert_eq!(out.next_sample, bench.now.saturating_add(limits::SAMPLE_MAX));
}

#[test]
fn a_counter_that_stands_still_is_believed_of_a_worker_that_serves_and_not_of_one_that_loads() {
    let bench = Bench::new(Mode::Act);
    for (starts, expect) in [(Input::WorkerStarted, true), (Input::WorkerReady, false)] {
        let mut governor = Governor::new(settings(Mode::Act));
        governor.step(Millis(0), &starts);
        let to_load = if expect { gib(15) } else { Bytes::ZERO };
        let mut restarted = None;
        for step in 1..45 {
            let now = Millis(step * 200);
            let free = if expect { gib(20) } else { gib(9) };
            let out = governor.step(now, &Input::Sample(loading(&bench, now, free, to_load)));
            if !out.orders.is_empty() {
                restarted.get_or_insert(now);
            }
        }
        // 5 GiB are free when all is loaded: gone in 5 s at the fastest growth, and 1.5 s before that is the last moment.
        let is_in_time = restarted.is_some_and(|at| (Millis(3_000)..Millis(5_000)).contains(&at));
        assert_eq!(is_in_time, expect, "{restarted:?}");
        assert_eq!(restarted.is_some(), expect, "{restarted:?}");
    }
}

#[test]
fn a_governor_that_watches_or_stands_still_for_figures_lets_a_request_run_on_a_full_card() {
    for (mode, is_benchmark) in [(Mode::Observe, false), (Mode::Act, true)] {
        let mut bench = Bench::new(mode);
        let mut settings = settings(mode);
        settings.is_benchmark = is_benchmark;
        bench.governor = Governor::new(settings);
        bench.governor.step(Millis(0), &Input::WorkerReady);
        bench.levers.retain(|reading| reading.account == AccountId::Host);
        bench.foreign_card = vec![(0, (12 << 10) - 50)]; // its prompt takes 128
        bench.run(1_000);
        let out = bench.governor.step(bench.now, &Input::RequestStarts);
        assert_eq!((out.start, out.orders), (Some(Start::Go), vec![]), "{mode:?}");
        assert!(bench.orders.is_empty());
    }
}

#[test]
fn a_worker_that_was_told_to_end_is_killed_once_and_not_before_it_is_overdue() {
    let bench = Bench::new(Mode::Act);
    let mut governor = Governor::new(settings(Mode::Act));
    governor.step(Millis(0), &Input::WorkerStarted);
    let mut orders = Vec::new();
    for step in 1..200 {
        let now = Millis(step * 20);
        let free = Bytes(gib(18).0 - now.0 * (gib(1).0 / 1000)); // 1 GiB a second
        let out = governor.step(now, &Input::Sample(loading(&bench, now, free, gib(15))));
        orders.extend(out.orders.into_iter().map(|order| (now, order)));
    }
    let [(told, Order::Restart { at_once: false }), (killed, Order::Restart { at_once: true })] = orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!(killed.since(told), limits::OVERDUE);
}

#[test]
fn half_as_much_again_from_the_file_is_not_too_much_yet() {
    for (more, expect) in [(0, gib(40)), (1, gib(44))] {
        let mut bench = Bench::new(Mode::Act);
        bench.foreign = vec![(0, 1 << 10)];
        bench.reads_per_token = Bytes(mib(30).0 + more); // 20 were planned
        bench.run(300_000);
        assert_eq!(bench.position(Lever::ResidentBudget), expect, "{}", bench.story());
    }
}

#[test]
fn what_a_step_has_borrowed_of_the_card_is_there_for_the_next_request() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign_card = vec![(0, (4 << 10) - 300)]; // under the line by 212, and 512 are borrowed
    let mut sample = bench.fresh();
    let worker = sample.worker.as_mut().expect("it reports");
    worker.value.work = vec![(GPU, mib(512)), (AccountId::Vram(1), mib(1))];
    bench.governor.step(bench.now, &Input::Sample(sample));
    let out = bench.governor.step(bench.now, &Input::RequestStarts);
    assert_eq!((out.start, out.orders), (Some(Start::Go), vec![]));
}

#[test]
fn of_two_rules_that_speak_the_first_is_named() {
    let mut bench = Bench::new(Mode::Observe);
    let mut named = Vec::new();
    for step in 1..250 {
        bench.now = Millis(step * 200);
        let mut sample = bench.fresh();
        let host = sample.host.as_mut().expect("it is read");
        (host.value.refaults_per_second, host.value.stalled_permille) = (6_000, 300);
        let out = bench.governor.step(bench.now, &Input::Sample(sample));
        named.extend(out.notes.iter().map(ToString::to_string));
    }
    // One speaks after a second, and is repeated after 30: by then both do.
    assert_eq!(named.len(), 2, "{named:?}");
    assert!(named[0].contains("rule H7") && named[1].contains("rule H5"), "{named:?}");
}

#[test]
fn a_lever_is_late_at_its_deadline_and_another_moves_answer_is_not_its_own() {
    let mut bench = Bench::new(Mode::Act);
    bench.manners = Manners { answers_in_ms: None, ..Manners::default() };
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (65_000, 16 << 10)];
    while bench.moves().next().is_none() && bench.now < Millis(60_000) {
        let next = bench.now.0 + 10;
        bench.run(next);
    }
    let (sent, moved) = bench.moves().next().expect("it moved");
    let other = Answer { id: MoveId(moved.id.0 + 7), bytes: mib(64) };
    let out = bench.governor.step(bench.now, &Input::Answered(other));
    bench.carry_out(&out);
    bench.run(sent.0 + 5_000);
    let late = bench.notes.iter().find(|(_, note)| matches!(note, Note::Late(_)));
    let (at, _) = late.unwrap_or_else(|| panic!("never late\n{}", bench.story()));
    let after = at.since(sent);
    assert!(after >= limits::LOWER_DEADLINE && after.0 <= limits::LOWER_DEADLINE.0 + 200, "{after}");
    assert!(!bench.notes.iter().any(|(_, note)| matches!(note, Note::Relief { .. })), "{}", bench.story());
}

#[test]
fn relief_is_what_a_reading_after_the_answer_shows_up_or_down() {
    let mut bench = Bench::new(Mode::Act);
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (17_000, 20 << 10), (90_000, 20 << 10), (91_000, 8 << 10)];
    bench.run(400_000);
    let mut n_seen = [0, 0];
    for (_, note) in &bench.notes {
        let Note::Relief { moved, said, measured, took } = note else { continue };
        n_seen[usize::from(moved.is_down())] += 1;
        assert!(*took > Millis(100), "answered after 100 ms, seen after {took}\n{}", bench.story());
        if !moved.is_down() {
            assert!(measured.0 > said.0 / 2, "{note}\n{}", bench.story());
        }
    }
    assert!(n_seen.iter().all(|n| *n > 1), "{n_seen:?}\n{}", bench.story());
}

#[test]
fn what_is_only_soon_moves_no_dear_lever() {
    let mut bench = Bench::new(Mode::Act);
    bench.levers.retain(|reading| reading.lever != Lever::PrefixCache);
    // 1.5 GiB a second, and it stops when the last bytes are three seconds away.
    bench.foreign =
        vec![(0, 9 << 10), (5_000, 9 << 10), (7_800, (9 << 10) + 4_300), (9_000, (9 << 10) + 4_300), (10_000, 9 << 10)];
    bench.run(60_000);
    assert!(bench.orders.is_empty(), "{}", bench.story());
}

#[test]
fn a_pause_of_new_work_is_told_once_and_ends_when_there_is_room() {
    let mut bench = Bench::new(Mode::Act);
    // With every lever at its floor 3 GiB are free: under half of the margin, and steady.
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (300_000, 54 << 10), (400_000, 54 << 10), (500_000, 8 << 10)];
    bench.run(400_000);
    let n_told = bench.notes.iter().filter(|(_, note)| matches!(note, Note::Exhausted(..))).count();
    assert_eq!(n_told, 1, "{}", bench.story());
    let last = |wanted: Order| bench.orders.iter().rposition(|(_, order)| *order == wanted);
    assert!(last(Order::PauseAdmission).is_some() && last(Order::ResumeAdmission).is_none(), "{}", bench.story());
    bench.run(900_000);
    let last = |wanted: Order| bench.orders.iter().rposition(|(_, order)| *order == wanted);
    assert!(last(Order::ResumeAdmission) > last(Order::PauseAdmission), "{}", bench.story());
}

#[test]
fn pressure_in_the_middle_of_a_quiet_time_begins_it_anew() {
    let mut bench = Bench::new(Mode::Act);
    // Lowered within the first minute; then a peak beyond the line that no rule answers, over at 166 s.
    bench.foreign = vec![
        (0, 8 << 10),
        (5_000, 8 << 10),
        (17_000, 20 << 10),
        (60_000, 20 << 10),
        (61_000, 8 << 10),
        (130_000, 8 << 10),
        (160_000, 21 << 10),
        (165_000, 21 << 10),
        (166_000, 8 << 10),
    ];
    bench.run(166_000);
    let n_moves = bench.moves().filter(|(at, _)| *at > Millis(61_000)).count();
    assert_eq!(n_moves, 0, "{}", bench.story());
    bench.run(400_000);
    let (at, _) = bench.moves().find(|(_, moved)| !moved.is_down()).expect("it came back");
    assert!(at.0 >= 165_000 + limits::QUIET_MIN.0, "raised at {at}\n{}", bench.story());
}

#[test]
fn a_recovery_counts_as_undone_for_ten_minutes_and_no_longer() {
    for (after, expect) in [(limits::UNDONE_WITHIN.0 - 1, true), (limits::UNDONE_WITHIN.0, false)] {
        let mut quiet = Quiet::default();
        quiet.raised(Millis(1_000));
        assert_eq!(quiet.lowered(Millis(1_000 + after)), expect, "{after} ms later");
    }
}

#[test]
fn the_least_of_the_last_minute_is_forgotten_when_the_minute_is_over() {
    let mut least = Least::default();
    least.note(Millis(5_000), 1);
    assert_eq!(least.get(Millis(59_999)), Some(1));
    assert_eq!(least.get(Millis(60_000)), None);
    least.note(Millis(60_000), 7);
    least.note(Millis(60_001), 8);
    assert_eq!(least.get(Millis(60_001)), Some(7));
}

#[test]
fn the_fastest_growth_is_halved_each_hour_down_to_the_first_belief() {
    const HOUR: u64 = limits::FASTEST_HALF_LIFE.0;
    let mut trend = Trend::new(1_000);
    (0..6).for_each(|step| trend.note(Millis(step * 200), 1_000_000 - 1_600 * step as i64));
    let seen_at = 1_000;
    assert_eq!(trend.slope(), 8_000, "bytes a second");
    for (after, expect) in [(HOUR / 2, 8_000), (HOUR, 4_000), (2 * HOUR, 2_000), (3 * HOUR, 1_000), (24 * HOUR, 1_000)]
    {
        assert_eq!(trend.fastest(Millis(seen_at + after)), expect, "{after} ms later");
    }
}

#[test]
fn a_lever_at_its_floor_is_not_asked_again() {
    let mut bench = Bench::new(Mode::Act);
    bench.levers = vec![lever(Lever::PrefixCache, AccountId::Host, gib(1), gib(1)), bench.levers[1]];
    bench.foreign = vec![(0, 8 << 10), (5_000, 8 << 10), (17_000, 20 << 10)];
    bench.run(60_000);
    assert!(bench.moves().all(|(_, moved)| moved.lever == Lever::ResidentBudget), "{}", bench.story());
}

/// Host memory falls by 1.5 GiB a second: because the worker fills its own budget, or because others take it.
#[test]
fn what_our_own_levers_take_is_nobodys_growth() {
    for (is_ours, expect) in [(true, 0), (false, 1)] {
        let mut bench = Bench::new(Mode::Act);
        for step in 1..15 {
            bench.now = Millis(step * 200);
            let taken = mib(300 * step);
            let mut sample = bench.fresh();
            let host = sample.host.as_mut().expect("it is read");
            host.value.free = gib(9).saturating_sub(taken);
            host.value.room = host.value.free.0 as i64 - bench.margin.0 as i64;
            let levers = &mut sample.worker.as_mut().expect("it reports").value.levers;
            levers[1].held = if is_ours { gib(30).saturating_add(taken) } else { gib(30) };
            let out = bench.governor.step(bench.now, &Input::Sample(sample));
            bench.carry_out(&out);
        }
        assert_eq!(bench.moves().count().min(1), expect, "ours: {is_ours}\n{}", bench.story());
    }
}

#[test]
fn an_account_on_its_line_is_calm_and_a_byte_under_it_is_not() {
    for (under, is_calm) in [(0, true), (1, false)] {
        let mut governor = serving();
        look(&mut governor, 0, Bytes(gib(7).0 - under));
        assert_eq!(governor.is_calm(Millis(0)), is_calm, "{under} bytes under the line");
    }
}

#[test]
fn a_reading_counts_until_it_is_older_than_its_greatest_age() {
    let mut governor = serving();
    look(&mut governor, 0, mib((7 << 10) + 512)); // the fastest growth has taken that in half a second
    assert!(governor.is_calm(limits::READING_MAX_AGE));
    assert!(!governor.is_calm(Millis(limits::READING_MAX_AGE.0 + 1)));
}

#[test]
fn a_breath_is_no_growth_and_a_byte_more_is_one() {
    let breath = limits::HOST_SLOPE_NOISE.0 / 4;
    for (step, is_calm) in [(breath, true), (breath + 1, false)] {
        let mut governor = serving();
        for n in 0..=8 {
            let taken = step * n.min(7); // and at last the counter stands still
            look(&mut governor, n * 250, Bytes(gib(20).0 - taken));
            let is_known = n >= 3; // a slope takes four readings
            assert!(!is_known || governor.is_calm(Millis(n * 250)) == is_calm, "look {n}, {step} bytes each");
        }
    }
}

#[test]
fn before_its_worker_is_killed_a_move_has_the_time_that_the_return_of_its_bytes_takes() {
    let mut governor = serving();
    let out = look(&mut governor, 0, Bytes::ZERO);
    let [Order::Move(moved)] = out.orders[..] else { panic!("{:?}", out.orders) };
    let return_ms = moved.distance().0 * 1000 / limits::RETURN_PER_SECOND.0;
    assert!(return_ms > limits::OVERDUE.0, "{return_ms} ms: most of the time is for the bytes");
    let overdue = limits::OVERDUE.0 + return_ms;
    assert_eq!(look(&mut governor, overdue - 1, Bytes::ZERO).orders, []);
    let out = look(&mut governor, overdue, Bytes::ZERO);
    assert_eq!(out.orders, [Order::Restart { at_once: true }]);
}

#[test]
fn a_move_to_where_its_lever_stands_takes_nothing() {
    let still = Move { id: MoveId(1), lever: Lever::PrefixCache, account: AccountId::Host, from: gib(1), to: gib(1) };
    assert!(!still.is_down());
    assert!(Move { to: mib(1_023), ..still }.is_down());
}
