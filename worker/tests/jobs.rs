//! The requests of a worker, without a socket: each is answered exactly once, whatever happens to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{plan, some_ids, tiny_path};
use plimsoll_kernels::cpu::Cpu;
use plimsoll_tests::fixture::tiny::Tiny;
use plimsoll_wire::{FailureClass, Finish, FromWorker, Sampling, Submit};
use plimsoll_worker::engine::{Flow, Point};
use plimsoll_worker::schedule::Bounds;
use plimsoll_worker::serve::jobs::{Jobs, Outbox};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const GREEDY: Sampling =
    Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, repeat_last_n: 0, seed: 0 };
const WARM: Sampling =
    Sampling { temperature: 1.5, top_k: 40, repeat_penalty: 1.1, repeat_last_n: 16, seed: 99, ..GREEDY };

const BOUNDS: Bounds = Bounds { max_sessions: 3, max_waiting: 2, prefill_tokens: 16 };

/// Jobs on a tiny model with a context of 64 tokens. No id ends an answer, unless a test says so.
fn jobs_ending_at(end_ids: BTreeSet<u32>) -> Jobs<Cpu> {
    let plan = plimsoll_worker::start::Plan { n_ctx_tokens: 64, ..plan(&tiny_path(Tiny::LlamaMoe)) };
    Jobs::new(common::engine(&plan), BOUNDS, end_ids)
}

fn jobs() -> Jobs<Cpu> {
    jobs_ending_at(BTreeSet::new())
}

fn submit(request: u64, n_prompt: usize, max_tokens: u32) -> Submit {
    let prompt = some_ids(n_prompt, 256, request as usize);
    Submit { request, prompt, generated: Vec::new(), sampling: GREEDY, max_tokens }
}

fn go_on(_: Point) -> Flow {
    Flow::Continue
}

/// Steps until nothing is left.
fn finish(jobs: &mut Jobs<Cpu>, out: &mut Outbox) {
    for _ in 0..1000 {
        if jobs.is_idle() {
            return;
        }
        jobs.step(&mut go_on, out);
    }
    panic!("1000 steps were not enough: {out:?}");
}

fn tokens_of(out: &Outbox, request: u64) -> Vec<u32> {
    let ids = out.iter().filter_map(|m| match m {
        FromWorker::Tokens { request: r, ids } if *r == request => Some(ids.clone()),
        _ => None,
    });
    ids.flatten().collect()
}

fn failure_of(out: &Outbox, request: u64) -> Option<(FailureClass, String)> {
    out.iter().find_map(|m| match m {
        FromWorker::Failed { request: r, class, message } if *r == request => Some((*class, message.clone())),
        _ => None,
    })
}

fn finish_of(out: &Outbox, request: u64) -> Option<Finish> {
    out.iter().find_map(|m| match m {
        FromWorker::Done { request: r, finish, .. } if *r == request => Some(*finish),
        _ => None,
    })
}

/// How many ends each request got.
fn ends(out: &Outbox) -> BTreeMap<u64, usize> {
    let mut ends = BTreeMap::new();
    for message in out {
        if let FromWorker::Done { request, .. } | FromWorker::Failed { request, .. } = message {
            *ends.entry(*request).or_default() += 1;
        }
    }
    ends
}

#[test]
fn an_answer_does_not_depend_on_its_company() {
    let alone = |request: u64| {
        let (mut jobs, mut out) = (jobs(), Outbox::new());
        jobs.submit(Submit { sampling: WARM, ..submit(request, 20 + request as usize, 12) }, &mut out);
        finish(&mut jobs, &mut out);
        tokens_of(&out, request)
    };
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    for request in 1..=5 {
        jobs.submit(Submit { sampling: WARM, ..submit(request, 20 + request as usize, 12) }, &mut out);
    }
    finish(&mut jobs, &mut out);
    for request in 1..=5 {
        assert_eq!(tokens_of(&out, request).len(), 12);
        assert_eq!(tokens_of(&out, request), alone(request), "request {request}");
    }
}

