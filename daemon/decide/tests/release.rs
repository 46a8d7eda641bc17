//! Traces of memory on its way back, and what a person reads on the way.

mod cards;

use std::collections::BTreeMap;

use cards::{TOTAL_MIB, desktop, gpu, mib, process};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::gpu::{Blindness, GpuMemory, GpuProcess, GpuReading, Sight};
use plimsoll_decide::identity::ProcessState;
use plimsoll_decide::release::{HostReading, Leaver, Missing, Place, Reading, Release, Released, Step};

/// The worker ends at this point in time.
const END: Millis = Millis(500_000);

/// What the worker held on the card.
const HELD_MIB: u64 = 9_318;

fn at(ms: u64) -> Millis {
    Millis(END.0 + ms)
}

fn leaver() -> Leaver {
    Leaver { pid: 4410, start_ticks: 44_100, vram: BTreeMap::new(), host: None }
}

fn host(ms: u64, available_mib: u64) -> HostReading {
    HostReading { at: at(ms), available: mib(available_mib), foreign: None }
}

/// A card with this much free, the desktop and these, read this long after the end.
fn card(index: u32, ms: u64, free_mib: u64, compute: Vec<GpuProcess>) -> GpuReading {
    let memory = GpuMemory {
        total: mib(TOTAL_MIB),
        free: mib(free_mib),
        driver_reserved: None,
        compute,
        graphics: desktop(),
        blocked: vec![],
    };
    GpuReading { gpu: gpu(index), at: at(ms), sight: Sight::Seen(memory) }
}

fn blind(ms: u64) -> GpuReading {
    let sight = Sight::Blind(Blindness::Silent { waited: Millis::from_secs(2) });
    GpuReading { gpu: gpu(0), at: at(ms), sight }
}

fn ours(held_mib: impl Into<Option<u64>>) -> GpuProcess {
    process(4410, "plimsoll-worker", held_mib)
}

fn reading(ms: u64, gpus: Vec<GpuReading>) -> Reading {
    Reading { gpus, host: host(ms, 20_000), process: None }
}

/// One card before the stop: the worker holds what it holds, 597 MiB are free.
fn before() -> Reading {
    reading(0, vec![card(0, 0, 597, vec![ours(HELD_MIB)])])
}

fn release() -> Release {
    Release::new(leaver(), &before(), END, limits::RELEASE_TIMEOUT)
}

/// Takes a look at one card.
fn look(release: &mut Release, ms: u64, free_mib: u64, compute: Vec<GpuProcess>) -> Step {
    release.step(at(ms), &reading(ms, vec![card(0, ms, free_mib, compute)]))
}

#[track_caller]
fn is_waiting(step: Step, words: &str) {
    match step {
        Step::Waiting { progress, .. } => assert_eq!(progress, words),
        Step::Released(_) | Step::TimedOut { .. } => panic!("{step:?}"),
    }
}

#[track_caller]
fn is_released(step: Step, latency_ms: u64) -> Released {
    match step {
        Step::Released(released) => {
            assert_eq!(released.latency, Millis(latency_ms));
            released
        }
        Step::Waiting { .. } | Step::TimedOut { .. } => panic!("{step:?}"),
    }
}

#[track_caller]
fn has_timed_out(step: Step, expect: &[(Place, Option<Bytes>)], expect_words: &str) {
    match step {
        Step::TimedOut { missing, words } => {
            assert_eq!(words, expect_words);
            let expect = expect.iter().cloned().map(|(place, bytes)| Missing { place, bytes }).collect::<Vec<_>>();
            assert_eq!(missing, expect);
        }
        Step::Waiting { .. } | Step::Released(_) => panic!("{step:?}"),
    }
}

