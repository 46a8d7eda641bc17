//! One card before a start: what it is, and what a person reads about it.

mod cards;

use cards::{
    DESKTOP_MIB, NOW, alive, card, desktop, desktop_and, gpu, mib, process, reading, reading_at, stored, worker,
};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::gpu::{Blindness, GpuMemory, GpuReading, Sight, Use};
use plimsoll_decide::identity::{Mismatch, ProcessState, Standing};
use plimsoll_decide::zero_check::{Baseline, KnownWorker, StoredBaseline, Verdict, zero_check};

/// A case: the card, against the stored desktop, with these workers.
#[track_caller]
fn check(memory: GpuMemory, workers: &[KnownWorker], name: &str, words: &str) -> Verdict {
    check_against(Some(&stored()), memory, workers, name, words)
}

#[track_caller]
fn first_look(memory: GpuMemory, workers: &[KnownWorker], name: &str, words: &str) -> Verdict {
    check_against(None, memory, workers, name, words)
}

#[track_caller]
fn check_against(
    stored: Option<&StoredBaseline>,
    memory: GpuMemory,
    workers: &[KnownWorker],
    name: &str,
    words: &str,
) -> Verdict {
    let verdict = zero_check(NOW, &reading(memory), stored, workers);
    assert_eq!(verdict.words(NOW, &gpu(0)), words);
    assert_eq!(verdict.name(), name, "{verdict:?}");
    verdict
}

/// The names of a dirty card's culprits.
fn culprits(verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Dirty(dirty) => dirty.culprits.iter().map(|culprit| culprit.process.to_string()).collect(),
        Verdict::Clean(_) | Verdict::Releasing(_) | Verdict::Blind(_) => panic!("{verdict:?} is not dirty"),
    }
}

fn to_store(verdict: &Verdict) -> Option<&Baseline> {
    match verdict {
        Verdict::Clean(clean) => clean.store.as_ref(),
        Verdict::Releasing(_) | Verdict::Dirty(_) | Verdict::Blind(_) => panic!("{verdict:?} is not clean"),
    }
}

#[test]
fn a_desktop_that_is_as_it_was_is_clean() {
    let verdict = check(
        card(DESKTOP_MIB + 4, vec![], desktop()),
        &[],
        "clean",
        "GPU 0 is clean: nothing foreign beyond the baseline (2,371 of 2,367 MiB, taken 3 days ago).\n",
    );
    assert_eq!((to_store(&verdict), verdict.rank()), (None, 0));
}

#[test]
fn the_tolerance_is_256_mib_or_2_percent_of_the_card() {
    let over_by = |total_mib: u64, more_mib: u64| {
        let mut memory = card(DESKTOP_MIB, vec![], desktop());
        memory.total = mib(total_mib);
        memory.free = mib(total_mib - DESKTOP_MIB - more_mib);
        zero_check(NOW, &reading(memory), Some(&stored()), &[]).name()
    };
    assert_eq!((over_by(12_282, 256), over_by(12_282, 257)), ("clean", "dirty"));
    // 2 % of 80 GiB are 1,638 MiB.
    assert_eq!((over_by(80 * 1024, 1600), over_by(80 * 1024, 1639)), ("clean", "dirty"));
}

#[test]
fn a_browser_that_was_opened_is_told_by_name() {
    let mut graphics = desktop();
    graphics[2].bytes = Some(mib(1_396));
    let verdict = check(
        card(DESKTOP_MIB + 966, vec![], graphics),
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 3,333 MiB, 966 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         chromium (pid 2003, alice) and 1 more draw on 1,400 MiB, 966 beyond its baseline\n",
    );
    let Verdict::Dirty(dirty) = &verdict else { panic!("{verdict:?}") };
    let culprit = &dirty.culprits[0];
    assert_eq!((culprit.usage, culprit.n_processes), (Use::Graphics, 2));
    assert_eq!((culprit.process.bytes, culprit.beyond), (Some(mib(1_400)), mib(966)));
    assert_eq!((dirty.over, dirty.unattributed), (mib(966 - 256), Bytes::ZERO));
}

#[test]
fn the_ten_gib_of_programs_left_open_are_listed_by_growth() {
    let compute = vec![process(812, "python3", 2_560), process(815, "blender", 5_000), process(816, "tiny", 40)];
    let verdict = check(
        desktop_and(compute),
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 9,967 MiB, 7,600 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         blender (pid 815, alice) computes on 5,000 MiB, none of it in the baseline\n  \
         python3 (pid 812, alice) computes on 2,560 MiB, none of it in the baseline\n",
    );
    assert_eq!(culprits(&verdict), ["blender (pid 815, alice)", "python3 (pid 812, alice)"]);
}

