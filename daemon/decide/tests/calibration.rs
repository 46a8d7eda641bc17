//! What is healthy, and what is said of a start that is not.

mod cards;

use cards::{NOW, card, desktop_and, gpu, process, reading, stored, worker};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::calibration::{
    Calibration, Deviation, Figures, Finding, Interval, Judgement, Key, Measure, Speed, Start,
};
use plimsoll_decide::gpu::{Blindness, GpuMemory};
use plimsoll_decide::identity::Standing;
use plimsoll_decide::plan::Mode;
use plimsoll_decide::zero_check::policy::Checked;
use plimsoll_decide::zero_check::{Verdict, zero_check};
use proptest::prelude::*;

fn key() -> Key {
    Key { model_hash: "sha256:1f".to_owned(), knobs: "131072 q8_0 ×1".to_owned(), gpu_uuid: "GPU-0".to_owned() }
}

fn checked(memory: GpuMemory) -> Checked {
    Checked { gpu: gpu(0), verdict: zero_check(NOW, &reading(memory), Some(&stored()), &[]) }
}

fn clean() -> Vec<Checked> {
    vec![checked(desktop_and(vec![]))]
}

fn dirty() -> Vec<Checked> {
    vec![checked(desktop_and(vec![process(812, "python3", 2_560), process(815, "blender", 5_000)]))]
}

/// Experts in the cache, hundredths of a GiB of it, tenths of a token per second.
fn figures(n_slots: u32, cache_cgib: u64, speed: u64) -> Figures {
    let cache = Bytes(Bytes::from_gib(1).0 / 100 * cache_cgib);
    Figures { cache: Some(cache), n_slots: Some(n_slots), speed: Some(Speed(speed * 100)) }
}

fn start(cards: Vec<Checked>, figures: Figures) -> Start {
    Start { key: key(), mode: Mode::Stable, cards, figures }
}

/// The workstation's two clean starts: reserve 1500, then 1728.
fn workstation() -> Calibration {
    let mut calibration = Calibration::default();
    for figures in [figures(1_045, 202, 420), figures(955, 184, 390)] {
        assert_eq!(calibration.note(&start(clean(), figures)), Judgement::Joined);
    }
    calibration
}

fn finding(judgement: Judgement) -> Finding {
    match judgement {
        Judgement::Finding(finding) => finding,
        Judgement::Joined | Judgement::NotCounted => panic!("{judgement:?}"),
    }
}

#[test]
fn clean_starts_of_a_configuration_are_its_interval() {
    let mut calibration = workstation();
    let words = |calibration: &Calibration| calibration.history(&key()).and_then(|history| history.words());
    assert_eq!(words(&calibration).as_deref(), Some("955–1045 experts, 39–42 tok/s (2 clean starts)"));
    calibration.note(&start(clean(), figures(1_000, 190, 430)));
    assert_eq!(words(&calibration).as_deref(), Some("955–1045 experts, 39–43 tok/s (3 clean starts)"));
    let history = calibration.history(&key()).expect("it was noted");
    assert_eq!(history.interval(Measure::Slots), Some(Interval { low: 955, middle: 1_000, high: 1_045 }));
    // Another configuration has its own.
    let other = Key { knobs: "32768 q8_0 ×1".to_owned(), ..key() };
    assert_eq!(calibration.history(&other), None);
}

#[test]
fn the_146_experts_of_a_dirty_card_are_the_environments_not_the_configurations() {
    let mut calibration = workstation();
    let before = calibration.clone();
    // 32.6 tok/s look usable: the cache tells.
    let finding = finding(calibration.note(&start(dirty(), figures(146, 28, 326))));
    assert_eq!(calibration, before, "a dirty start never joins");
    assert_eq!(
        finding.deviations.iter().map(|deviation| deviation.measure).collect::<Vec<_>>(),
        [Measure::Slots, Measure::Cache]
    );
    assert_eq!(
        finding.deviations[0],
        Deviation { measure: Measure::Slots, value: 146, interval: Interval { low: 955, middle: 955, high: 1_045 } }
    );
    let words = finding.words(NOW);
    assert_eq!(
        words,
        "Environment dirty first: this start reached 146 experts instead of 955–1045 and 0.28 GiB of cache instead of \
         1.84–2.02, as on 2 clean starts.\n\
         GPU 0 is dirty: others hold 9,927 MiB, 7,560 beyond the baseline of 2,367 (taken 3 days ago; 256 are tolerated):\n  \
         blender (pid 815, alice) computes on 5,000 MiB, none of it in the baseline\n  \
         python3 (pid 812, alice) computes on 2,560 MiB, none of it in the baseline\n\
         The same configuration gave those figures on a clean card: make it clean and start again.\n"
    );
    for advice in ["lower", "smaller", "reduce", "reserve", "context", "change the configuration"] {
        assert!(!words.contains(advice), "{advice:?} in {words:?}");
    }
}

#[test]
fn only_clean_stable_starts_are_counted() {
    let releasing = {
        let workers = [worker(4410, Standing::Gone, Millis(1_000))];
        let memory = card(9_000, vec![], cards::desktop());
        Checked { gpu: gpu(0), verdict: zero_check(NOW, &reading(memory), Some(&stored()), &workers) }
    };
    let blind = Checked { gpu: gpu(1), verdict: Verdict::Blind(Blindness::Silent { waited: Millis(2_000) }) };
    let mut calibration = Calibration::default();
    for card in [releasing, blind, dirty().remove(0)] {
        let cards = clean().into_iter().chain([card]).collect();
        assert_eq!(calibration.note(&start(cards, figures(1_000, 190, 400))), Judgement::NotCounted);
    }
    let benchmark = Start { mode: Mode::Benchmark, ..start(clean(), figures(1_800, 350, 460)) };
    assert_eq!(calibration.note(&benchmark), Judgement::NotCounted);
    assert_eq!(calibration, Calibration::default());
    // Nor does a benchmark find anything: it is not the same thing that it measures.
    let benchmark = Start { mode: Mode::Benchmark, ..start(dirty(), figures(1, 0, 1)) };
    assert_eq!(workstation().note(&benchmark), Judgement::NotCounted);
    // A machine without a card has nothing to be dirty.
    let speed_only = Figures { speed: Some(Speed(127_000)), ..Figures::default() };
    assert_eq!(calibration.note(&start(vec![], speed_only)), Judgement::Joined);
    let words = calibration.history(&key()).and_then(|history| history.words());
    assert_eq!(words.as_deref(), Some("127 tok/s (1 clean start)"));
}