#[test]
fn the_usual_release() {
    let mut release = release();
    let step = look(&mut release, 300, 597, vec![ours(HELD_MIB)]);
    let Step::Waiting { look_at, .. } = step else { panic!() };
    assert_eq!(look_at, at(400));
    is_waiting(
        step,
        "waiting for memory, 0.3 s: GPU 0: the driver still lists worker 4410, nothing of 9,318 MiB is back yet",
    );
    is_waiting(
        look(&mut release, 900, 5_597, vec![ours(4_318)]),
        "waiting for memory, 0.9 s: GPU 0: the driver still lists worker 4410, 5,000 of 9,318 MiB are back",
    );
    // The bytes are back, but it is still listed.
    is_waiting(
        look(&mut release, 1_000, 9_915, vec![ours(0)]),
        "waiting for memory, 1.0 s: GPU 0: the driver still lists worker 4410, 9,318 of 9,318 MiB are back",
    );
    let released = is_released(look(&mut release, 1_100, 9_915, vec![]), 1_100);
    assert_eq!(released.gpus, [(gpu(0), Millis(1_100))]);
    assert_eq!(released.words(), "released: all of it after 1.1 s (GPU 0 1.1 s, host not awaited)");
}

#[test]
fn a_counter_that_is_frozen_for_8_s_has_not_begun() {
    let mut release = release();
    for ms in (100..=8_000).step_by(100) {
        let step = look(&mut release, ms, 597, vec![]);
        let words = match ms {
            0..2_000 => String::new(),
            _ => format!(", the free counter has stood at 597 MiB for {}.{} s", ms / 1000, ms % 1000 / 100),
        };
        is_waiting(
            step,
            &format!(
                "waiting for memory, {}.{} s: GPU 0: worker 4410 is listed no more, nothing of 9,318 MiB is back yet{words}",
                ms / 1000,
                ms % 1000 / 100
            ),
        );
    }
    is_waiting(
        look(&mut release, 8_100, 6_000, vec![]),
        "waiting for memory, 8.1 s: GPU 0: worker 4410 is listed no more, 5,403 of 9,318 MiB are back",
    );
    is_released(look(&mut release, 8_200, 9_800, vec![]), 8_200);
}

/// The smallest worker that is waited for, and the smallest step that counts.
#[test]
fn a_worker_of_16_mib_is_waited_for_until_all_of_it_is_back() {
    let before = reading(0, vec![card(0, 0, 597, vec![ours(16)])]);
    let mut release = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    assert!(matches!(look(&mut release, 500, 612, vec![]), Step::Waiting { .. }));
    is_released(look(&mut release, 600, 613, vec![]), 600);
}

#[test]
fn a_program_that_grows_meanwhile_does_not_keep_us_waiting() {
    let mut release = release();
    let python = |held_mib| process(812, "python3", held_mib);
    is_waiting(
        look(&mut release, 1_000, 4_597, vec![ours(3_318), python(2_000)]),
        "waiting for memory, 1.0 s: GPU 0: the driver still lists worker 4410, 6,000 of 9,318 MiB are back; others took \
         2,000 MiB meanwhile, most of it python3 (pid 812, alice)",
    );
    is_released(look(&mut release, 1_500, 3_915, vec![python(6_000)]), 1_500);
}

#[test]
fn what_another_program_gave_back_is_not_ours() {
    let before = reading(0, vec![card(0, 0, 597, vec![ours(5_000), process(812, "python3", 4_318)])]);
    let mut release = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    let words = "GPU 0: worker 4410 is listed no more, nothing of 5,000 MiB is back yet";
    is_waiting(look(&mut release, 500, 4_915, vec![]), &format!("waiting for memory, 0.5 s: {words}"));
    // A figure that the driver no longer gives is not a figure of 0.
    let mut again = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    is_waiting(
        look(&mut again, 500, 4_597, vec![process(812, "python3", None)]),
        "waiting for memory, 0.5 s: GPU 0: worker 4410 is listed no more, 4,000 of 5,000 MiB are back",
    );
    is_released(look(&mut release, 900, 9_915, vec![]), 900);
}

#[test]
fn a_list_that_moves_under_a_frozen_counter_proves_nothing() {
    let roomy = reading(0, vec![card(0, 0, 5_000, vec![ours(4_000)])]);
    let mut release = Release::new(leaver(), &roomy, END, limits::RELEASE_TIMEOUT);
    let python = vec![process(812, "python3", 4_500)];
    is_waiting(
        look(&mut release, 700, 5_000, python.clone()),
        "waiting for memory, 0.7 s: GPU 0: worker 4410 is listed no more, nothing of 4,000 MiB is back yet; others took \
         4,500 MiB meanwhile, most of it python3 (pid 812, alice)",
    );
    is_released(look(&mut release, 900, 4_500, python), 900);
}