#[test]
fn many_culprits_are_counted_and_many_small_ones_are_nobody() {
    let many = (0..11).map(|i| process(900 + i, &format!("program-{i}"), 100 + u64::from(i))).collect();
    let verdict = zero_check(NOW, &reading(desktop_and(many)), Some(&stored()), &[]);
    let words = verdict.words(NOW, &gpu(0));
    assert_eq!(culprits(&verdict).len(), limits::MAX_CULPRITS);
    assert!(words.ends_with("  and 3 more\n"), "{words}");

    let small = (0..10).map(|i| process(900 + i, &format!("program-{i}"), 40)).collect();
    let verdict = zero_check(NOW, &reading(desktop_and(small)), Some(&stored()), &[]);
    let words = verdict.words(NOW, &gpu(0));
    assert!(words.ends_with("  many programs grew a little, none by much: close what you do not need\n"), "{words}");
}

#[test]
fn a_program_in_both_lists_is_counted_once() {
    let mut graphics = desktop();
    graphics.push(process(700, "game", 3_000));
    let memory = card(DESKTOP_MIB + 3_000, vec![process(700, "game", None)], graphics);
    check(
        memory,
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 5,367 MiB, 3,000 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         game (pid 700, alice) computes and draws on 3,000 MiB, none of it in the baseline\n",
    );
}

#[test]
fn the_first_look_takes_who_draws_for_the_desktop_and_stores_it() {
    let verdict = first_look(
        desktop_and(vec![process(600, "ptyxis-agent", 64)]),
        &[],
        "clean",
        "GPU 0 counts as clean: 2,431 MiB are held, and nobody computes on more than 64. There is no baseline yet: programs \
         that only draw (1,877 MiB) count as the desktop, and what is held now becomes the baseline.\n",
    );
    let baseline = to_store(&verdict).expect("the first one is stored");
    assert_eq!((baseline.held, baseline.gpu_uuid.as_str()), (mib(2_431), "GPU-0"));
    assert_eq!(baseline.programs["chromium"], mib(434));
    assert_eq!(baseline.unattributed, mib(490));
    // Another card's baseline is none.
    let other = StoredBaseline { baseline: Baseline { gpu_uuid: "GPU-1".to_owned(), ..stored().baseline }, ..stored() };
    assert_eq!(zero_check(NOW, &reading(desktop_and(vec![])), Some(&other), &[]).name(), "clean");
    let verdict = zero_check(NOW, &reading(desktop_and(vec![])), Some(&other), &[]);
    assert!(to_store(&verdict).is_some());
}

#[test]
fn the_first_look_names_who_computes() {
    let verdict = first_look(
        desktop_and(vec![process(812, "python3", 65), process(813, "python3", 2_560)]),
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 4,992 MiB. There is no baseline yet: programs that only draw (1,877 MiB) count as the \
         desktop, the others do not:\n  \
         python3 (pid 813, alice) and 1 more compute on 2,625 MiB\n  \
         490 MiB have no name: held by a process that the driver does not list, or not yet given back by one that has \
         ended\n",
    );
    let Verdict::Dirty(dirty) = &verdict else { panic!("{verdict:?}") };
    assert_eq!(dirty.over, mib(2_625));
}

#[test]
fn an_old_baseline_is_renewed_by_a_clean_start() {
    let of_age = |age| StoredBaseline { age, ..stored() };
    let store = |age| {
        let verdict = zero_check(NOW, &reading(desktop_and(vec![])), Some(&of_age(age)), &[]);
        to_store(&verdict).is_some()
    };
    assert!(!store(Millis(limits::BASELINE_RENEWAL_AGE.0 - 1)));
    assert!(store(limits::BASELINE_RENEWAL_AGE));
    let words = |age| zero_check(NOW, &reading(desktop_and(vec![])), Some(&of_age(age)), &[]).words(NOW, &gpu(0));
    for (age_s, text) in [(40, "40 s"), (720, "12 min"), (18_000, "5 h"), (172_800, "2 days")] {
        let words = words(Millis::from_secs(age_s));
        assert!(words.contains(&format!("taken {text} ago")), "{words}");
    }
}

#[test]
fn a_baseline_keeps_the_largest_programs() {
    let many = (0..100).map(|i| process(3000 + i, &format!("program-{i:02}"), u64::from(i))).collect();
    let baseline = Baseline::of(&gpu(0), &desktop_and(many));
    assert_eq!(baseline.programs.len(), limits::MAX_BASELINE_PROGRAMS);
    assert!(baseline.programs.contains_key("program-99") && !baseline.programs.contains_key("program-01"));
}

