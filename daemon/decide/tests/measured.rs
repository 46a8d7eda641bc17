//! How wrong a plan was, and what the next one learns from it.

use plimsoll_config::limits;
use plimsoll_config::units::Bytes;
use plimsoll_decide::ledger::reconcile::{Measured, reconcile};
use plimsoll_decide::ledger::{Account, AccountId, Basis, Entry, Object};
use plimsoll_decide::measured::{Estimate, Key, Pair, PlanError, Report, Truth};
use proptest::prelude::*;

fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

fn account(entries: &[(Object, u64, Basis)]) -> Account {
    let entry = |(object, n_mib, basis): &(Object, u64, Basis)| Entry {
        object: *object,
        bytes: mib(*n_mib),
        basis: *basis,
        detail: String::new(),
    };
    Account {
        id: AccountId::Host,
        title: String::new(),
        bounds: None,
        entries: entries.iter().map(entry).collect(),
        asked_beside: Bytes::ZERO,
    }
}

fn plan() -> Account {
    account(&[
        (Object::DenseWeights, 430, Basis::Planned),
        (Object::Kv, 1_800, Basis::Planned),
        (Object::Service, 128, Basis::Estimated),
        (Object::Activations, 100, Basis::Estimated),
        (Object::Foreign, 10_100, Basis::Measured),
    ])
}

fn measured(objects: &[(Object, u64)]) -> Measured {
    let objects: Vec<(Object, Bytes)> = objects.iter().map(|(object, n_mib)| (*object, mib(*n_mib))).collect();
    Measured { used: objects.iter().map(|(_, bytes)| *bytes).sum(), objects }
}

/// A start whose service was estimated at one figure, planned at another, and held a third.
fn note_service(truth: &mut Truth, uncorrected_mib: u64, planned_mib: u64, held_mib: u64) {
    let plan = account(&[(Object::Service, planned_mib, Basis::Estimated)]);
    let estimates = [Estimate { object: Object::Service, bytes: mib(uncorrected_mib) }];
    truth.note("sha256:1f", &plan, &estimates, &reconcile(&plan, &measured(&[(Object::Service, held_mib)])));
}

fn key(object: Object) -> Key {
    Key { model_hash: "sha256:1f".to_owned(), account: AccountId::Host, object }
}

fn corrected(truth: &Truth, estimate_mib: u64) -> Bytes {
    truth.corrected(&key(Object::Service), Basis::Estimated, mib(estimate_mib))
}

#[test]
fn each_object_of_the_plan_has_its_error() {
    let found = measured(&[
        (Object::DenseWeights, 430),
        (Object::Kv, 1_780),
        (Object::Service, 132),
        (Object::Staging, 64),
        (Object::Foreign, 12_000),
    ]);
    let report = Report::new(&plan(), &reconcile(&plan(), &found));
    assert_eq!(
        report.words(),
        "dense_weights   0.0 %: 430 MiB planned, 430 measured\n\
         kv              1.2 % too much: 1,800 MiB planned, 1,780 measured\n\
         service         3.1 % too little: 128 MiB estimated, 132 measured; over the target\n\
         staging         not planned: 64 MiB measured; over the target\n\
         activations     not measured\n"
    );
    assert_eq!(report.account, AccountId::Host);
    assert_eq!(report.worst().map(|error| (error.object, error.permille())), Some((Object::Service, Some(31))));
    assert!(!report.is_within_target());
    assert_eq!(report.unplanned, [(Object::Staging, mib(64))]);
    assert_eq!(report.unmeasured, [Object::Activations]);
}

#[test]
fn two_percent_are_the_target() {
    let check = |planned, measured, permille, is_within| {
        let error =
            PlanError { object: Object::Kv, basis: Basis::Planned, planned: mib(planned), measured: mib(measured) };
        assert_eq!((error.permille(), error.is_within_target()), (permille, is_within));
    };
    check(1_000, 1_000, Some(0), true);
    check(980, 1_000, Some(20), true);
    check(979, 1_000, Some(21), false);
    check(1_020, 1_000, Some(20), true);
    check(1_021, 1_000, Some(21), false);
    check(0, 1_000, Some(1_000), false);
    check(1_000, 0, None, false);
    check(0, 0, Some(0), true);
}

#[test]
fn a_plan_within_the_target_says_so() {
    let plan = account(&[(Object::Kv, 1_000, Basis::Planned), (Object::Foreign, 1, Basis::Measured)]);
    let report = Report::new(&plan, &reconcile(&plan, &measured(&[(Object::Kv, 990), (Object::Foreign, 5_000)])));
    assert!(report.is_within_target());
    assert_eq!(report.errors.len(), 1, "what others hold is not the planner's");
    let more = reconcile(&plan, &measured(&[(Object::Kv, 990), (Object::Staging, 1)]));
    assert!(!Report::new(&plan, &more).is_within_target(), "what nobody planned is over the target");
    let nothing = Report::new(&plan, &reconcile(&plan, &measured(&[(Object::Kv, 0)])));
    assert_eq!(nothing.words(), "kv              holds nothing: 1,000 MiB planned, 0 measured; over the target\n");
    // A figure of our own that the plan read from the machine is no plan either.
    let read = account(&[(Object::ModelFile, 500, Basis::Measured)]);
    let report = Report::new(&read, &reconcile(&read, &measured(&[(Object::ModelFile, 600)])));
    assert_eq!((report.errors, report.unplanned, report.unmeasured), (vec![], vec![], vec![]));
}