#[test]
fn how_far_is_far() {
    let is_finding = |n_slots| {
        let figures = Figures { n_slots: Some(n_slots), ..Figures::default() };
        matches!(workstation().note(&start(clean(), figures)), Judgement::Finding(_))
    };
    // 80 % of the one in the middle, 955.
    assert_eq!((is_finding(764), is_finding(763)), (false, true));
    // More than ever is no finding.
    assert!(!is_finding(4_000));
    // The low end does not creep down with each start that is a little lower.
    let mut calibration = workstation();
    for _ in 0..6 {
        calibration.note(&start(clean(), figures(1_000, 190, 400)));
    }
    calibration.note(&start(clean(), figures(810, 160, 380)));
    let crept = calibration.note(&start(clean(), figures(660, 130, 380)));
    assert!(matches!(crept, Judgement::Finding(_)));
}

#[test]
fn a_clean_start_far_under_is_told_and_three_in_a_row_are_the_new_normal() {
    let mut calibration = workstation();
    let slow = || start(clean(), figures(960, 185, 200));
    let first = finding(calibration.note(&slow()));
    assert_eq!(
        first.words(NOW),
        "Environment dirty first: this start reached 20 tok/s instead of 39–42, as on 2 clean starts.\n\
         The cards were clean, and the same configuration gave those figures: look for heat, a power limit, or a program \
         that uses the processor or the disk.\n"
    );
    assert!(!finding(calibration.note(&slow())).is_new_normal);
    // One healthy start in between, and the row begins anew.
    calibration.note(&start(clean(), figures(1_000, 190, 400)));
    for n in 1..=limits::NEW_NORMAL_STARTS {
        let finding = finding(calibration.note(&slow()));
        assert_eq!(finding.is_new_normal, n == limits::NEW_NORMAL_STARTS);
        if finding.is_new_normal {
            let words = finding.words(NOW);
            assert!(
                words.contains("it counts as healthy from now on. Look for what changed on the machine"),
                "{words}"
            );
        }
    }
    assert_eq!(calibration.note(&slow()), Judgement::Joined);
    let words = calibration.history(&key()).and_then(|history| history.words());
    assert_eq!(words.as_deref(), Some("960 experts, 20 tok/s (4 clean starts)"));
}

#[test]
fn an_old_start_leaves_the_interval() {
    let mut calibration = workstation();
    for _ in 0..limits::MAX_HEALTHY_STARTS - 1 {
        calibration.note(&start(clean(), figures(1_000, 190, 400)));
    }
    let words = calibration.history(&key()).and_then(|history| history.words());
    assert_eq!(words.as_deref(), Some("955–1000 experts, 39–40 tok/s (32 clean starts)"));
}

#[test]
fn a_history_without_figures_has_no_words() {
    let mut calibration = Calibration::default();
    calibration.note(&start(clean(), Figures::default()));
    assert_eq!(calibration.history(&key()).and_then(|history| history.words()), None);
}

#[test]
fn speeds_are_shown_as_far_as_they_are_known() {
    let check = |milli, expect: &str| assert_eq!(Speed(milli).to_string(), expect);
    check(290, "0.3");
    check(7_449, "7.4");
    check(9_949, "9.9");
    check(9_950, "10");
    check(41_499, "41");
    check(41_500, "42");
}

proptest! {
    #[test]
    fn histories_are_bounded_and_the_least_used_leaves_first(
        starts in prop::collection::vec((0..200u32, 0..2_000u32, any::<bool>()), 0..400),
    ) {
        let mut calibration = Calibration::default();
        let clean = clean();
        for (name, n_slots, is_card) in starts {
            let key = Key { knobs: name.to_string(), ..key() };
            let cards = if is_card { clean.clone() } else { vec![] };
            let figures = Figures { n_slots: Some(n_slots), ..Figures::default() };
            let judgement = calibration.note(&Start { key: key.clone(), mode: Mode::Stable, cards, figures });
            prop_assert!(calibration.histories.len() <= limits::MAX_CALIBRATION_KEYS);
            prop_assert_eq!(&calibration.histories.last().expect("just noted").0, &key);
            let history = calibration.history(&key).expect("just noted");
            prop_assert!(history.healthy.len() <= limits::MAX_HEALTHY_STARTS);
            prop_assert!(history.strays.len() < limits::NEW_NORMAL_STARTS);
            let interval = history.interval(Measure::Slots).expect("every start has slots");
            prop_assert!(interval.low <= interval.middle && interval.middle <= interval.high);
            if judgement == Judgement::Joined {
                prop_assert!((interval.low..=interval.high).contains(&u64::from(n_slots)));
            }
        }
    }

    #[test]
    fn a_dirty_start_changes_nothing(n_slots in 0..2_000u32, speed in 0..500u64) {
        let mut calibration = workstation();
        calibration.note(&start(dirty(), figures(n_slots, 100, speed)));
        prop_assert_eq!(calibration, workstation());
    }
}
