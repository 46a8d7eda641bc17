//! The queue against the plainest model of it, and the words of each refusal.

use std::collections::{BTreeSet, VecDeque};

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::{
    Admission, Cancelled, Capacity, ClientId, ClosedReason, DenyReason, Facts, Gate, HttpShape, Order, RequestId,
    Verdict,
};
use plimsoll_decide::lifecycle::death::DeathClass;
use proptest::prelude::*;

const NOW: Millis = Millis(1000);
const KILLED: DeathClass = DeathClass::Killed { signal: 9 };

/// All of one client: what is fair between several has tests of its own.
fn facts(request: u64, n_prompt: u32) -> Facts {
    Facts {
        request: RequestId(request),
        client: ClientId(0),
        session: None,
        n_prompt: Tokens(n_prompt),
        max_tokens: Tokens(100),
        deadline: None,
    }
}

fn capacity(n_ctx: u32, max_running: u32, max_waiting: u32) -> Capacity {
    Capacity { n_ctx: Some(Tokens(n_ctx)), kv: None, max_running, max_waiting }
}

fn submit(request: u64, n_prompt: u32) -> Option<Order> {
    Some(Order::Submit(facts(request, n_prompt)))
}

fn not_ready() -> Gate {
    Gate::Closed(ClosedReason::NotReady { why: "the model file is missing".to_owned(), retry_after: None })
}

#[test]
fn requests_run_then_wait_then_are_refused() {
    let mut admission = Admission::new(capacity(1000, 2, 2));
    let mut offer = |request| admission.offer(NOW, &Gate::Open, facts(request, 10));
    assert_eq!(offer(1), Verdict::Admit);
    assert_eq!(offer(2), Verdict::Admit);
    assert_eq!(offer(3), Verdict::Wait { position: 0 });
    assert_eq!(offer(4), Verdict::Wait { position: 1 });
    assert_eq!(offer(5), Verdict::Deny(DenyReason::QueueFull { n_waiting: 2 }));
    assert_eq!(offer(1), Verdict::AlreadyPresent);
    assert_eq!(offer(4), Verdict::AlreadyPresent);
    assert_eq!((admission.n_running(), admission.n_waiting()), (2, 2));
    assert_eq!(admission.running().collect::<Vec<_>>(), [RequestId(1), RequestId(2)]);
    assert_eq!(admission.waiting().collect::<Vec<_>>(), [facts(3, 10), facts(4, 10)]);

    assert!(admission.finish(RequestId(1)));
    assert!(!admission.finish(RequestId(1)));
    assert_eq!(admission.next(&Gate::Hold), None);
    assert_eq!(admission.next(&Gate::Open), submit(3, 10));
    assert_eq!(admission.next(&Gate::Open), None);
    assert_eq!(admission.cancel(RequestId(4)), Cancelled::WasWaiting);
    assert_eq!(admission.cancel(RequestId(3)), Cancelled::WasRunning);
    assert_eq!(admission.cancel(RequestId(3)), Cancelled::Unknown);
    assert_eq!(admission.clear(), [RequestId(2)]);
}

#[test]
fn nobody_overtakes() {
    let mut admission = Admission::new(capacity(1000, 1, 3));
    assert_eq!(admission.offer(NOW, &Gate::Hold, facts(1, 10)), Verdict::Wait { position: 0 });
    // A slot is free and the gate is open, but somebody waits.
    assert_eq!(admission.offer(NOW, &Gate::Open, facts(2, 10)), Verdict::Wait { position: 1 });
    assert_eq!(admission.position(RequestId(2)), Some(1));
    assert_eq!(admission.next(&Gate::Open), submit(1, 10));
}

#[test]
fn a_closed_gate_says_why_and_a_request_that_can_never_run_hears_that_first() {
    let mut admission = Admission::new(capacity(1000, 1, 1));
    let mut check = |gate: &Gate, n_prompt, expect: DenyReason| {
        assert_eq!(admission.offer(NOW, gate, facts(1, n_prompt)), Verdict::Deny(expect));
    };
    check(&not_ready(), 10, DenyReason::NotReady { why: "the model file is missing".to_owned(), retry_after: None });
    check(&Gate::Closed(ClosedReason::Draining), 10, DenyReason::Draining);
    let too_long = |n_prompt| DenyReason::TooLong { n_prompt: Tokens(n_prompt), n_ctx: Tokens(1000) };
    check(&Gate::Open, 1000, too_long(1000));
    check(&Gate::Closed(ClosedReason::Draining), 1001, too_long(1001));
    check(&not_ready(), 0, DenyReason::EmptyPrompt);
    assert_eq!(admission.next(&not_ready()), None);
    assert_eq!(admission.offer(NOW, &Gate::Open, facts(1, 999)), Verdict::Admit);
}