#[test]
fn an_estimate_that_was_too_small_grows_at_once() {
    let mut truth = Truth::default();
    assert_eq!(corrected(&truth, 128), mib(128));
    note_service(&mut truth, 128, 128, 160);
    assert_eq!(corrected(&truth, 128), mib(160));
    // Another estimate, of another context, in proportion.
    assert_eq!(corrected(&truth, 256), mib(320));
    // A figure that is exact, or read, is never touched; nor is that of another model, account or object.
    let unchanged = |key: &Key, basis| assert_eq!(truth.corrected(key, basis, mib(128)), mib(128));
    unchanged(&key(Object::Service), Basis::Planned);
    unchanged(&key(Object::Service), Basis::Measured);
    unchanged(&key(Object::Activations), Basis::Estimated);
    unchanged(&Key { model_hash: "sha256:2e".to_owned(), ..key(Object::Service) }, Basis::Estimated);
    unchanged(&Key { account: AccountId::Vram(0), ..key(Object::Service) }, Basis::Estimated);
}

#[test]
fn an_estimate_that_was_too_large_shrinks_when_it_is_sure() {
    let mut truth = Truth::default();
    for held_mib in [64, 80] {
        note_service(&mut truth, 128, 128, held_mib);
        assert_eq!(corrected(&truth, 128), mib(128));
    }
    note_service(&mut truth, 128, 128, 72);
    assert_eq!(corrected(&truth, 128), mib(80), "the worst of them");
}

#[test]
fn a_correction_is_not_learned_from_itself() {
    let mut truth = Truth::default();
    for _ in 0..5 {
        let planned = corrected(&truth, 128);
        note_service(&mut truth, 128, planned.mib_rounded_up(), 160);
    }
    assert_eq!(corrected(&truth, 128), mib(160));
    let pairs = &truth.pairs[0].1;
    assert!(pairs.iter().all(|pair| *pair == Pair { uncorrected: mib(128), measured: mib(160) }));
    // An object without an estimate beside it was not corrected: its plan is what was estimated.
    let plan = plan();
    let report = truth.note("sha256:1f", &plan, &[], &reconcile(&plan, &measured(&[(Object::Activations, 130)])));
    assert_eq!(report.errors.len(), 1);
    assert_eq!(truth.corrected(&key(Object::Activations), Basis::Estimated, mib(100)), mib(130));
}

#[test]
fn a_mistake_is_not_hidden_by_a_factor() {
    let mut truth = Truth::default();
    note_service(&mut truth, 128, 128, 12_800);
    assert_eq!(corrected(&truth, 128), mib(512));
    let mut truth = Truth::default();
    for _ in 0..3 {
        note_service(&mut truth, 128, 128, 1);
    }
    assert_eq!(corrected(&truth, 128), mib(32));
    // Nothing was estimated: there is no ratio.
    let mut truth = Truth::default();
    note_service(&mut truth, 0, 0, 100);
    assert_eq!(corrected(&truth, 128), mib(128));
}

#[test]
fn an_old_start_leaves_after_eight_newer_ones() {
    let mut truth = Truth::default();
    note_service(&mut truth, 128, 128, 400);
    for _ in 1..limits::MAX_MEASURED_STARTS {
        note_service(&mut truth, 128, 128, 140);
    }
    assert_eq!(corrected(&truth, 128), mib(400));
    note_service(&mut truth, 128, 128, 140);
    assert_eq!(corrected(&truth, 128), mib(140));
}

#[test]
fn objects_are_bounded_and_the_oldest_leaves() {
    let mut truth = Truth::default();
    let plan = account(&[(Object::Service, 128, Basis::Estimated)]);
    let found = reconcile(&plan, &measured(&[(Object::Service, 160)]));
    for i in 0..=limits::MAX_MEASURED_OBJECTS {
        truth.note(&format!("model-{i}"), &plan, &[], &found);
    }
    assert_eq!(truth.pairs.len(), limits::MAX_MEASURED_OBJECTS);
    assert_eq!(truth.pairs[0].0.model_hash, "model-1");
}

proptest! {
    #[test]
    fn a_corrected_plan_would_have_held_every_kept_start(
        starts in prop::collection::vec((64..256u64, 32..600u64), 1..20),
        estimate_mib in 0..1_000u64,
    ) {
        let mut truth = Truth::default();
        for (estimated, held) in &starts {
            note_service(&mut truth, *estimated, *estimated, *held);
        }
        let pairs: Vec<Pair> = truth.pairs[0].1.iter().copied().collect();
        prop_assert!(pairs.len() <= limits::MAX_MEASURED_STARTS);
        let estimate = mib(estimate_mib);
        let found = corrected(&truth, estimate_mib);
        prop_assert!(found <= estimate.saturating_mul(limits::MAX_CORRECTION));
        prop_assert!(found.saturating_mul(limits::MAX_CORRECTION) >= estimate);
        for Pair { uncorrected, measured } in pairs {
            let same = truth.corrected(&key(Object::Service), Basis::Estimated, uncorrected);
            prop_assert!(same >= measured.min(uncorrected.saturating_mul(limits::MAX_CORRECTION)));
        }
        prop_assert!(corrected(&truth, estimate_mib + 1) >= found, "a larger estimate is not a smaller plan");
    }

    #[test]
    fn no_figure_is_too_large_to_be_compared(planned in any::<u64>(), measured in any::<u64>()) {
        let (planned, measured) = (Bytes(planned), Bytes(measured));
        let error = PlanError { object: Object::Kv, basis: Basis::Planned, planned, measured };
        prop_assert_eq!(error.permille().is_none(), measured == Bytes::ZERO && planned > Bytes::ZERO);
        let truth = Truth { pairs: vec![(key(Object::Service), [Pair { uncorrected: planned, measured }].into())] };
        let found = truth.corrected(&key(Object::Service), Basis::Estimated, Bytes(u64::MAX));
        prop_assert_eq!(found, Bytes(u64::MAX));
    }
}