#[test]
fn na_bytes_on_a_card_that_holds_too_much_are_a_name_without_a_figure() {
    let memory = card(DESKTOP_MIB + 4_000, vec![process(812, "python3", None)], desktop());
    check(
        memory.clone(),
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 6,367 MiB, 4,000 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         python3 (pid 812, alice) computes; on how much, the driver does not say (N/A)\n  \
         4,000 MiB have no name: for some programs the driver gives no figure (N/A), they are among them\n",
    );
    // Without a baseline too: a context costs more than what a culprit may have.
    let verdict = zero_check(NOW, &reading(memory), None, &[]);
    assert_eq!(culprits(&verdict), ["python3 (pid 812, alice)"]);
    // Where the driver never gives figures, the counter decides.
    let unknown = |held_mib| {
        let nobody_known = desktop().into_iter().map(|process| cards::process(process.pid, "x", None)).collect();
        card(held_mib, vec![], nobody_known)
    };
    let baseline = Baseline::of(&gpu(0), &unknown(DESKTOP_MIB));
    let stored = StoredBaseline { baseline, age: Millis(0) };
    let name = |held_mib| zero_check(NOW, &reading(unknown(held_mib)), Some(&stored), &[]).name();
    assert_eq!((name(DESKTOP_MIB + 256), name(DESKTOP_MIB + 257)), ("clean", "dirty"));
}

#[test]
fn an_empty_list_in_a_pid_namespace_is_not_an_empty_card() {
    check(
        card(DESKTOP_MIB + 5_120, vec![], vec![]),
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 7,487 MiB, 5,120 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         6,997 MiB have no name: the driver lists nobody. In a container it lists only processes of the same PID namespace: \
         look on the host, or share its PID namespace\n",
    );
    // Without a baseline a desktop may be what nobody is named for, but not more than that.
    let name = |held_mib| zero_check(NOW, &reading(card(held_mib, vec![], vec![])), None, &[]).name();
    assert_eq!((name(0), name(3_069), name(3_072)), ("clean", "clean", "dirty"));
    let verdict = zero_check(NOW, &reading(card(3_072, vec![], vec![])), None, &[]);
    assert_eq!(culprits(&verdict), Vec::<String>::new());
    assert!(verdict.words(NOW, &gpu(0)).contains("3,072 MiB have no name: the driver lists nobody."));
}

#[test]
fn what_the_driver_keeps_for_itself_is_nobodys() {
    let memory = GpuMemory { driver_reserved: Some(mib(400)), ..card(3_400, vec![], vec![]) };
    let verdict = zero_check(NOW, &reading(memory.clone()), None, &[]);
    assert_eq!(verdict.name(), "clean");
    assert_eq!(to_store(&verdict).map(|baseline| baseline.unattributed), Some(mib(3_000)));
    assert!(memory.lists_nobody());
}

#[test]
fn lists_that_name_more_than_the_counter_are_believed() {
    // The counter stands still at the desktop while the list already shows a program.
    let memory = card(DESKTOP_MIB, vec![process(812, "python3", 4_000)], desktop());
    assert_eq!(zero_check(NOW, &reading(memory), Some(&stored()), &[]).name(), "dirty");
}

#[test]
fn a_stale_worker_of_ours_is_releasing_never_clean() {
    let one_second = Millis(1_200);
    let verdict = check(
        desktop_and(vec![process(4410, "plimsoll-worker", 9_318)]),
        &[worker(4410, alive(), one_second)],
        "releasing",
        "GPU 0 is releasing: worker 4410 (ours, told to end 1.2 s ago) holds 9,318 MiB.\n",
    );
    assert_eq!((verdict.rank(), verdict.leaving().len()), (1, 1));
    // Listed, though it holds next to nothing, and though its process can't be looked up any more.
    let mut gone = process(4410, "plimsoll-worker", 1);
    gone.start_ticks = None;
    check(
        desktop_and(vec![gone]),
        &[worker(4410, Standing::Gone, one_second)],
        "releasing",
        "GPU 0 is releasing: worker 4410 (ours, ended 1.2 s ago) holds 1 MiB.\n",
    );
    // Alive and not listed, as in a PID namespace.
    check(
        desktop_and(vec![]),
        &[worker(4410, alive(), one_second)],
        "releasing",
        "GPU 0 is releasing: worker 4410 (ours, told to end 1.2 s ago) holds an unknown amount.\n",
    );
}