#[test]
fn an_answer_gets_the_room_behind_its_prompt() {
    let admission = Admission::new(capacity(1000, 1, 1));
    let check = |n_prompt, expect| assert_eq!(admission.answer_tokens(facts(1, n_prompt)), Tokens(expect));
    check(10, 100);
    check(950, 50);
    check(999, 1);
    check(2000, 0);
    let unplanned = Admission::new(Capacity { n_ctx: None, kv: None, max_running: 1, max_waiting: 1 });
    assert_eq!(unplanned.answer_tokens(facts(1, 2000)), Tokens(100));
}

#[test]
fn lengths_are_judged_when_the_plan_comes() {
    let mut admission = Admission::new(Capacity { n_ctx: None, kv: None, max_running: 1, max_waiting: 8 });
    for (request, n_prompt) in [(1, 50), (2, 5000), (3, 70)] {
        assert!(matches!(admission.offer(NOW, &Gate::Hold, facts(request, n_prompt)), Verdict::Wait { .. }));
    }
    let too_long = DenyReason::TooLong { n_prompt: Tokens(5000), n_ctx: Tokens(1000) };
    assert_eq!(admission.resize(capacity(1000, 1, 8)), [(RequestId(2), too_long)]);
    assert_eq!(admission.capacity(), capacity(1000, 1, 8));
    assert_eq!(admission.waiting().collect::<Vec<_>>(), [facts(1, 50), facts(3, 70)]);
}

#[test]
fn running_requests_outlive_any_number_of_workers_that_were_killed() {
    let mut admission = Admission::new(capacity(1000, 2, 8));
    for request in [1, 2, 3] {
        admission.offer(NOW, &Gate::Open, facts(request, 10));
    }
    for _ in 0..20 {
        admission.park();
        assert_eq!(admission.on_worker().count(), 0);
        assert_eq!(admission.worker_died(&KILLED, true), None);
        assert_eq!(admission.next(&Gate::Hold), None);
        assert_eq!(admission.next(&Gate::Open), Some(Order::Resume(RequestId(1))));
        assert_eq!(admission.next(&Gate::Open), Some(Order::Resume(RequestId(2))));
        assert_eq!(admission.next(&Gate::Open), None, "the third one still waits");
    }
    assert_eq!((admission.n_running(), admission.n_suspects()), (2, 0));
}

#[test]
fn a_new_request_does_not_overtake_a_parked_one() {
    let mut admission = Admission::new(capacity(1000, 2, 8));
    admission.offer(NOW, &Gate::Open, facts(1, 10));
    admission.park();
    assert_eq!(admission.offer(NOW, &Gate::Open, facts(2, 10)), Verdict::Wait { position: 0 });
    assert_eq!(admission.next(&Gate::Closed(ClosedReason::Draining)), Some(Order::Resume(RequestId(1))), "it was in");
    assert_eq!(admission.next(&Gate::Closed(ClosedReason::Draining)), None, "it was not");
    assert_eq!(admission.next(&Gate::Open), submit(2, 10));
}

#[test]
fn a_smaller_context_is_for_new_work_alone() {
    let mut admission = Admission::new(capacity(1000, 1, 8));
    for (request, n_prompt) in [(1, 600), (2, 600), (3, 100)] {
        admission.offer(NOW, &Gate::Open, facts(request, n_prompt));
    }
    let too_long =
        |request, n_ctx| (RequestId(request), DenyReason::TooLong { n_prompt: Tokens(600), n_ctx: Tokens(n_ctx) });
    assert_eq!(admission.cap_context(Some(Tokens(500))), [too_long(2, 500)]);
    assert_eq!(admission.answer_tokens(facts(3, 450)), Tokens(50));
    assert_eq!(admission.running().collect::<Vec<_>>(), [RequestId(1)]);
    assert_eq!(admission.offer(NOW, &Gate::Open, facts(4, 600)), Verdict::Deny(too_long(4, 500).1));
    assert_eq!(admission.cap_context(None), []);
    assert_eq!(admission.offer(NOW, &Gate::Open, facts(4, 600)), Verdict::Wait { position: 1 });
    // A plan with less room is another matter: a parked prompt that is longer can't be run on it.
    admission.park();
    assert_eq!(admission.resize(capacity(500, 1, 8)), [too_long(1, 500), too_long(4, 500)]);
    assert_eq!(admission.resize(capacity(600, 1, 8)), []);
    assert_eq!(admission.next(&Gate::Open), submit(3, 100));
    // One that is on a worker has its room.
    assert_eq!(admission.resize(capacity(90, 1, 8)), []);
}