#[test]
fn free_memory_that_falls_is_told_and_times_out() {
    let mut release = release();
    for (ms, free_mib) in [(1_000, 500), (2_000, 300), (3_000, 200)] {
        let Step::Waiting { progress, .. } = look(&mut release, ms, free_mib, vec![]) else { panic!() };
        let words = format!("nothing of 9,318 MiB is back yet, free memory fell from 597 to {free_mib} MiB");
        assert!(progress.ends_with(&words), "{progress}");
    }
    has_timed_out(
        look(&mut release, 30_000, 120, vec![]),
        &[(Place::Gpu(gpu(0)), Some(mib(HELD_MIB)))],
        "The memory of worker 4410 has not come back within 30.0 s; the next start looks at what is left:\n  \
         GPU 0: worker 4410 is listed no more, nothing of 9,318 MiB is back yet, free memory fell from 597 to 120 MiB\n",
    );
    // Whoever looks again finds it back all the same.
    is_released(look(&mut release, 45_000, 9_915, vec![]), 45_000);
}

#[test]
fn the_last_wait_ends_at_the_deadline() {
    let mut release = release();
    let Step::Waiting { look_at, .. } = look(&mut release, 29_950, 597, vec![]) else { panic!() };
    assert_eq!(look_at, at(30_000));
}

#[test]
fn na_bytes_need_a_contexts_worth_and_a_counter_that_stands() {
    let before = reading(0, vec![card(0, 0, 597, vec![ours(None)])]);
    let mut release = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    let progress = |step: Step| match step {
        Step::Waiting { progress, .. } => progress,
        other => panic!("{other:?}"),
    };
    // A desktop's breath is no departure, however long it stands.
    assert!(progress(look(&mut release, 100, 697, vec![])).ends_with("nothing is back yet of what it held (N/A)"));
    assert!(progress(look(&mut release, 5_000, 697, vec![])).contains("stood at 697 MiB for 4.9 s"));
    assert!(progress(look(&mut release, 6_000, 9_000, vec![])).ends_with("8,403 MiB are back of what it held (N/A)"));
    look(&mut release, 7_900, 9_010, vec![]);
    let released = is_released(look(&mut release, 8_000, 9_012, vec![]), 8_000);
    assert_eq!(released.host, None);

    // What the worker said itself is better than nothing.
    let mut leaver = leaver();
    leaver.vram.insert("GPU-0".to_owned(), mib(9_000));
    let mut release = Release::new(leaver.clone(), &before, END, limits::RELEASE_TIMEOUT);
    is_released(look(&mut release, 900, 9_700, vec![]), 900);
    // Of two figures the larger one: the list has the driver's own context, the worker has what it is about to free.
    for listed_mib in [8_000, HELD_MIB] {
        let before = reading(0, vec![card(0, 0, 597, vec![ours(listed_mib)])]);
        let mut release = Release::new(leaver.clone(), &before, END, limits::RELEASE_TIMEOUT);
        assert!(matches!(look(&mut release, 900, 8_700, vec![]), Step::Waiting { .. }));
    }
    // And 0 of a worker that is listed without a figure is no figure.
    leaver.vram.insert("GPU-0".to_owned(), Bytes::ZERO);
    let mut release = Release::new(leaver, &before, END, limits::RELEASE_TIMEOUT);
    assert!(matches!(look(&mut release, 900, 597, vec![]), Step::Waiting { .. }));
}