#[test]
fn memory_without_a_name_is_ours_for_30_s_after_an_exit_and_dirt_then() {
    let memory = || card(DESKTOP_MIB + 9_000, vec![], desktop());
    check(
        memory(),
        &[worker(4410, Standing::Gone, Millis(29_999))],
        "releasing",
        "GPU 0 is releasing: 8,744 MiB beyond the allowance are still to come back: worker 4410 (ours, ended 29.9 s ago) \
         holds an unknown amount.\n",
    );
    check(
        memory(),
        &[worker(4410, Standing::Gone, Millis(30_000))],
        "dirty",
        "GPU 0 is dirty: others hold 11,367 MiB, 9,000 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         9,000 MiB have no name: held by a process that the driver does not list, or not yet given back by one that has \
         ended\n",
    );
    // Without a baseline as well.
    let ended = |ago| zero_check(NOW, &reading(memory()), None, &[worker(4410, Standing::Gone, Millis(ago))]).name();
    assert_eq!((ended(29_999), ended(30_000)), ("releasing", "dirty"));
    // Nothing is too much: that it ended a moment ago is no reason to wait.
    let verdict =
        zero_check(NOW, &reading(desktop_and(vec![])), Some(&stored()), &[worker(1, Standing::Gone, Millis(0))]);
    assert_eq!(verdict.name(), "clean");
}

#[test]
fn ours_is_leaving_and_somebody_else_is_dirty_is_dirty() {
    let compute = vec![process(4410, "plimsoll-worker", 5_000), process(812, "python3", 2_560)];
    check(
        desktop_and(compute),
        &[worker(4410, alive(), Millis(1_200))],
        "dirty",
        "GPU 0 is dirty: others hold 4,927 MiB, 2,560 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         python3 (pid 812, alice) computes on 2,560 MiB, none of it in the baseline\n  \
         besides, worker 4410 (ours, told to end 1.2 s ago) holds 5,000 MiB\n",
    );
    // At a first look as well.
    let compute = vec![process(4410, "plimsoll-worker", 5_000), process(812, "python3", 2_560)];
    let verdict = zero_check(NOW, &reading(desktop_and(compute)), None, &[worker(4410, alive(), Millis(0))]);
    assert_eq!(culprits(&verdict), ["python3 (pid 812, alice)"]);
}

/// What has a name is within what is tolerated: then what is too much may well be ours, on its way back.
#[test]
fn names_for_no_more_than_the_tolerance_are_not_enough() {
    let with_python = |n_mib: u64| {
        let memory = card(DESKTOP_MIB + n_mib + 10, vec![process(812, "python3", n_mib)], desktop());
        zero_check(NOW, &reading(memory), Some(&stored()), &[worker(4410, Standing::Gone, Millis(0))]).name()
    };
    assert_eq!((with_python(256), with_python(257)), ("releasing", "dirty"));
}

#[test]
fn a_pid_that_was_given_out_again_is_somebody_elses() {
    let mut reused = process(4410, "python3", 2_560);
    reused.start_ticks = Some(7);
    let words = "GPU 0 is dirty: others hold 4,927 MiB, 2,560 beyond the baseline of 2,367 (taken 3 days ago; 256 are \
                 tolerated):\n  python3 (pid 4410, alice) computes on 2,560 MiB, none of it in the baseline\n";
    for standing in [Standing::Gone, alive()] {
        let verdict = zero_check(
            NOW,
            &reading(desktop_and(vec![reused.clone()])),
            Some(&stored()),
            &[worker(4410, standing, limits::RELEASE_TIMEOUT)],
        );
        assert_eq!(culprits(&verdict), ["python3 (pid 4410, alice)"]);
    }
    let stranger = Standing::Stranger(Mismatch::StartTime);
    check(desktop_and(vec![reused]), &[worker(4410, stranger, Millis::from_secs(60))], "dirty", words);
}

#[test]
fn workers_that_are_not_ours_to_end_are_others() {
    let unproven = Standing::Unproven { why: "permission denied".to_owned() };
    let strangers = [Mismatch::Boot, Mismatch::Pid, Mismatch::Instance].map(Standing::Stranger);
    for standing in [unproven, Standing::Guarded].into_iter().chain(strangers) {
        let memory = desktop_and(vec![process(4410, "plimsoll-worker", 5_000)]);
        let verdict = zero_check(NOW, &reading(memory), Some(&stored()), &[worker(4410, standing, Millis(0))]);
        assert_eq!(culprits(&verdict), ["plimsoll-worker (pid 4410, alice)"]);
        assert_eq!(verdict.leaving(), []);
    }
}

