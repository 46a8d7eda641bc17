//! The ledger: its words, its guards against a trivial model, and plans held against measurements.

use std::collections::BTreeMap;

use plimsoll_config::units::Bytes;
use plimsoll_decide::ledger::book::{Book, Debit, Overdraft};
use plimsoll_decide::ledger::reconcile::{Measured, Rest, Row, reconcile};
use plimsoll_decide::ledger::{Account, AccountId, Basis, Bounds, Entry, Ledger, Object};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn mib(n: u64) -> Bytes {
    Bytes(n * MIB)
}

fn entry(object: Object, n_mib: u64) -> Entry {
    Entry { object, bytes: mib(n_mib), basis: Basis::Planned, detail: String::new() }
}

fn card(entries: Vec<Entry>) -> Account {
    let bounds = Some(Bounds { limit: mib(12_282), line: mib(11_770) });
    Account { id: AccountId::Vram(0), title: "RTX 4070".to_owned(), bounds, entries, asked_beside: Bytes::ZERO }
}

#[test]
fn every_object_has_its_own_word_and_place() {
    let names: std::collections::BTreeSet<&str> = Object::ALL.iter().map(|object| object.name()).collect();
    assert_eq!(names.len(), Object::ALL.len());
    assert!(Object::ALL.iter().enumerate().all(|(place, object)| *object as usize == place));
    let named = |rule: fn(Object) -> bool| -> Vec<&str> {
        Object::ALL.into_iter().filter(|object| rule(*object)).map(Object::name).collect()
    };
    assert_eq!(named(|object| !object.is_held()), ["slack", "page_cache_model", "file_tier_reads"]);
    assert_eq!(named(|object| !object.is_ours()), ["foreign", "driver_reserved", "unattributed"]);
    assert_eq!(named(Object::is_in_reserve), ["verify_arena", "draft_head", "prompt_path", "slack"]);
}

#[test]
fn accounts_have_words_for_tables_and_for_sentences() {
    let check = |id: AccountId, name, sentence| assert_eq!((id.name(), id.to_string().as_str()), (name, sentence));
    check(AccountId::Host, "host", "host memory");
    check(AccountId::Vram(1), "vram", "GPU 1");
    check(AccountId::Disk, "disk", "disk");
}

#[test]
fn slack_is_not_used_and_what_is_asked_beside_is_missing() {
    let mut account = card(vec![
        entry(Object::DenseWeights, 5417),
        entry(Object::PromptPath, 1000),
        entry(Object::Slack, 700),
        entry(Object::Foreign, 2000),
        entry(Object::Foreign, 300),
        entry(Object::DriverReserved, 67),
    ]);
    assert_eq!((account.own(), account.foreign(), account.used()), (mib(6417), mib(2367), mib(8784)));
    assert_eq!(account.object(Object::Foreign), Some(mib(2300)));
    assert_eq!(account.object(Object::Kv), None);
    assert_eq!((account.headroom(), account.shortfall()), (Some(mib(2986)), Bytes::ZERO));
    assert!(Ledger { accounts: vec![account.clone()] }.fits());
    account.asked_beside = mib(3000);
    assert_eq!((account.headroom(), account.shortfall()), (Some(Bytes::ZERO), mib(14)));
    assert!(!Ledger { accounts: vec![account.clone()] }.fits());
    // Nothing is asked for any more once it runs.
    let running = reconcile(&account, &Measured { used: account.used(), objects: Vec::new() }).account(&account);
    assert_eq!((running.asked_beside, running.used()), (Bytes::ZERO, account.used()));
}