#[test]
fn a_resubmitted_request_goes_on_where_it_was() {
    for sampling in [GREEDY, WARM] {
        let whole = Submit { sampling: sampling.clone(), ..submit(7, 23, 15) };
        let (mut first, mut out) = (jobs(), Outbox::new());
        first.submit(whole.clone(), &mut out);
        finish(&mut first, &mut out);
        let answer = tokens_of(&out, 7);
        for n_kept in 0..=answer.len() {
            let (mut second, mut out) = (jobs(), Outbox::new());
            second.submit(Submit { generated: answer[..n_kept].to_vec(), ..whole.clone() }, &mut out);
            finish(&mut second, &mut out);
            assert_eq!(tokens_of(&out, 7), answer[n_kept..], "after {n_kept} tokens");
            assert_eq!(finish_of(&out, 7), Some(Finish::Length));
        }
    }
}

#[test]
fn an_end_token_stops_the_answer_and_is_not_told() {
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    jobs.submit(submit(1, 9, 10), &mut out);
    finish(&mut jobs, &mut out);
    let answer = tokens_of(&out, 1);
    let end = answer[4];
    let n_before = answer.iter().position(|id| *id == end).unwrap();
    let (mut jobs, mut out) = (jobs_ending_at(BTreeSet::from([end])), Outbox::new());
    jobs.submit(submit(1, 9, 10), &mut out);
    finish(&mut jobs, &mut out);
    assert_eq!(tokens_of(&out, 1), answer[..n_before]);
    assert_eq!(finish_of(&out, 1), Some(Finish::Stop));
}

#[test]
fn an_answer_ends_with_the_context() {
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    jobs.submit(submit(1, 60, 100), &mut out);
    finish(&mut jobs, &mut out);
    assert_eq!((tokens_of(&out, 1).len(), finish_of(&out, 1)), (4, Some(Finish::Length)));
}

#[test]
fn impossible_requests_are_refused_with_a_sentence() {
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    let rows = [
        (Submit { prompt: vec![], ..submit(1, 1, 1) }, "no tokens"),
        (submit(2, 64, 1), "context of 64"),
        (Submit { prompt: vec![5, 1 << 30], ..submit(3, 1, 1) }, "not in the vocabulary"),
        (Submit { generated: vec![1 << 30], ..submit(4, 1, 9) }, "not in the vocabulary"),
        (Submit { sampling: Sampling { top_p: 2.0, ..GREEDY }, ..submit(5, 1, 1) }, "top_p"),
    ];
    for (submit, words) in rows {
        let request = submit.request;
        jobs.submit(submit, &mut out);
        let (class, message) = failure_of(&out, request).unwrap();
        assert_eq!(class, FailureClass::BadRequest);
        assert!(message.contains(words), "{message}");
    }
    assert!(jobs.is_idle());
    jobs.submit(submit(6, 5, 0), &mut out);
    assert_eq!(finish_of(&out, 6), Some(Finish::Length), "nothing was asked for");
}

#[test]
fn a_full_queue_refuses_and_a_second_submit_of_one_id_is_not_answered_twice() {
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    for request in [1, 2, 2, 3, 4, 5, 6] {
        jobs.submit(submit(request, 8, 3), &mut out);
    }
    assert_eq!(failure_of(&out, 6).unwrap().0, FailureClass::BadRequest);
    finish(&mut jobs, &mut out);
    assert_eq!(ends(&out), (1..=6).map(|request| (request, 1)).collect());
}

