//! Whose step killed a worker: suspects alone, one at a time, until cleared or convicted; nobody for somebody else's crash.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::{
    Admission, Capacity, ClientId, ClosedReason, DenyReason, Facts, Gate, Order, RequestId, Verdict,
};
use plimsoll_decide::lifecycle::death::{DeathClass, Exit, Hang};
use plimsoll_decide::poison::Convicted;
use proptest::prelude::*;

const FAULT: DeathClass = DeathClass::Fault { signal: 11 };

fn facts(request: u64) -> Facts {
    Facts {
        request: RequestId(request),
        client: ClientId(request % 3),
        session: None,
        n_prompt: Tokens(10),
        max_tokens: Tokens(100),
        deadline: None,
    }
}

/// So many requests on a worker, the first one with the number 1.
fn running(n_requests: u64) -> Admission {
    let mut admission =
        Admission::new(Capacity { n_ctx: Some(Tokens(1000)), kv: None, max_running: 8, max_waiting: 8 });
    for request in 1..=n_requests {
        assert_eq!(admission.offer(Millis(0), &Gate::Open, facts(request)), Verdict::Admit);
    }
    admission
}

fn dies(admission: &mut Admission, class: &DeathClass) -> Option<Convicted> {
    admission.park();
    admission.worker_died(class, true)
}

fn next(admission: &mut Admission) -> Option<Order> {
    admission.next(&Gate::Open)
}

fn resume(request: u64) -> Option<Order> {
    Some(Order::Resume(RequestId(request)))
}

fn came_to(admission: &mut Admission, request: u64, position: u32) {
    admission.came_to(RequestId(request), Tokens(position));
}

#[test]
fn suspects_run_alone_and_are_cleared_past_the_place() {
    let mut admission = running(2);
    came_to(&mut admission, 1, 20);
    came_to(&mut admission, 2, 30);
    assert_eq!(dies(&mut admission, &FAULT), None);
    assert_eq!(admission.n_suspects(), 2);
    // The oldest first, alone; a new one waits.
    assert_eq!((next(&mut admission), next(&mut admission)), (resume(1), None));
    assert!(matches!(admission.offer(Millis(0), &Gate::Open, facts(3)), Verdict::Wait { .. }));
    came_to(&mut admission, 1, 20);
    assert_eq!((next(&mut admission), admission.n_suspects()), (None, 2), "at the place, not past it");
    came_to(&mut admission, 1, 21);
    assert_eq!(admission.n_suspects(), 1);
    // Cleared: it makes room for the trial of the other one.
    assert_eq!(next(&mut admission), Some(Order::Recall(RequestId(1))));
    assert_eq!(next(&mut admission), None, "it is still there");
    assert!(admission.recalled(RequestId(1)));
    assert!(!admission.recalled(RequestId(1)));
    assert_eq!((next(&mut admission), next(&mut admission)), (resume(2), None));
    came_to(&mut admission, 2, 31);
    // All are cleared: everybody together, then those who wait.
    assert_eq!(next(&mut admission), resume(1));
    assert_eq!(next(&mut admission), Some(Order::Submit(facts(3))));
    assert_eq!(next(&mut admission), None);
    assert_eq!(admission.on_worker().count(), 3);
}

#[test]
fn dying_alone_twice_at_one_place_is_proof() {
    let mut admission = running(2);
    came_to(&mut admission, 1, 12);
    dies(&mut admission, &FAULT);
    assert_eq!(next(&mut admission), resume(1));
    came_to(&mut admission, 1, 10);
    assert_eq!(dies(&mut admission, &FAULT), None, "once is chance");
    assert_eq!(next(&mut admission), resume(1));
    came_to(&mut admission, 1, 10);
    let convicted = dies(&mut admission, &DeathClass::Abort(Exit::Signal(6))).expect("twice is not");
    assert_eq!(convicted, Convicted { request: RequestId(1), position: Tokens(10), n_deaths: 2 });
    assert_eq!(convicted.reason(), DenyReason::Poisoned { n_deaths: 2, position: Tokens(10) });
    // It is gone, and the other one still has its trial.
    assert_eq!(admission.running().collect::<Vec<_>>(), [RequestId(2)]);
    assert_eq!((next(&mut admission), admission.n_suspects()), (resume(2), 1));
    came_to(&mut admission, 2, 1);
    assert_eq!(admission.n_suspects(), 0);
}

