//! Whose process it is: every way in which it can't be ours.

use plimsoll_decide::identity::{
    DaemonLock, MayDo, Mismatch, ProcessReading, ProcessSight, ProcessState, Standing, WorkerRecord, standing,
};
use proptest::prelude::*;

fn record() -> WorkerRecord {
    WorkerRecord { boot_id: "boot-7".to_owned(), pid: 4410, start_ticks: 99_120, instance: "w-81f2".to_owned() }
}

fn process() -> ProcessReading {
    ProcessReading {
        boot_id: "boot-7".to_owned(),
        pid: 4410,
        start_ticks: 99_120,
        instance: Some("w-81f2".to_owned()),
        state: ProcessState::Running,
    }
}

/// What it is, what may be done, whether the record has done its work, and the words.
fn check(lock: DaemonLock, sight: &ProcessSight, expect: &Standing, may_do: MayDo, is_over: bool, words: &str) {
    let found = standing(&record(), lock, sight);
    assert_eq!(found, *expect);
    assert_eq!((found.may_do(), found.is_over()), (may_do, is_over), "{found:?}");
    let sentence = format!("process 4410 {found}");
    assert!(sentence.contains(words), "{sentence:?} lacks {words:?}");
}

fn seen(change: impl Fn(&mut ProcessReading)) -> ProcessSight {
    let mut process = process();
    change(&mut process);
    ProcessSight::Seen(process)
}

#[test]
fn a_worker_whose_daemon_is_gone_is_ours() {
    for lock in [DaemonLock::Free, DaemonLock::Mine] {
        let ours = |state| Standing::Ours { state };
        check(lock, &seen(|_| ()), &ours(ProcessState::Running), MayDo::End, false, "is a worker of ours");
        let blocked = seen(|process| process.state = ProcessState::Uninterruptible);
        let words = "in an uninterruptible wait in the kernel (state D)";
        check(lock, &blocked, &ours(ProcessState::Uninterruptible), MayDo::End, false, words);
        let zombie = seen(|process| process.state = ProcessState::Zombie);
        check(lock, &zombie, &ours(ProcessState::Zombie), MayDo::Leave, false, "was not collected by its parent");
    }
}

#[test]
fn whoever_differs_is_a_stranger_and_left_alone() {
    let stranger = |sight: ProcessSight, mismatch, is_over, words: &str| {
        for lock in [DaemonLock::Free, DaemonLock::Mine, DaemonLock::Another] {
            check(lock, &sight, &Standing::Stranger(mismatch), MayDo::Leave, is_over, words);
        }
    };
    let reused = seen(|process| process.start_ticks += 1);
    stranger(reused, Mismatch::StartTime, true, "the number of a former worker was given out again");
    stranger(seen(|process| process.boot_id = "boot-8".to_owned()), Mismatch::Boot, true, "of an earlier boot");
    stranger(seen(|process| process.pid = 4411), Mismatch::Pid, false, "not the process of the record");
    let other = seen(|process| process.instance = Some("w-0000".to_owned()));
    stranger(other, Mismatch::Instance, false, "the instance id of somebody else");
    // A reused pid whose environment can't be read is a reused pid.
    let reused = seen(|process| {
        process.start_ticks += 1;
        process.instance = None;
    });
    stranger(reused, Mismatch::StartTime, true, "began at another time");
}

#[test]
fn what_lives_under_another_daemon_or_cannot_be_proven_is_left_alone() {
    let words = "the worker of a daemon that lives";
    check(DaemonLock::Another, &seen(|_| ()), &Standing::Guarded, MayDo::Leave, false, words);
    for lock in [DaemonLock::Free, DaemonLock::Mine, DaemonLock::Another] {
        check(lock, &ProcessSight::Absent, &Standing::Gone, MayDo::Leave, true, "has ended");
        let unreadable = ProcessSight::Unreadable { why: "permission denied".to_owned() };
        let unproven = Standing::Unproven { why: "permission denied".to_owned() };
        check(lock, &unreadable, &unproven, MayDo::Leave, false, "(permission denied); end it yourself");
        let unproven = Standing::Unproven { why: "it carries no instance id that can be read".to_owned() };
        check(lock, &seen(|process| process.instance = None), &unproven, MayDo::Leave, false, "no instance id");
    }
}

fn any_reading() -> impl Strategy<Value = ProcessReading> {
    let boot = prop::sample::select(vec!["boot-7", "boot-8"]);
    let instance = prop::option::of(prop::sample::select(vec!["w-81f2", "w-81f3"]));
    let state = prop::sample::select(vec![ProcessState::Running, ProcessState::Uninterruptible, ProcessState::Zombie]);
    (boot, 4409..4412u32, 99_119..99_122u64, instance, state).prop_map(|(boot, pid, start_ticks, instance, state)| {
        let instance = instance.map(str::to_owned);
        ProcessReading { boot_id: boot.to_owned(), pid, start_ticks, instance, state }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn only_what_agrees_in_all_four_is_ended(
        reading in any_reading(),
        lock in prop::sample::select(vec![DaemonLock::Free, DaemonLock::Mine, DaemonLock::Another]),
    ) {
        let record = record();
        let agrees = reading.boot_id == record.boot_id
            && reading.pid == record.pid
            && reading.start_ticks == record.start_ticks
            && reading.instance.as_ref() == Some(&record.instance);
        let may_end = agrees && lock != DaemonLock::Another && reading.state != ProcessState::Zombie;
        let found = standing(&record, lock, &ProcessSight::Seen(reading));
        prop_assert_eq!(found.may_do() == MayDo::End, may_end, "{:?}", found);
    }
}