#[test]
fn a_panic_in_a_step_fails_its_requests_and_nothing_else() {
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    for request in 1..=5 {
        jobs.submit(submit(request, 8, 3), &mut out);
    }
    let in_step = jobs.next_step();
    jobs.step(&mut |_| panic!("a test's"), &mut out);
    for &request in &in_step {
        let (class, message) = failure_of(&out, request).unwrap();
        assert_eq!(class, FailureClass::Engine);
        assert!(message.contains("a test's"), "{message}");
    }
    finish(&mut jobs, &mut out);
    assert_eq!(ends(&out), (1..=5).map(|request| (request, 1)).collect());
    let (mut fresh, mut expect) = (self::jobs(), Outbox::new());
    fresh.submit(submit(5, 8, 3), &mut expect);
    finish(&mut fresh, &mut expect);
    assert_eq!(tokens_of(&out, 5), tokens_of(&expect, 5), "the engine is as good as new");
}

#[test]
fn a_stopped_step_changes_nothing() {
    let run = |stops: bool| {
        let (mut jobs, mut out) = (jobs(), Outbox::new());
        jobs.submit(submit(1, 30, 5), &mut out);
        jobs.submit(submit(2, 10, 5), &mut out);
        while !jobs.is_idle() {
            if stops {
                let mut n_left = 4;
                jobs.step(
                    &mut |_| {
                        n_left -= 1;
                        if n_left == 0 { Flow::Stop } else { Flow::Continue }
                    },
                    &mut out,
                );
            }
            jobs.step(&mut go_on, &mut out);
        }
        (tokens_of(&out, 1), tokens_of(&out, 2))
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_heartbeat_counts_what_is_held() {
    let (mut jobs, mut out) = (jobs(), Outbox::new());
    assert_eq!((jobs.heartbeat().n_requests, jobs.heartbeat().kv_bytes), (0, 0));
    assert!(jobs.heartbeat().activation_bytes > 0);
    jobs.submit(submit(1, 30, 5), &mut out);
    jobs.step(&mut go_on, &mut out);
    let busy = jobs.heartbeat();
    assert!(busy.kv_bytes > 0 && busy.n_requests == 1 && busy.n_steps == 1, "{busy:?}");
    finish(&mut jobs, &mut out);
    assert_eq!(jobs.heartbeat().kv_bytes, 0, "an ended request holds nothing");
}

#[derive(Debug, Clone)]
enum Do {
    Submit { n_prompt: usize, max_tokens: u32 },
    Cancel { request: u64 },
    Step,
}

fn any_do() -> impl Strategy<Value = Do> {
    prop_oneof![
        (1_usize..40, 0_u32..6).prop_map(|(n_prompt, max_tokens)| Do::Submit { n_prompt, max_tokens }),
        (0_u64..30).prop_map(|request| Do::Cancel { request }),
        Just(Do::Step),
        Just(Do::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_request_ends_exactly_once(actions in prop::collection::vec(any_do(), 1..30)) {
        let (mut jobs, mut out) = (jobs(), Outbox::new());
        let mut submitted = BTreeSet::new();
        for (request, action) in (0_u64..).zip(actions) {
            match action {
                Do::Submit { n_prompt, max_tokens } => {
                    submitted.insert(request);
                    jobs.submit(submit(request, n_prompt, max_tokens), &mut out);
                }
                Do::Cancel { request } => jobs.cancel(request, &mut out),
                Do::Step => jobs.step(&mut go_on, &mut out),
            }
        }
        finish(&mut jobs, &mut out);
        prop_assert_eq!(ends(&out), submitted.iter().map(|request| (*request, 1)).collect::<BTreeMap<_, _>>());
        for request in submitted {
            // Nothing of a request comes after its end.
            let is_of = |m: &&FromWorker| matches!(m,
                FromWorker::Tokens { request: r, .. } | FromWorker::Progress { request: r, .. }
                | FromWorker::Done { request: r, .. } | FromWorker::Failed { request: r, .. } if *r == request);
            let last = out.iter().rfind(is_of).unwrap();
            prop_assert!(matches!(last, FromWorker::Done { .. } | FromWorker::Failed { .. }), "{:?}", last);
        }
    }
}