#[test]
fn dying_alone_at_ever_other_places_is_proof_in_the_end() {
    let mut admission = running(1);
    for n_deaths in 1..=limits::MAX_LONE_DEATHS {
        came_to(&mut admission, 1, 5 + n_deaths);
        let convicted = dies(&mut admission, &FAULT);
        assert_eq!(
            convicted.map(|convicted| convicted.n_deaths),
            (n_deaths == limits::MAX_LONE_DEATHS).then_some(n_deaths)
        );
        next(&mut admission);
    }
    assert_eq!(admission.n_running(), 0);
}

#[test]
fn only_what_a_request_can_cause_counts() {
    let why = || "why".to_owned();
    let check = |class: DeathClass, n_suspects| {
        let mut admission = running(2);
        assert_eq!(dies(&mut admission, &class), None);
        assert_eq!(admission.n_suspects(), n_suspects, "{class}");
        assert_eq!(next(&mut admission), resume(1));
        assert_eq!(next(&mut admission), if n_suspects == 0 { resume(2) } else { None }, "{class}");
    };
    for class in [
        FAULT,
        DeathClass::Abort(Exit::Code(101)),
        DeathClass::Hang(Hang::Silent),
        DeathClass::VramExhausted { why: why() },
    ] {
        check(class, 2);
    }
    for class in [
        DeathClass::KernelOom,
        DeathClass::HostExhausted { why: why() },
        DeathClass::GpuFault { xid: 79 },
        DeathClass::Killed { signal: 9 },
        DeathClass::BadConfiguration { code: 64 },
        DeathClass::LoadFailed { why: why() },
        DeathClass::SpawnFailed { why: why() },
        DeathClass::SocketLost { why: why() },
        DeathClass::Exited { code: 1 },
        DeathClass::Clean,
    ] {
        check(class, 0);
    }
    // A worker that never served had nobody in its steps, whoever was parked before.
    let mut admission = running(2);
    admission.park(); // replaced, not lost
    assert_eq!(admission.worker_died(&FAULT, false), None);
    assert_eq!(admission.worker_died(&FAULT, true), None);
    assert_eq!(admission.n_suspects(), 0);
}

#[test]
fn who_left_meanwhile_leaves_the_others_in_the_step() {
    let mut admission = running(2);
    admission.park();
    admission.cancel(RequestId(1));
    assert_eq!(admission.worker_died(&FAULT, true), None);
    assert_eq!(admission.n_suspects(), 1);
    // A trial that ends by itself, or whose client leaves, is over.
    let mut admission = running(3);
    dies(&mut admission, &FAULT);
    assert_eq!(next(&mut admission), resume(1));
    admission.finish(RequestId(1));
    assert_eq!(next(&mut admission), resume(2));
    admission.cancel(RequestId(2));
    assert_eq!((next(&mut admission), admission.n_suspects()), (resume(3), 1));
    assert_eq!(admission.clear(), [RequestId(3)]);
    assert_eq!((admission.n_suspects(), next(&mut admission)), (0, None));
}

#[test]
fn a_kill_from_outside_neither_clears_nor_accuses() {
    let mut admission = running(2);
    dies(&mut admission, &FAULT);
    for _ in 0..10 {
        assert_eq!((next(&mut admission), next(&mut admission)), (resume(1), None));
        assert_eq!(dies(&mut admission, &DeathClass::Killed { signal: 9 }), None);
        assert_eq!(admission.n_suspects(), 2);
    }
}