#[test]
fn a_d_state_holder_is_told_with_the_reason() {
    let blocked = Standing::Ours { state: ProcessState::Uninterruptible };
    check(
        card(DESKTOP_MIB + 9_000, vec![], desktop()),
        &[worker(4410, blocked, Millis(95_000))],
        "releasing",
        "GPU 0 is releasing: 8,744 MiB beyond the allowance are still to come back: worker 4410 (ours, told to end 95.0 s \
         ago) holds an unknown amount: it is in an uninterruptible wait in the kernel (state D): no \
         signal reaches it, and its memory comes back when the driver lets it go; look for Xid lines in the kernel's log.\n",
    );
    // Somebody else's.
    let mut memory = card(DESKTOP_MIB + 9_000, vec![], desktop());
    memory.blocked = vec![process(812, "python3", None), process(2001, "gnome-shell", None)];
    check(
        memory,
        &[],
        "dirty",
        "GPU 0 is dirty: others hold 11,367 MiB, 9,000 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         python3 (pid 812, alice) is in an uninterruptible wait in the kernel (state D), has the card open and is not \
         listed: it may hold what has no name; no signal reaches it, look for Xid lines in the kernel's log\n  \
         9,000 MiB have no name: held by a process that the driver does not list, or not yet given back by one that has \
         ended\n",
    );
    // A zombie is in the way only while something is missing.
    let zombie = || [worker(4410, Standing::Ours { state: ProcessState::Zombie }, Millis(95_000))];
    assert_eq!(zero_check(NOW, &reading(desktop_and(vec![])), Some(&stored()), &zombie()).name(), "clean");
    let verdict = zero_check(NOW, &reading(card(9_000, vec![], desktop())), Some(&stored()), &zombie());
    assert!(
        verdict
            .words(NOW, &gpu(0))
            .contains("has ended and was not collected; threads of it may still be in the driver")
    );
}

#[test]
fn a_driver_that_does_not_answer_is_blind_not_free() {
    let blind = |sight: Sight| {
        let reading = GpuReading { gpu: gpu(0), at: NOW, sight };
        let verdict = zero_check(NOW, &reading, Some(&stored()), &[]);
        assert_eq!((verdict.name(), verdict.rank(), verdict.leaving()), ("blind", 3, [].as_slice()));
        verdict.words(NOW, &gpu(0))
    };
    assert_eq!(
        blind(Sight::Blind(Blindness::Silent { waited: Millis::from_secs(45) })),
        "GPU 0 is blind: the driver did not answer within 45 s; look for Xid and GSP lines in the kernel's log. What is held \
         there is not known, and unknown does not count as free.\n"
    );
    let lost = Blindness::Failed { why: "GPU is lost".to_owned() };
    assert!(blind(Sight::Blind(lost)).starts_with("GPU 0 is blind: the driver answered with an error: GPU is lost. "));
    let words = blind(Sight::Seen(GpuMemory { free: mib(13_000), ..desktop_and(vec![]) }));
    assert!(
        words.starts_with("GPU 0 is blind: the driver says 13,000 MiB free of 12,282, which can't be. "),
        "{words}"
    );
    let nothing = GpuMemory { total: Bytes::ZERO, free: Bytes::ZERO, ..desktop_and(vec![]) };
    assert!(blind(Sight::Seen(nothing)).contains("0 MiB free of 0"));
}

#[test]
fn a_stale_reading_counts_as_none() {
    let at = |age: Millis| {
        let reading = reading_at(Millis(NOW.0 - age.0), desktop_and(vec![]));
        zero_check(NOW, &reading, Some(&stored()), &[])
    };
    assert_eq!(at(limits::GPU_READING_MAX_AGE).name(), "clean");
    let stale = at(Millis(limits::GPU_READING_MAX_AGE.0 + 100));
    assert_eq!(stale, Verdict::Blind(Blindness::Stale { age: Millis(2_100) }));
    assert!(stale.words(NOW, &gpu(0)).starts_with("GPU 0 is blind: the last answer of the driver is 2.1 s old; "));
}

#[test]
fn a_process_that_nothing_is_known_of_is_still_a_process() {
    let mut nameless = process(812, "", 2_560);
    (nameless.command, nameless.user, nameless.start_ticks) = (None, None, None);
    let verdict = zero_check(NOW, &reading(desktop_and(vec![nameless])), Some(&stored()), &[]);
    assert_eq!(culprits(&verdict), ["unknown program (pid 812)"]);
}