#[test]
fn in_a_pid_namespace_the_bytes_decide() {
    let unlisted = |ms, free_mib| {
        let GpuReading { gpu, at, sight } = card(0, ms, free_mib, vec![]);
        let Sight::Seen(memory) = sight else { panic!() };
        GpuReading { gpu, at, sight: Sight::Seen(GpuMemory { graphics: vec![], ..memory }) }
    };
    let mut reported = leaver();
    reported.vram.insert("GPU-0".to_owned(), mib(HELD_MIB));
    let mut release = Release::new(reported, &reading(0, vec![unlisted(0, 597)]), END, limits::RELEASE_TIMEOUT);
    is_waiting(
        release.step(at(1_000), &reading(1_000, vec![unlisted(1_000, 597)])),
        "waiting for memory, 1.0 s: GPU 0: worker 4410 is listed no more, nothing of 9,318 MiB is back yet",
    );
    is_released(release.step(at(1_200), &reading(1_200, vec![unlisted(1_200, 9_915)])), 1_200);

    // Nothing is listed, nothing was said: it may have held all of it.
    let mut release = Release::new(leaver(), &reading(0, vec![unlisted(0, 597)]), END, limits::RELEASE_TIMEOUT);
    has_timed_out(
        release.step(at(30_000), &reading(30_000, vec![unlisted(30_000, 597)])),
        &[(Place::Gpu(gpu(0)), None)],
        "The memory of worker 4410 has not come back within 30.0 s; the next start looks at what is left:\n  \
         GPU 0: worker 4410 is listed no more, nothing is back yet of what it held (N/A), the free counter has stood at \
         597 MiB for 30.0 s\n",
    );
}

#[test]
fn nothing_held_is_nothing_to_wait_for() {
    let nobody = reading(0, vec![card(0, 0, 9_900, vec![])]);
    let mut release = Release::new(leaver(), &nobody, END, limits::RELEASE_TIMEOUT);
    is_released(look(&mut release, 10, 9_900, vec![]), 10);
    // Less than noise is nothing, but a listed process is something.
    let little = reading(0, vec![card(0, 0, 9_900, vec![ours(15)])]);
    let mut release = Release::new(leaver(), &little, END, limits::RELEASE_TIMEOUT);
    is_waiting(
        look(&mut release, 10, 9_900, vec![ours(15)]),
        "waiting for memory, 0.0 s: GPU 0: the driver still lists worker 4410, it held nothing here",
    );
    is_released(look(&mut release, 20, 9_900, vec![]), 20);
    // A machine without a card.
    let mut release = Release::new(leaver(), &reading(0, vec![]), END, limits::RELEASE_TIMEOUT);
    is_released(release.step(at(5), &reading(5, vec![])), 0);
}

#[test]
fn a_small_worker_must_be_back_for_the_most_part() {
    // The tolerance of the card would be all of it.
    let before = reading(0, vec![card(0, 0, 9_000, vec![ours(200)])]);
    let mut release = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    is_waiting(
        look(&mut release, 500, 9_100, vec![]),
        "waiting for memory, 0.5 s: GPU 0: worker 4410 is listed no more, 100 of 200 MiB are back",
    );
    is_released(look(&mut release, 600, 9_160, vec![]), 600);
}

#[test]
fn every_card_has_to_be_back_and_each_has_its_own_latency() {
    let two = |ms, first: (u64, Vec<GpuProcess>), second: (u64, Vec<GpuProcess>)| {
        reading(ms, vec![card(0, ms, first.0, first.1), card(1, ms, second.0, second.1)])
    };
    let before = two(0, (597, vec![ours(4_000)]), (597, vec![ours(6_000)]));
    let mut release = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    is_waiting(
        release.step(at(500), &two(500, (4_597, vec![]), (597, vec![]))),
        "waiting for memory, 0.5 s: GPU 1: worker 4410 is listed no more, nothing of 6,000 MiB is back yet",
    );
    // What is taken on the first card afterwards does not matter, unless the worker is listed there again.
    is_waiting(
        release.step(at(600), &two(600, (1_000, vec![ours(10)]), (597, vec![]))),
        "waiting for memory, 0.6 s: GPU 0: the driver still lists worker 4410, 403 of 4,000 MiB are back; GPU 1: worker 4410 \
         is listed no more, nothing of 6,000 MiB is back yet",
    );
    release.step(at(700), &two(700, (4_597, vec![]), (597, vec![])));
    let step = release.step(at(2_600), &two(2_600, (1_000, vec![]), (6_597, vec![])));
    let released = is_released(step, 2_600);
    assert_eq!(released.gpus, [(gpu(0), Millis(700)), (gpu(1), Millis(2_600))]);
    // A card of which no reading comes is not known to be back.
    let mut release = Release::new(leaver(), &before, END, limits::RELEASE_TIMEOUT);
    is_waiting(
        release.step(at(900), &reading(900, vec![card(1, 900, 6_597, vec![])])),
        "waiting for memory, 0.9 s: GPU 0: blind, the driver answered with an error: there was no reading; whether memory \
         came back is not known",
    );
}