#[test]
fn who_was_in_many_steps_that_died_runs_alone_to_its_end() {
    let mut admission = running(2);
    for n_deaths in 1..=limits::MAX_SUSPICIONS {
        assert_eq!(dies(&mut admission, &FAULT), None, "a common step proves nothing");
        if n_deaths == limits::MAX_SUSPICIONS {
            break;
        }
        for request in [1, 2] {
            assert_eq!(next(&mut admission), resume(request));
            came_to(&mut admission, request, 50 + n_deaths);
            if next(&mut admission) == Some(Order::Recall(RequestId(request))) {
                admission.recalled(RequestId(request));
            }
        }
        while next(&mut admission).is_some() {}
        assert_eq!(admission.on_worker().count(), 2);
    }
    assert_eq!(next(&mut admission), resume(1));
    came_to(&mut admission, 1, 90);
    assert_eq!((next(&mut admission), admission.n_suspects()), (None, 2), "not cleared any more");
    admission.finish(RequestId(1));
    assert_eq!(next(&mut admission), resume(2));
}

#[test]
fn a_drain_lets_suspects_end_too() {
    let mut admission = running(2);
    dies(&mut admission, &FAULT);
    let draining = Gate::Closed(ClosedReason::Draining);
    assert_eq!(admission.next(&draining), resume(1));
    admission.finish(RequestId(1));
    assert_eq!(admission.next(&draining), resume(2));
    admission.pause(true);
    assert_eq!(dies(&mut admission, &FAULT), None);
    assert_eq!(next(&mut admission), resume(2), "a pause is for new work");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A world in which some requests kill every worker at a place of theirs, others do not, and somebody outside kills too.
    #[test]
    fn the_guilty_are_found_and_nobody_else(
        deadly in prop::collection::btree_map(1..9u64, 0..30u32, 0..5),
        lengths in prop::collection::vec(1..60u32, 8),
        chunk in 1..8u32,
        mut kills in prop::collection::vec(prop::bool::weighted(0.05), 4000),
    ) {
        let mut admission = running(8);
        let mut at: BTreeMap<u64, u32> = (1..=8).map(|request| (request, 0)).collect();
        let (mut done, mut convicted) = (BTreeSet::new(), BTreeSet::new());
        let mut n_crashes = 0;
        while admission.n_running() > 0 {
            let is_killed = kills.pop();
            prop_assert!(is_killed.is_some(), "it does not end");
            let step: Vec<u64> = admission.on_worker().map(|request| request.0).collect();
            prop_assert!(!step.is_empty(), "nobody runs");
            let dies_in = |request: &u64| {
                deadly.get(request).is_some_and(|place| (at[request]..at[request] + chunk).contains(place))
            };
            if is_killed == Some(true) || step.iter().any(dies_in) {
                let class = if is_killed == Some(true) { DeathClass::Killed { signal: 9 } } else { FAULT };
                n_crashes += u32::from(class == FAULT);
                convicted.extend(dies(&mut admission, &class).map(|convicted| convicted.request.0));
            } else {
                for request in step {
                    let position = at[&request] + chunk;
                    at.insert(request, position);
                    came_to(&mut admission, request, position);
                    if position >= lengths[request as usize - 1] && !deadly.contains_key(&request) {
                        prop_assert!(admission.finish(RequestId(request)));
                        done.insert(request);
                    }
                }
            }
            while let Some(order) = next(&mut admission) {
                match order {
                    Order::Resume(request) => drop(at.insert(request.0, 0)),
                    Order::Recall(request) => prop_assert!(admission.recalled(request)),
                    Order::Submit(facts) => prop_assert!(false, "{:?} is new", facts),
                }
            }
        }
        prop_assert_eq!(&convicted, &deadly.keys().copied().collect());
        prop_assert_eq!(done.len() + convicted.len(), 8);
        let n_guilty = deadly.len() as u32;
        let bound = n_guilty * (limits::LONE_DEATHS_AT_ONE_PLACE + limits::MAX_SUSPICIONS);
        prop_assert!(n_crashes <= bound, "{} crashes of {} guilty", n_crashes, n_guilty);
    }
}