#[test]
fn a_pause_holds_new_work_back_and_nothing_else() {
    let mut admission = Admission::new(capacity(1000, 2, 8));
    admission.offer(NOW, &Gate::Open, facts(1, 10));
    assert!(!admission.is_paused());
    admission.pause(true);
    assert!(admission.is_paused());
    assert_eq!(admission.offer(NOW, &Gate::Open, facts(2, 10)), Verdict::Wait { position: 0 });
    assert_eq!(admission.next(&Gate::Open), None);
    admission.park();
    assert_eq!(admission.next(&Gate::Open), Some(Order::Resume(RequestId(1))));
    assert_eq!(admission.next(&Gate::Open), None);
    admission.pause(false);
    assert_eq!(admission.next(&Gate::Open), submit(2, 10));
}

#[test]
fn who_waits_too_long_is_told_so() {
    let until = |request, at| Facts { deadline: Some(Millis(at)), ..facts(request, 10) };
    let mut admission = Admission::new(capacity(1000, 1, 8));
    let over = |request| (RequestId(request), DenyReason::DeadlinePassed);
    assert_eq!(admission.offer(NOW, &Gate::Open, until(1, 1000)), Verdict::Admit, "it need not wait");
    assert_eq!(admission.offer(NOW, &Gate::Open, until(2, 1000)), Verdict::Deny(DenyReason::DeadlinePassed));
    assert_eq!(admission.next_wake(), None, "it runs");
    for (request, at) in [(2, 3000), (3, 2000), (4, 2500)] {
        admission.offer(NOW, &Gate::Open, until(request, at));
    }
    assert_eq!(admission.next_wake(), Some(Millis(2000)));
    assert_eq!(admission.expire(Millis(1999)), []);
    assert_eq!(admission.expire(Millis(2500)), [over(3), over(4)]);
    assert_eq!(admission.next_wake(), Some(Millis(3000)));
    admission.finish(RequestId(1));
    assert_eq!(admission.next(&Gate::Open), Some(Order::Submit(until(2, 3000))));
    assert_eq!((admission.expire(Millis(9999)), admission.next_wake()), (vec![], None));
}

#[test]
fn fewer_slots_evict_nobody() {
    let mut admission = Admission::new(capacity(1000, 2, 8));
    for request in 1..=3 {
        admission.offer(NOW, &Gate::Open, facts(request, 10));
    }
    assert_eq!(admission.resize(capacity(1000, 1, 8)), []);
    assert_eq!(admission.n_running(), 2);
    admission.finish(RequestId(1));
    assert_eq!(admission.next(&Gate::Open), None);
    admission.finish(RequestId(2));
    assert_eq!(admission.next(&Gate::Open), submit(3, 10));
}

#[test]
fn each_refusal_has_its_status_and_its_words() {
    let check = |reason: DenyReason, status, kind, code, retry_after, words: &[&str]| {
        assert_eq!(reason.http(), HttpShape { status, kind, code, retry_after });
        let sentence = reason.to_string();
        for word in words {
            assert!(sentence.contains(word), "{sentence:?} lacks {word:?}");
        }
    };
    let too_long = DenyReason::TooLong { n_prompt: Tokens(9000), n_ctx: Tokens(8192) };
    let words = ["exceeds the available context size", "context_length_exceeded", "9000", "8192"];
    check(too_long, 400, "exceed_context_size_error", "context_length_exceeded", None, &words);
    check(DenyReason::EmptyPrompt, 400, "invalid_request_error", "empty_prompt", None, &["at least one token"]);
    let full = DenyReason::QueueFull { n_waiting: 32 };
    check(full, 429, "rate_limit_error", "queue_full", Some(Millis(5000)), &["32 requests are waiting"]);
    let not_ready =
        DenyReason::NotReady { why: "it does not fit".to_owned(), retry_after: Some(limits::NOT_READY_RETRY_AFTER) };
    check(not_ready, 503, "service_unavailable_error", "not_ready", Some(Millis(2000)), &["it does not fit"]);
    check(DenyReason::Draining, 503, "service_unavailable_error", "draining", Some(Millis(2000)), &["is ending"]);
    let over = DenyReason::DeadlinePassed;
    check(
        over,
        503,
        "service_unavailable_error",
        "deadline_passed",
        Some(Millis(5000)),
        &["as long as it was to wait"],
    );
    let died = DenyReason::Poisoned { n_deaths: 3, position: Tokens(17) };
    let words = ["3 workers died with this request", "after 17 of its tokens", "kept for replay"];
    check(died, 500, "poisoned_request_error", "request_ends_worker", None, &words);
}

