//! What is done about the verdicts, and what a person reads while it waits.

mod cards;

use cards::{DESKTOP_MIB, NOW, alive, card, desktop, desktop_and, gpu, process, reading, stored, worker};
use plimsoll_config::limits;
use plimsoll_config::units::Millis;
use plimsoll_decide::gpu::{Blindness, GpuMemory};
use plimsoll_decide::identity::Standing;
use plimsoll_decide::plan::Policy;
use plimsoll_decide::zero_check::policy::{Asked, Checked, Outcome, decide};
use plimsoll_decide::zero_check::{KnownWorker, Verdict, zero_check};
use proptest::prelude::*;

const POLICIES: [Policy; 3] = [Policy::Strict, Policy::Wait, Policy::Adapt];

fn checked(index: u32, memory: GpuMemory, workers: &[KnownWorker]) -> Checked {
    Checked { gpu: gpu(index), verdict: zero_check(NOW, &reading(memory), Some(&stored()), workers) }
}

fn clean() -> Checked {
    checked(0, desktop_and(vec![]), &[])
}

fn dirty(index: u32) -> Checked {
    checked(index, desktop_and(vec![process(812, "python3", 2_560)]), &[])
}

/// A worker of ours that was told to end this long ago.
fn releasing(ago: Millis) -> Checked {
    checked(0, desktop_and(vec![process(4410, "plimsoll-worker", 9_318)]), &[worker(4410, alive(), ago)])
}

fn blind() -> Checked {
    Checked { gpu: gpu(1), verdict: Verdict::Blind(Blindness::Silent { waited: Millis::from_secs(2) }) }
}

/// A start that was asked for this long ago, and may wait as long as the default.
fn asked(ago: Millis) -> Asked {
    Asked { at: Millis(NOW.0 - ago.0), wait: limits::START_WAIT }
}

fn outcome(policy: Policy, waited_s: u64, cards: &[Checked]) -> Outcome {
    decide(NOW, policy, asked(Millis::from_secs(waited_s)), cards)
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Start { .. } => "start",
        Outcome::StartDirty { .. } => "start dirty",
        Outcome::Wait { .. } => "wait",
        Outcome::Refuse { .. } => "refuse",
    }
}

/// One row of the table: what strict, wait and adapt do at once, and after the wait.
#[track_caller]
fn check(cards: &[Checked], at_once: [&str; 3], afterwards: [&str; 3]) {
    let row = |waited_s| POLICIES.map(|policy| name(&outcome(policy, waited_s, cards)));
    assert_eq!((row(0), row(60)), (at_once, afterwards));
}

#[test]
fn the_table_of_policies() {
    let just = Millis(1_200);
    check(&[], ["start"; 3], ["start"; 3]);
    check(&[clean()], ["start"; 3], ["start"; 3]);
    check(&[clean(), dirty(1)], ["refuse", "wait", "start dirty"], ["refuse", "refuse", "start dirty"]);
    check(&[releasing(just)], ["wait"; 3], ["wait"; 3]);
    let late = releasing(limits::RELEASE_TIMEOUT);
    check(&[late], ["refuse", "wait", "start dirty"], ["refuse", "refuse", "start dirty"]);
    check(&[clean(), blind()], ["refuse", "wait", "wait"], ["refuse"; 3]);
    check(&[dirty(0), blind()], ["refuse", "wait", "wait"], ["refuse"; 3]);
    // Adapt does not plan for a card that gets its memory back in a second.
    check(&[releasing(just), dirty(1)], ["refuse", "wait", "wait"], ["refuse", "refuse", "wait"]);
}

#[test]
fn the_bounds_of_the_verdicts_agree_with_each_other() {
    const {
        // Many looks fit into the age of one, and many of those into a release.
        assert!(limits::RELEASE_POLL.0 * 10 <= limits::GPU_READING_MAX_AGE.0);
        assert!(limits::GPU_READING_MAX_AGE.0 * 10 <= limits::RELEASE_TIMEOUT.0);
        assert!(limits::RELEASE_SETTLE.0 * 10 <= limits::RELEASE_TIMEOUT.0);
        // A start that waits outlasts a release.
        assert!(limits::RELEASE_TIMEOUT.0 < limits::START_WAIT.0);
        // Noise is less than a culprit, a culprit less than what is tolerated, and a context more than noise.
        assert!(limits::DEPARTURE_MIN.0 < limits::CULPRIT_MIN.0);
        assert!(limits::CULPRIT_MIN.0 < limits::CLEAN_TOLERANCE_MIN.0);
        assert!(limits::DEPARTURE_MIN.0 < limits::UNKNOWN_DEPARTURE_MIN.0);
        assert!(limits::NEW_NORMAL_STARTS <= limits::MAX_HEALTHY_STARTS);
        assert!(limits::MIN_STARTS_TO_SHRINK <= limits::MAX_MEASURED_STARTS);
    }
}