#[test]
fn a_silent_driver_is_waited_for_and_then_told() {
    let mut release = release();
    is_waiting(
        release.step(at(2_000), &reading(2_000, vec![blind(2_000)])),
        "waiting for memory, 2.0 s: GPU 0: blind, the driver did not answer within 2 s; look for Xid and GSP lines in the \
         kernel's log; whether memory came back is not known",
    );
    has_timed_out(
        release.step(at(31_000), &reading(31_000, vec![blind(31_000)])),
        &[(Place::Gpu(gpu(0)), None)],
        "The memory of worker 4410 has not come back within 31.0 s; the next start looks at what is left:\n  \
         GPU 0: blind, the driver did not answer within 2 s; look for Xid and GSP lines in the kernel's log; whether memory \
         came back is not known\n",
    );
    // An old answer is none.
    let mut release = self::release();
    let old = release.step(at(5_000), &reading(5_000, vec![card(0, 1_000, 9_915, vec![])]));
    assert!(matches!(&old, Step::Waiting { progress, .. } if progress.contains("is 4 s old")), "{old:?}");
    is_released(look(&mut release, 5_100, 9_915, vec![]), 5_100);
}

#[test]
fn a_card_that_was_not_seen_before_the_stop_proves_nothing() {
    let mut release = Release::new(leaver(), &reading(0, vec![blind(0)]), END, limits::RELEASE_TIMEOUT);
    look(&mut release, 100, 9_000, vec![]);
    has_timed_out(
        look(&mut release, 30_000, 9_915, vec![]),
        &[(Place::Gpu(gpu(0)), None)],
        "The memory of worker 4410 has not come back within 30.0 s; the next start looks at what is left:\n  \
         GPU 0: 9,915 MiB are free; it could not be read before the stop, so that no movement can be told\n",
    );
}

#[test]
fn a_pid_that_was_given_out_again_is_not_ours() {
    let mut release = release();
    let mut reused = process(4410, "python3", 500);
    reused.start_ticks = Some(7);
    is_released(look(&mut release, 900, 9_415, vec![reused.clone()]), 900);
    // Where the start can't be read, it may be ours.
    reused.start_ticks = None;
    let mut release = self::release();
    assert!(matches!(look(&mut release, 900, 9_415, vec![reused]), Step::Waiting { .. }));
}

#[test]
fn a_worker_in_d_state_is_not_gone_whatever_the_card_shows() {
    let with = |ms, process| Reading { process, ..reading(ms, vec![card(0, ms, 9_915, vec![])]) };
    let mut release = release();
    is_waiting(
        release.step(at(1_000), &with(1_000, Some(ProcessState::Uninterruptible))),
        "waiting for memory, 1.0 s: worker 4410: it is in an uninterruptible wait in the kernel (state D): no signal reaches \
         it, and its memory comes back when the driver lets it go; look for Xid lines in the kernel's log",
    );
    is_waiting(
        release.step(at(1_100), &with(1_100, Some(ProcessState::Running))),
        "waiting for memory, 1.1 s: worker 4410 has not ended yet",
    );
    let Step::TimedOut { missing, .. } = release.step(at(30_000), &with(30_000, Some(ProcessState::Running))) else {
        panic!()
    };
    assert_eq!(missing, [Missing { place: Place::Process, bytes: None }]);
    // A zombie holds nothing by itself, but is told while something is missing.
    let mut release = self::release();
    let held = Reading { process: Some(ProcessState::Zombie), ..reading(900, vec![card(0, 900, 597, vec![])]) };
    let step = release.step(at(900), &held);
    assert!(matches!(&step, Step::Waiting { progress, .. } if progress.contains("was not collected")), "{step:?}");
    is_released(release.step(at(1_000), &with(1_000, Some(ProcessState::Zombie))), 1_000);
}