#[test]
fn a_plan_is_held_against_what_was_measured() {
    let planned = card(vec![
        entry(Object::DenseWeights, 5417),
        entry(Object::Kv, 595),
        entry(Object::Slack, 512),
        Entry { basis: Basis::Estimated, detail: "the driver's".to_owned(), ..entry(Object::Context, 287) },
    ]);
    let objects = vec![
        (Object::DenseWeights, mib(5400)),
        (Object::Kv, mib(300)),
        (Object::Kv, mib(300)),
        (Object::Staging, mib(64)),
    ];
    let found = reconcile(&planned, &Measured { used: mib(6500), objects });
    let row = |object, planned: Option<u64>, measured: Option<u64>| Row {
        object,
        planned: planned.map(mib),
        measured: measured.map(mib),
    };
    let expect = [
        row(Object::DenseWeights, Some(5417), Some(5400)),
        row(Object::Kv, Some(595), Some(600)),
        row(Object::Context, Some(287), None),
        row(Object::Staging, None, Some(64)),
    ];
    assert_eq!(found.rows, expect);
    assert_eq!(found.rest, Rest::Unattributed(mib(6500 - 5400 - 600 - 287 - 64)));
    let errors: Vec<_> = found.rows.iter().map(Row::error_permille).collect();
    assert_eq!(errors, [Some(4), Some(9), None, None]);

    let account = found.account(&planned);
    assert_eq!(account.used(), mib(6500));
    let shown: Vec<_> = account.entries.iter().map(|entry| (entry.object.name(), entry.basis.name())).collect();
    let expect = [
        ("dense_weights", "measured"),
        ("kv", "measured"),
        ("context", "estimated"),
        ("staging", "measured"),
        ("unattributed", "measured"),
    ];
    assert_eq!(shown, expect);
}

#[test]
fn a_plan_that_is_not_used_up_yet_is_overcounted_not_negative() {
    let planned = card(vec![entry(Object::Kv, 595), entry(Object::ExpertCache, 100)]);
    let check = |used, expect| {
        let found = reconcile(&planned, &Measured { used: mib(used), objects: Vec::new() });
        assert_eq!(found.rest, expect);
        assert_eq!(found.account(&planned).object(Object::Unattributed), (used > 695).then(|| mib(used - 695)));
    };
    check(600, Rest::Overcounted(mib(95)));
    check(695, Rest::Explained);
    check(700, Rest::Unattributed(mib(5)));
}

#[test]
fn an_error_is_never_divided_by_nothing() {
    let row =
        |planned, measured| Row { object: Object::Kv, planned: Some(Bytes(planned)), measured: Some(Bytes(measured)) };
    assert_eq!(row(5, 0).error_permille(), None);
    assert_eq!(row(5, 5).error_permille(), Some(0));
    assert_eq!(row(u64::MAX, 1).error_permille(), Some(u64::MAX));
    assert_eq!(Row { object: Object::Kv, planned: None, measured: None }.best(), Bytes::ZERO);
}

#[test]
fn a_refused_debit_says_who_asked_and_what_there_was() {
    let book = Book::new(mib(100));
    let kv = book.debit(Object::Kv, mib(60)).expect("there is room");
    let refused = book.debit(Object::Sessions, mib(50)).expect_err("there is not");
    assert_eq!(refused, Overdraft { object: Object::Sessions, asked: mib(50), left: mib(40) });
    assert_eq!(refused.to_string(), "sessions asks for 50.0 MiB, but only 40.0 MiB are left under the line");
    assert_eq!((book.bound(), book.used(), book.headroom()), (mib(100), mib(60), mib(40)));
    drop(kv);
    assert_eq!((book.used(), book.held(Object::Kv)), (Bytes::ZERO, Bytes::ZERO));
    assert!(book.debit(Object::Kv, Bytes(u64::MAX)).is_err());
}

/// A debit goes with its owner to another thread, and comes back from there.
#[test]
fn a_debit_outlives_the_book_and_moves_between_threads() {
    let book = Book::new(mib(10));
    let debit = book.debit(Object::Service, mib(10)).expect("there is room");
    let same = book.clone();
    drop(book);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(debit));
    });
    assert_eq!(same.used(), Bytes::ZERO);
}