#[test]
fn waiting_says_for_whom_and_how_long() {
    let check = |waited_s, cards: &[Checked], until: Millis, expect: &str| {
        let Outcome::Wait { until: found, progress } = outcome(Policy::Wait, waited_s, cards) else { panic!() };
        assert_eq!((progress.as_str(), found), (expect, until));
    };
    let after = |s| NOW.saturating_add(Millis::from_secs(s));
    check(
        18,
        &[clean(), dirty(1)],
        after(42),
        "waiting, 42 s left: GPU 1 is dirty by 2,304 MiB, held by python3 (pid 812, alice)",
    );
    check(
        0,
        &[checked(0, card(DESKTOP_MIB + 1_000, vec![], desktop()), &[]), blind()],
        after(60),
        "waiting, 60 s left: GPU 0 is dirty by 744 MiB, held by nobody that the driver names; GPU 1 is blind: the driver did \
         not answer within 2 s; look for Xid and GSP lines in the kernel's log",
    );
    check(
        50,
        &[releasing(Millis::from_secs(2))],
        after(28), // the release's own time, when that is longer
        "waiting, 28 s left: GPU 0 is releasing: worker 4410 (ours, told to end 2.0 s ago) holds 9,318 MiB",
    );
}

#[test]
fn a_refusal_says_all_of_it_and_what_to_do() {
    let words = |policy, waited_s, cards: &[Checked]| match outcome(policy, waited_s, cards) {
        Outcome::Refuse { words } => words,
        other => panic!("{other:?}"),
    };
    let of_dirty = dirty(1).verdict.words(NOW, &gpu(1));
    assert_eq!(
        words(Policy::Strict, 0, &[clean(), dirty(1)]),
        format!(
            "{of_dirty}No start on a dirty card: close what is named, or start with the policy adapt, which \
             plans for what is left and marks the run dirty.\n"
        )
    );
    assert_eq!(words(Policy::Wait, 60, &[dirty(1)]), words(Policy::Strict, 0, &[dirty(1)]));
    let seen = words(Policy::Adapt, 60, &[dirty(0), blind()]);
    assert!(seen.starts_with("GPU 0 is dirty: ") && seen.contains("GPU 1 is blind: "), "{seen}");
    assert!(seen.ends_with("No start on a card that can't be seen: it starts when the driver answers.\n"));
    let late = words(Policy::Strict, 0, &[releasing(limits::RELEASE_TIMEOUT)]);
    assert!(late.ends_with("No start while a worker of ours holds the card: it starts when that is gone.\n"), "{late}");
    match outcome(Policy::Adapt, 0, &[dirty(1)]) {
        Outcome::StartDirty { words } => assert_eq!(words, of_dirty),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_start_hands_over_the_baselines_to_store() {
    let first = |index| {
        let mut reading = reading(desktop_and(vec![]));
        reading.gpu = gpu(index);
        Checked { gpu: gpu(index), verdict: zero_check(NOW, &reading, None, &[]) }
    };
    let Outcome::Start { store } = outcome(Policy::Strict, 0, &[first(1), clean(), first(2)]) else { panic!() };
    assert_eq!(store.iter().map(|baseline| baseline.gpu_uuid.as_str()).collect::<Vec<_>>(), ["GPU-1", "GPU-2"]);
}

fn any_card() -> impl Strategy<Value = Checked> {
    prop_oneof![
        Just(clean()),
        Just(dirty(1)),
        (0..60_000u64).prop_map(|ago| releasing(Millis(ago))),
        (0..60_000u64).prop_map(|ago| {
            checked(0, card(DESKTOP_MIB + 9_000, vec![], desktop()), &[worker(4410, Standing::Gone, Millis(ago))])
        }),
        Just(blind()),
    ]
}

proptest! {
    #[test]
    fn a_start_needs_clean_cards_and_a_wait_ends(
        cards in prop::collection::vec(any_card(), 0..4),
        policy in prop::sample::select(POLICIES.to_vec()),
        waited_ms in 0..120_000u64,
        wait_ms in 0..120_000u64,
    ) {
        let asked = Asked { at: Millis(NOW.0 - waited_ms), wait: Millis(wait_ms) };
        let is_clean = cards.iter().all(|card| card.verdict.name() == "clean");
        let is_blind = cards.iter().any(|card| card.verdict.name() == "blind");
        match decide(NOW, policy, asked, &cards) {
            Outcome::Start { .. } => prop_assert!(is_clean),
            Outcome::StartDirty { words } => {
                prop_assert!(policy == Policy::Adapt && !is_clean && !is_blind && !words.is_empty());
            }
            Outcome::Wait { until, progress } => {
                prop_assert!(!is_clean && until > NOW && progress.starts_with("waiting, "));
                let longest = asked.at.saturating_add(asked.wait).max(NOW.saturating_add(limits::RELEASE_TIMEOUT));
                prop_assert!(until <= longest);
                // The same cards at that point in time are waited for no longer.
                prop_assert_ne!(name(&decide(until, policy, asked, &cards)), "wait");
            }
            Outcome::Refuse { words } => prop_assert!(!is_clean && words.contains("No start ")),
        }
    }
}