/// A worker that held 34,816 MiB of the host, 12,000 were free.
fn of_host(foreign_mib: Option<u64>) -> Release {
    let leaver = Leaver { host: Some(mib(34_816)), ..leaver() };
    let foreign = foreign_mib.map(mib);
    let host = HostReading { at: END, available: mib(12_000), foreign };
    Release::new(leaver, &Reading { host, ..before() }, END, limits::RELEASE_TIMEOUT)
}

fn look_at_host(release: &mut Release, ms: u64, available_mib: u64, foreign_mib: Option<u64>) -> Step {
    let host = HostReading { at: at(ms), available: mib(available_mib), foreign: foreign_mib.map(mib) };
    release.step(at(ms), &Reading { host, ..reading(ms, vec![card(0, ms, 9_915, vec![])]) })
}

#[test]
fn host_memory_is_awaited_after_the_cards() {
    let mut release = of_host(None);
    // Not before the card: its line is the only one.
    let early =
        release.step(at(500), &Reading { host: host(500, 46_800), ..reading(500, vec![card(0, 500, 597, vec![])]) });
    is_waiting(
        early,
        "waiting for memory, 0.5 s: GPU 0: worker 4410 is listed no more, nothing of 9,318 MiB is back yet",
    );
    let words =
        "MiB are back; what stays away although the process is gone is held by the driver or taken by another program";
    is_waiting(
        look_at_host(&mut release, 1_000, 31_456, None),
        &format!("waiting for memory, 1.0 s: host: 19,456 of 34,816 {words}"),
    );
    let mut lost = release.clone();
    has_timed_out(
        look_at_host(&mut lost, 30_000, 31_456, None),
        &[(Place::Host, Some(mib(15_360)))],
        &format!(
            "The memory of worker 4410 has not come back within 30.0 s; the next start looks at what is left:\n  \
             host: 19,456 of 34,816 {words}\n"
        ),
    );
    let released = is_released(look_at_host(&mut release, 2_600, 46_700, None), 2_600);
    assert_eq!((released.host, released.gpus.clone()), (Some(Millis(2_600)), vec![(gpu(0), Millis(1_000))]));
    assert_eq!(released.words(), "released: all of it after 2.6 s (GPU 0 1.0 s, host 2.6 s)");
}

#[test]
fn a_compiler_that_grows_on_the_host_does_not_keep_us_waiting() {
    let mut release = of_host(Some(10_000));
    is_released(look_at_host(&mut release, 1_000, 35_816, Some(21_000)), 1_000);
    let mut release = of_host(Some(30_000));
    // It ended instead: its memory is not ours.
    assert!(matches!(look_at_host(&mut release, 1_000, 41_000, Some(1_000)), Step::Waiting { .. }));
}

#[test]
fn a_small_worker_must_have_left_most_of_the_host() {
    let small = Leaver { host: Some(mib(200)), ..leaver() };
    let start = || {
        let before = Reading { host: host(0, 12_000), ..before() };
        Release::new(small.clone(), &before, END, limits::RELEASE_TIMEOUT)
    };
    assert!(matches!(look_at_host(&mut start(), 500, 12_149, None), Step::Waiting { .. }));
    is_released(look_at_host(&mut start(), 500, 12_151, None), 500);
}

#[test]
fn a_host_that_held_next_to_nothing_is_not_awaited() {
    let leaver = Leaver { host: Some(mib(15)), ..leaver() };
    let mut release = Release::new(leaver, &before(), END, limits::RELEASE_TIMEOUT);
    assert_eq!(is_released(look_at_host(&mut release, 500, 0, None), 500).host, None);
}

#[test]
fn an_old_figure_of_the_host_says_nothing() {
    let mut release = of_host(None);
    let old = Reading { host: host(0, 46_800), ..reading(3_000, vec![card(0, 3_000, 9_915, vec![])]) };
    is_waiting(release.step(at(3_000), &old), "waiting for memory, 3.0 s: host: not looked at yet");
    let Step::TimedOut { missing, .. } = release
        .step(at(30_000), &Reading { host: host(0, 46_800), ..reading(30_000, vec![card(0, 30_000, 9_915, vec![])]) })
    else {
        panic!()
    };
    assert_eq!(missing, [Missing { place: Place::Host, bytes: None }]);
    is_released(look_at_host(&mut release, 30_100, 46_700, None), 30_100);
}
