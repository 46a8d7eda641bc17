//! What holds for the zero check whatever is on the card.

mod cards;

use cards::{NOW, TOTAL_MIB, desktop, gpu, mib, process, reading, record, stored};
use plimsoll_config::units::Millis;
use plimsoll_decide::gpu::{GpuMemory, GpuProcess, listed};
use plimsoll_decide::identity::{Mismatch, ProcessState, Standing};
use plimsoll_decide::zero_check::{KnownWorker, StoredBaseline, Verdict, zero_check};
use proptest::prelude::*;

fn any_standing() -> impl Strategy<Value = Standing> {
    prop_oneof![
        3 => prop::sample::select(vec![ProcessState::Running, ProcessState::Uninterruptible, ProcessState::Zombie])
            .prop_map(|state| Standing::Ours { state }),
        3 => Just(Standing::Gone),
        1 => prop::sample::select(vec![Mismatch::Boot, Mismatch::StartTime, Mismatch::Instance]).prop_map(Standing::Stranger),
        1 => Just(Standing::Guarded),
        1 => Just(Standing::Unproven { why: "why".to_owned() }),
    ]
}

fn any_worker() -> impl Strategy<Value = KnownWorker> {
    (4410..4413u32, any_standing(), 0..60_000u64).prop_map(|(pid, standing, ago)| KnownWorker {
        record: record(pid),
        standing,
        since: Millis(NOW.0 - ago),
    })
}

/// Somebody on the card: a program of the desktop, a new one, or a process with a worker's pid.
fn any_process() -> impl Strategy<Value = GpuProcess> {
    let who = prop::sample::select(vec![
        (2003, "chromium"),
        (812, "python3"),
        (813, "python3"),
        (4410, "plimsoll-worker"),
        (4411, "plimsoll-worker"),
    ]);
    (who, prop::option::weighted(0.8, 0..4_000u64), any::<bool>()).prop_map(|((pid, command), held_mib, has_start)| {
        let process = process(pid, command, held_mib);
        GpuProcess { start_ticks: process.start_ticks.filter(|_| has_start), ..process }
    })
}

fn any_memory() -> impl Strategy<Value = GpuMemory> {
    let list = || prop::collection::vec(any_process(), 0..4);
    (0..=TOTAL_MIB, list(), list(), prop::option::of(0..1_000u64), any::<bool>()).prop_map(
        |(free_mib, compute, mut graphics, reserved_mib, has_desktop)| {
            if has_desktop {
                graphics.extend(desktop());
            }
            let driver_reserved = reserved_mib.map(mib);
            GpuMemory {
                total: mib(TOTAL_MIB),
                free: mib(free_mib),
                driver_reserved,
                compute,
                graphics,
                blocked: vec![],
            }
        },
    )
}

fn any_baseline() -> impl Strategy<Value = Option<StoredBaseline>> {
    prop_oneof![Just(None), Just(Some(stored()))]
}

fn verdict(memory: &GpuMemory, baseline: Option<&StoredBaseline>, workers: &[KnownWorker]) -> Verdict {
    zero_check(NOW, &reading(memory.clone()), baseline, workers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn never_clean_while_a_worker_of_ours_lives_or_is_listed(
        memory in any_memory(),
        baseline in any_baseline(),
        workers in prop::collection::vec(any_worker(), 0..3),
    ) {
        let is_there = |worker: &KnownWorker| {
            let Standing::Ours { state } = &worker.standing else { return false };
            let is_listed = memory.holders().iter().any(|holder| holder.process.pid == worker.record.pid);
            is_listed || *state != ProcessState::Zombie
        };
        if workers.iter().any(is_there) {
            let found = verdict(&memory, baseline.as_ref(), &workers);
            prop_assert!(found.rank() > 0 && !found.leaving().is_empty(), "{:?}", found);
        }
    }

    #[test]
    fn nothing_gets_better_when_others_take_more(
        memory in any_memory(),
        baseline in any_baseline(),
        workers in prop::collection::vec(any_worker(), 0..3),
        more_mib in 0..6_000u64,
        at in any::<prop::sample::Index>(),
        is_named in any::<bool>(),
    ) {
        let before = verdict(&memory, baseline.as_ref(), &workers).rank();
        let mut more = memory;
        let taken = mib(more_mib).min(more.free);
        more.free = more.free.saturating_sub(taken);
        // Somebody who is listed with a figure, and not ours, or nobody who is.
        let is_ours = |pid: u32| workers.iter().any(|worker| worker.record.pid == pid);
        let mut others: Vec<&mut GpuProcess> =
            more.compute.iter_mut().filter(|process| process.bytes.is_some() && !is_ours(process.pid)).collect();
        if is_named && !others.is_empty() {
            let other = at.index(others.len());
            others[other].bytes = others[other].bytes.map(|bytes| bytes.saturating_add(taken));
        }
        let after = verdict(&more, baseline.as_ref(), &workers);
        prop_assert!(after.rank() >= before, "{} → {:?}", before, after);
    }

    #[test]
    fn every_verdict_has_words_and_counts_no_byte_twice(
        memory in any_memory(),
        baseline in any_baseline(),
        workers in prop::collection::vec(any_worker(), 0..3),
    ) {
        let found = verdict(&memory, baseline.as_ref(), &workers);
        let words = found.words(NOW, &gpu(0));
        prop_assert!(words.starts_with("GPU 0 ") && words.ends_with('\n'), "{}", words);
        let held = memory.held().max(listed(&memory.holders()));
        match found {
            Verdict::Clean(clean) => prop_assert!(clean.foreign <= held && clean.store.is_some() == baseline.is_none()),
            Verdict::Releasing(releasing) => {
                prop_assert!(releasing.over <= held && !releasing.leaving.is_empty());
                prop_assert!(releasing.leaving.iter().all(|worker| worker.since >= releasing.since));
            }
            Verdict::Dirty(dirty) => {
                prop_assert!(dirty.foreign <= held && dirty.over <= held);
                for culprit in &dirty.culprits {
                    prop_assert!(culprit.process.bytes.is_none_or(|bytes| culprit.beyond <= bytes && bytes <= held));
                }
            }
            Verdict::Blind(why) => prop_assert!(false, "{}", why),
        }
    }

    #[test]
    fn what_is_clean_becomes_a_baseline_against_which_it_is_clean(memory in any_memory()) {
        if let Verdict::Clean(clean) = verdict(&memory, None, &[]) {
            let baseline = clean.store.expect("the first look stores");
            let stored = StoredBaseline { baseline, age: Millis(0) };
            prop_assert_eq!(verdict(&memory, Some(&stored), &[]).name(), "clean");
        }
    }
}