/// What may happen to the queue.
#[derive(Debug, Clone)]
enum Op {
    Offer { request: u64, n_prompt: u32 },
    Next,
    Finish { request: u64 },
    Cancel { request: u64 },
    WorkerDied,
    Gate(Gate),
    Resize(Capacity),
    Clear,
}

fn any_op() -> impl Strategy<Value = Op> {
    let request = 0..12u64;
    prop_oneof![
        6 => (request.clone(), 0..80u32).prop_map(|(request, n_prompt)| Op::Offer { request, n_prompt }),
        4 => Just(Op::Next),
        3 => request.clone().prop_map(|request| Op::Finish { request }),
        2 => request.prop_map(|request| Op::Cancel { request }),
        1 => Just(Op::WorkerDied),
        2 => prop::sample::select(vec![Gate::Open, Gate::Open, Gate::Hold, not_ready(), Gate::Closed(ClosedReason::Draining)])
            .prop_map(Op::Gate),
        1 => (prop::option::of(1..80u32), 0..4u32, 0..5u32).prop_map(|(n_ctx, max_running, max_waiting)| {
            Op::Resize(Capacity { n_ctx: n_ctx.map(Tokens), kv: None, max_running, max_waiting })
        }),
        1 => Just(Op::Clear),
    ]
}

/// The plainest queue: a list of those who wait, sets of those who run and of those who lost their worker, the rules written
/// out.
struct Model {
    capacity: Capacity,
    gate: Gate,
    /// (request, tokens of its prompt), in the order of their numbers.
    running: BTreeSet<(u64, u32)>,
    parked: BTreeSet<u64>,
    waiting: VecDeque<(u64, u32)>,
}

impl Model {
    fn runs(&self, request: u64) -> bool {
        self.running.iter().any(|(other, _)| *other == request)
    }

    fn stop(&mut self, request: u64) -> bool {
        let ran = self.runs(request);
        self.running.retain(|(other, _)| *other != request);
        self.parked.remove(&request);
        ran
    }

    fn fits(&self, n_prompt: u32) -> bool {
        n_prompt > 0 && self.capacity.n_ctx.is_none_or(|n_ctx| n_prompt < n_ctx.0)
    }

    fn offer(&mut self, request: u64, n_prompt: u32) -> &'static str {
        let is_open = self.gate == Gate::Open;
        let has_slot = self.running.len() < self.capacity.max_running as usize && self.parked.is_empty();
        if self.runs(request) || self.waiting.iter().any(|(other, _)| *other == request) {
            "present"
        } else if !self.fits(n_prompt) || matches!(self.gate, Gate::Closed(_)) {
            "deny"
        } else if is_open && has_slot && self.waiting.is_empty() {
            self.running.insert((request, n_prompt));
            "admit"
        } else if self.waiting.len() >= self.capacity.max_waiting as usize {
            "deny"
        } else {
            self.waiting.push_back((request, n_prompt));
            "wait"
        }
    }

    fn next(&mut self) -> Option<Order> {
        let may_resume = matches!(self.gate, Gate::Open | Gate::Closed(ClosedReason::Draining));
        if may_resume && let Some(request) = self.parked.pop_first() {
            return Some(Order::Resume(RequestId(request)));
        }
        if self.gate != Gate::Open || self.running.len() >= self.capacity.max_running as usize {
            return None;
        }
        let (request, n_prompt) = self.waiting.pop_front()?;
        self.running.insert((request, n_prompt));
        submit(request, n_prompt)
    }
}