#[derive(Debug, Clone)]
enum Step {
    Take { object: Object, bytes: u64 },
    Grow { at: usize, bytes: u64 },
    Shrink { at: usize, bytes: u64 },
    Split { at: usize, bytes: u64 },
    Drop { at: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let object = prop::sample::select(vec![Object::Kv, Object::Sessions, Object::ExpertCache]);
    prop_oneof![
        (object, 0..60u64).prop_map(|(object, bytes)| Step::Take { object, bytes }),
        (any::<usize>(), 0..60u64).prop_map(|(at, bytes)| Step::Grow { at, bytes }),
        (any::<usize>(), 0..60u64).prop_map(|(at, bytes)| Step::Shrink { at, bytes }),
        (any::<usize>(), 0..60u64).prop_map(|(at, bytes)| Step::Split { at, bytes }),
        any::<usize>().prop_map(|at| Step::Drop { at }),
    ]
}

/// The model of a book: the list of what is held. Its sums are the book's.
fn apply(step: &Step, book: &Book, bound: u64, debits: &mut Vec<Debit>, model: &mut Vec<(Object, u64)>) {
    let used: u64 = model.iter().map(|(_, bytes)| bytes).sum();
    let place = |at: usize| if model.is_empty() { None } else { Some(at % model.len()) };
    match *step {
        Step::Take { object, bytes } => match book.debit(object, Bytes(bytes)) {
            Ok(debit) => {
                assert!(used + bytes <= bound);
                debits.push(debit);
                model.push((object, bytes));
            }
            Err(refused) => {
                assert!(used + bytes > bound);
                assert_eq!(refused.left, Bytes(bound - used));
            }
        },
        Step::Grow { at, bytes } => {
            let Some(at) = place(at) else { return };
            let grown = debits[at].grow(Bytes(bytes)).is_ok();
            assert_eq!(grown, used + bytes <= bound);
            model[at].1 += if grown { bytes } else { 0 };
        }
        Step::Shrink { at, bytes } => {
            let Some(at) = place(at) else { return };
            debits[at].shrink(Bytes(bytes));
            model[at].1 = model[at].1.saturating_sub(bytes);
        }
        Step::Split { at, bytes } => {
            let Some(at) = place(at) else { return };
            let (object, held) = model[at];
            let moved = bytes.min(held);
            let part = debits[at].split(Bytes(bytes));
            debits.push(part);
            model[at].1 -= moved;
            model.push((object, moved));
        }
        Step::Drop { at } => {
            let Some(at) = place(at) else { return };
            drop(debits.swap_remove(at));
            model.swap_remove(at);
        }
    }
}

proptest! {
    #[test]
    fn a_book_is_the_sum_of_its_debits(bound in 0..200u64, steps in prop::collection::vec(any_step(), 0..60)) {
        let book = Book::new(Bytes(bound));
        let (mut debits, mut model) = (Vec::new(), Vec::new());
        for step in &steps {
            apply(step, &book, bound, &mut debits, &mut model);
            let mut by_object: BTreeMap<Object, u64> = BTreeMap::new();
            for (object, bytes) in &model {
                *by_object.entry(*object).or_default() += bytes;
            }
            let used: u64 = by_object.values().sum();
            prop_assert_eq!((book.used(), book.headroom()), (Bytes(used), Bytes(bound - used)));
            for object in Object::ALL {
                prop_assert_eq!(book.held(object), Bytes(by_object.get(&object).copied().unwrap_or(0)));
            }
            let held: Vec<_> = debits.iter().map(|debit| (debit.object(), debit.bytes().0)).collect();
            prop_assert_eq!(&held, &model);
        }
        drop(debits);
        prop_assert_eq!(book.used(), Bytes::ZERO);
    }

    #[test]
    fn known_objects_and_the_rest_are_what_is_used(
        planned in prop::collection::vec((prop::sample::select(Object::ALL.to_vec()), 0..1000u64), 0..8),
        objects in prop::collection::vec((prop::sample::select(Object::ALL.to_vec()), 0..1000u64), 0..8),
        used in 0..8000u64,
    ) {
        let planned = card(planned.into_iter().map(|(object, n_mib)| entry(object, n_mib)).collect());
        let objects = objects.into_iter().map(|(object, n_mib)| (object, mib(n_mib))).collect();
        let found = reconcile(&planned, &Measured { used: mib(used), objects });
        let known: u64 = found.rows.iter().map(|row| row.best().0).sum();
        let sum = match found.rest {
            Rest::Explained => known,
            Rest::Unattributed(rest) => known + rest.0,
            Rest::Overcounted(rest) => known - rest.0,
        };
        prop_assert_eq!(Bytes(sum), mib(used));
        prop_assert!(found.account(&planned).used() >= mib(used));
    }
}