/// Carries one operation out on both and compares what they say.
fn run_op(admission: &mut Admission, model: &mut Model, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::Offer { request, n_prompt } => {
            let found = match admission.offer(NOW, &model.gate, facts(request, n_prompt)) {
                Verdict::Admit => "admit",
                Verdict::AlreadyPresent => "present",
                Verdict::Wait { position } => {
                    prop_assert_eq!(position as usize, model.waiting.len());
                    "wait"
                }
                Verdict::Deny(reason) => {
                    prop_assert!(!reason.to_string().is_empty());
                    "deny"
                }
            };
            prop_assert_eq!(found, model.offer(request, n_prompt));
        }
        Op::Next => prop_assert_eq!(admission.next(&model.gate), model.next()),
        Op::Finish { request } => {
            prop_assert_eq!(admission.finish(RequestId(request)), model.stop(request));
        }
        Op::Cancel { request } => {
            let n_waiting = model.waiting.len();
            model.waiting.retain(|(other, _)| *other != request);
            let expect = match (model.stop(request), model.waiting.len() < n_waiting) {
                (true, _) => Cancelled::WasRunning,
                (false, true) => Cancelled::WasWaiting,
                (false, false) => Cancelled::Unknown,
            };
            prop_assert_eq!(admission.cancel(RequestId(request)), expect);
        }
        Op::WorkerDied => {
            model.parked = model.running.iter().map(|(request, _)| *request).collect();
            admission.park();
            prop_assert_eq!(admission.worker_died(&KILLED, true), None);
        }
        Op::Gate(gate) => model.gate = gate,
        Op::Resize(capacity) => {
            model.capacity = capacity;
            let too_long = |request: &u64, n_prompt: &u32, model: &Model| {
                model.parked.contains(request) && capacity.n_ctx.is_some_and(|n_ctx| *n_prompt >= n_ctx.0)
            };
            let running = model.running.iter().filter(|(request, n_prompt)| too_long(request, n_prompt, model));
            let mut expect: Vec<u64> = running.map(|(request, _)| *request).collect();
            for request in expect.clone() {
                model.stop(request);
            }
            let (kept, denied): (Vec<_>, Vec<_>) =
                model.waiting.iter().partition(|(_, n_prompt)| model.fits(*n_prompt));
            model.waiting = kept.into_iter().collect();
            expect.extend(denied.into_iter().map(|(request, _)| request));
            let found: Vec<u64> = admission.resize(capacity).iter().map(|(request, _)| request.0).collect();
            prop_assert_eq!(found, expect);
        }
        Op::Clear => {
            model.parked.clear();
            let running = std::mem::take(&mut model.running).into_iter().map(|(request, _)| request);
            let expect: Vec<u64> = running.chain(model.waiting.drain(..).map(|(request, _)| request)).collect();
            prop_assert_eq!(admission.clear().iter().map(|request| request.0).collect::<Vec<_>>(), expect);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_queue_does_what_the_model_does(ops in prop::collection::vec(any_op(), 0..80)) {
        let start = capacity(50, 2, 3);
        let mut admission = Admission::new(start);
        let mut model = Model {
            capacity: start,
            gate: Gate::Open,
            running: BTreeSet::new(),
            parked: BTreeSet::new(),
            waiting: VecDeque::new(),
        };
        for op in ops {
            run_op(&mut admission, &mut model, op)?;
            let running: Vec<u64> = admission.running().map(|request| request.0).collect();
            prop_assert_eq!(running, model.running.iter().map(|(request, _)| *request).collect::<Vec<_>>());
            let waiting: Vec<u64> = admission.waiting().map(|facts| facts.request.0).collect();
            prop_assert_eq!(waiting, model.waiting.iter().map(|(request, _)| *request).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_request_ends_exactly_once(ops in prop::collection::vec(any_op(), 0..80)) {
        let mut admission = Admission::new(capacity(50, 2, 3));
        let mut gate = Gate::Open;
        let (mut n_in, mut n_out) = (0usize, 0usize);
        for op in ops {
            match op {
                Op::Offer { request, n_prompt } => match admission.offer(NOW, &gate, facts(request, n_prompt)) {
                    Verdict::Admit | Verdict::Wait { .. } => n_in += 1,
                    Verdict::AlreadyPresent | Verdict::Deny(_) => {}
                },
                Op::Next => { admission.next(&gate); }
                Op::Finish { request } => n_out += usize::from(admission.finish(RequestId(request))),
                Op::Cancel { request } => n_out += usize::from(admission.cancel(RequestId(request)) != Cancelled::Unknown),
                Op::WorkerDied => {
                    admission.park();
                    n_out += usize::from(admission.worker_died(&DeathClass::Fault { signal: 11 }, true).is_some());
                }
                Op::Gate(new) => gate = new,
                Op::Resize(capacity) => n_out += admission.resize(capacity).len(),
                Op::Clear => n_out += admission.clear().len(),
            }
            prop_assert_eq!(n_in - n_out, (admission.n_running() + admission.n_waiting()) as usize);
        }
    }
}
