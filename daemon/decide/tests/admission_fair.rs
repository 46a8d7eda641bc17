//! Fair between clients: the bound of the line, shares of keys and values, sessions.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_config::limits;
use plimsoll_config::units::{Millis, Tokens};
use plimsoll_decide::admission::{
    Admission, Cancelled, Capacity, ClientId, Facts, Gate, Order, RequestId, SessionId, Verdict,
};
use proptest::prelude::*;

const NOW: Millis = Millis(0);

fn facts(request: u64, client: u64, n_prompt: u32, max_tokens: u32) -> Facts {
    Facts {
        request: RequestId(request),
        client: ClientId(client),
        session: None,
        n_prompt: Tokens(n_prompt),
        max_tokens: Tokens(max_tokens),
        deadline: None,
    }
}

fn admission(kv: Option<u32>, max_running: u32) -> Admission {
    Admission::new(Capacity { n_ctx: Some(Tokens(8192)), kv: kv.map(Tokens), max_running, max_waiting: 1000 })
}

fn offer(admission: &mut Admission, facts: Facts) -> Verdict {
    admission.offer(NOW, &Gate::Open, facts)
}

/// The next request that gets in after `done` has ended.
fn after(admission: &mut Admission, done: u64) -> Option<u64> {
    assert!(admission.finish(RequestId(done)));
    match admission.next(&Gate::Open) {
        Some(Order::Submit(facts)) => Some(facts.request.0),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_request_does_not_stand_behind_a_hundred_of_another_client() {
    let mut admission = admission(None, 1);
    for request in 0..100 {
        offer(&mut admission, facts(request, 1, 100, 100));
    }
    // The title of another chat, and one more: they go in turn with the hundred.
    assert_eq!(offer(&mut admission, facts(100, 2, 100, 100)), Verdict::Wait { position: 0 });
    assert_eq!(offer(&mut admission, facts(101, 2, 100, 100)), Verdict::Wait { position: 2 });
    let mut order = vec![0];
    for _ in 0..6 {
        let running = *order.last().expect("one runs");
        order.push(after(&mut admission, running).expect("many wait"));
    }
    assert_eq!(order, [0, 100, 1, 101, 2, 3, 4]);
}

#[test]
fn what_counts_is_the_cost_and_an_answer_without_end_counts_as_a_long_one() {
    let cost = |n_prompt, max_tokens| admission(None, 1).cost(&facts(1, 1, n_prompt, max_tokens));
    assert_eq!(cost(100, 10), 100 * limits::COST_OF_PROMPT_TOKEN + 10 * limits::COST_OF_ANSWER_TOKEN);
    let expected = 100 + u64::from(limits::EXPECTED_ANSWER.0) * limits::COST_OF_ANSWER_TOKEN;
    assert_eq!((cost(100, u32::MAX), cost(100, 5000)), (expected, expected));
    assert_eq!(cost(8192 - 7, u32::MAX), 8192 - 7 + 7 * limits::COST_OF_ANSWER_TOKEN, "no more than fits");
    // Ten short ones of one client for a long one of another.
    let mut admission = admission(None, 1);
    offer(&mut admission, facts(0, 9, 1, 1));
    for request in 1..=20 {
        offer(&mut admission, facts(request, 1, 10, 0));
    }
    for request in 21..=22 {
        offer(&mut admission, facts(request, 2, 100, 0));
    }
    let (mut order, mut running) = (Vec::new(), 0);
    while let Some(next) = after(&mut admission, running) {
        order.push(next);
        running = next;
    }
    let at = |request| order.iter().position(|other| *other == request);
    assert_eq!((order.len(), at(21), at(22)), (22, Some(1), Some(12)), "{order:?}");
}

#[test]
fn who_was_away_saves_nothing_up_and_who_left_the_house_owes_nothing() {
    let mut admission = admission(None, 1);
    offer(&mut admission, facts(0, 1, 5000, 0));
    assert_eq!(after(&mut admission, 0), None, "the house is empty: nothing is owed");
    offer(&mut admission, facts(1, 2, 10, 0));
    offer(&mut admission, facts(2, 1, 10, 0));
    offer(&mut admission, facts(3, 2, 10, 0));
    assert_eq!(after(&mut admission, 1), Some(2));
}

#[test]
fn a_client_is_known_while_it_waits_or_is_ahead_of_the_clock_and_they_are_bounded() {
    let mut admission = admission(None, 1);
    offer(&mut admission, facts(0, 1, 10, 0));
    assert_eq!(admission.n_clients(), 1, "ahead");
    for request in 1..=3 {
        offer(&mut admission, facts(request, 2, 10, 0));
    }
    assert_eq!(after(&mut admission, 0), Some(1));
    assert_eq!(admission.n_clients(), 2);
    assert_eq!(after(&mut admission, 1), Some(2)); // the clock is at 10
    assert_eq!(admission.n_clients(), 1, "the first one is no longer ahead");
    admission.cancel(RequestId(3));
    assert_eq!(after(&mut admission, 2), None);
    assert_eq!(admission.n_clients(), 0, "the house is empty");
    // A crowd, of which each one comes once: the clock stands still, and the least ahead are forgotten.
    let n_crowd = limits::MAX_REMEMBERED_CLIENTS as u64 + 50;
    offer(&mut admission, facts(4, 0, 10, 0));
    for client in 1..=n_crowd {
        let request = client + 4;
        offer(&mut admission, facts(request, client, 1000 + client as u32, 0));
        assert_eq!(after(&mut admission, request - 1), Some(request));
    }
    assert_eq!(admission.n_clients(), limits::MAX_REMEMBERED_CLIENTS);
    // The last one of them is remembered: it stands behind a new one. The first one was forgotten.
    let (late, early, new) = (n_crowd + 5, n_crowd + 6, n_crowd + 7);
    for (request, client) in [(late, n_crowd), (early, 1), (new, 9_999_999)] {
        offer(&mut admission, facts(request, client, 10, 0));
    }
    assert_eq!(admission.waiting().map(|facts| facts.request.0).collect::<Vec<_>>(), [early, new, late]);
}

#[test]
fn a_place_is_not_kept_by_requests_that_are_taken_back() {
    let mut admission = admission(None, 1);
    offer(&mut admission, facts(0, 9, 10, 0));
    offer(&mut admission, facts(1, 1, 1000, 0)); // only to be taken back
    offer(&mut admission, facts(2, 1, 10, 0));
    for request in 10..20 {
        offer(&mut admission, facts(request, 2, 10, 0));
    }
    assert_eq!(after(&mut admission, 0), Some(1));
    assert_eq!(after(&mut admission, 1), Some(10));
    offer(&mut admission, facts(3, 3, 50, 0));
    offer(&mut admission, facts(4, 3, 10, 0));
    assert_eq!(after(&mut admission, 10), Some(3));
    assert_eq!(after(&mut admission, 3), Some(11));
    assert_eq!(admission.cancel(RequestId(2)), Cancelled::WasWaiting);
    assert_eq!(after(&mut admission, 11), Some(12));
}

#[test]
fn a_client_holds_half_of_the_keys_and_values_while_another_one_waits() {
    let mut admission = admission(Some(20_000), 8);
    let long_answer = |request, n_kv: u32| facts(request, 1, 10, n_kv - 10);
    assert_eq!(offer(&mut admission, long_answer(1, 8000)), Verdict::Admit);
    assert_eq!(offer(&mut admission, facts(2, 2, 8000, 0)), Verdict::Admit);
    assert_eq!(offer(&mut admission, long_answer(3, 6000)), Verdict::Wait { position: 0 }, "no room");
    assert_eq!(offer(&mut admission, facts(4, 2, 6000, 0)), Verdict::Wait { position: 1 });
    assert_eq!(admission.next(&Gate::Open), None);
    // The first in line would have 14,000 then, and somebody else waits; that one has nothing.
    assert_eq!(after(&mut admission, 2), Some(4));
    // Now nobody else waits, and it just fits.
    assert_eq!(admission.next(&Gate::Open), Some(Order::Submit(long_answer(3, 6000))));
    assert_eq!(offer(&mut admission, facts(5, 3, 1, 0)), Verdict::Wait { position: 0 }, "all of it is in use");
}

#[test]
fn under_its_share_a_client_keeps_its_turn_while_another_one_waits() {
    let mut admission = admission(Some(20_000), 2);
    // The second client has had its turn, so the first one's next request is ahead of its own next one.
    offer(&mut admission, facts(3, 3, 10, 0));
    offer(&mut admission, facts(1, 2, 8000, 0));
    admission.finish(RequestId(1));
    offer(&mut admission, facts(2, 1, 4000, 0));
    offer(&mut admission, facts(4, 2, 5000, 0));
    offer(&mut admission, facts(5, 1, 5000, 0));
    assert_eq!(after(&mut admission, 3), Some(5), "9,000 of 20,000");
}

#[test]
fn who_stood_behind_one_that_left_has_not_waited_for_longer_than_the_clock_says() {
    let mut admission = admission(None, 3);
    let in_session = |request, client| Facts { session: Some(SessionId(client)), ..facts(request, client, 10, 0) };
    offer(&mut admission, in_session(1, 1));
    offer(&mut admission, in_session(2, 3));
    offer(&mut admission, facts(10, 2, 100, 0));
    // Both stand behind a request of their own session.
    offer(&mut admission, in_session(3, 1));
    offer(&mut admission, in_session(4, 1));
    // The clock goes on with the second client; in the middle of it the third one comes.
    for request in 11..20 {
        offer(&mut admission, facts(request, 2, 100, 0));
        assert_eq!(after(&mut admission, request - 1), Some(request));
        if request == 15 {
            offer(&mut admission, in_session(5, 3));
        }
    }
    assert_eq!(admission.cancel(RequestId(3)), Cancelled::WasWaiting);
    admission.finish(RequestId(1));
    assert_eq!(after(&mut admission, 2), Some(5), "the one that took its place back would be first else");
}

#[test]
fn nobody_overtakes_the_first_one_for_being_small() {
    let mut admission = admission(Some(1000), 8);
    offer(&mut admission, facts(1, 1, 600, 0));
    offer(&mut admission, facts(2, 2, 500, 0));
    assert_eq!(offer(&mut admission, facts(3, 3, 10, 0)), Verdict::Wait { position: 1 });
    assert_eq!(admission.next(&Gate::Open), None);
    assert_eq!(after(&mut admission, 1), Some(2));
    assert_eq!(admission.next(&Gate::Open), Some(Order::Submit(facts(3, 3, 10, 0))));
}

#[test]
fn a_share_never_keeps_a_client_from_running_one_request() {
    let mut admission = admission(Some(1000), 8);
    offer(&mut admission, facts(1, 1, 200, 0));
    offer(&mut admission, facts(2, 2, 900, 0));
    offer(&mut admission, facts(3, 3, 900, 0));
    assert_eq!(after(&mut admission, 1), Some(2), "over its share by itself");
    assert_eq!(after(&mut admission, 2), Some(3));
    // One that is larger than all there is runs alone: its length was judged by the context.
    offer(&mut admission, facts(4, 4, 2000, 0));
    assert_eq!(after(&mut admission, 3), Some(4));
}

#[test]
fn requests_of_one_session_follow_each_other() {
    let of = |request, session| Facts { session: Some(SessionId(session)), ..facts(request, 1, 10, 0) };
    let mut admission = admission(None, 4);
    assert_eq!(offer(&mut admission, of(1, 7)), Verdict::Admit);
    assert_eq!(offer(&mut admission, of(2, 7)), Verdict::Wait { position: 0 });
    assert_eq!(offer(&mut admission, of(3, 8)), Verdict::Wait { position: 1 });
    assert_eq!(admission.next(&Gate::Open), Some(Order::Submit(of(3, 8))), "another session need not wait for it");
    assert_eq!(admission.next(&Gate::Open), None);
    assert_eq!(after(&mut admission, 1), Some(2));
}

/// What is known of a request that waits, for its bound.
#[derive(Debug, Default)]
struct Watch {
    own: u64,
    client: u64,
    started: u64,
    others: BTreeSet<u64>,
    quantum: u64,
}

/// The clients, as plainly as they can be counted.
#[derive(Default)]
struct Counts {
    last_started: BTreeMap<u64, u64>,
    waiting: BTreeMap<u64, Watch>,
    costs: BTreeMap<u64, u64>,
}

impl Counts {
    fn arrived(&mut self, facts: Facts, cost: u64) {
        let client = facts.client.0;
        let ahead: u64 =
            self.waiting.iter().filter(|(_, watch)| watch.client == client).map(|(other, _)| self.costs[other]).sum();
        let own = self.last_started.get(&client).copied().unwrap_or(0) + ahead;
        self.costs.insert(facts.request.0, cost);
        self.waiting.insert(facts.request.0, Watch { own, client, ..Watch::default() });
    }

    fn started(&mut self, facts: Facts) -> Result<(), TestCaseError> {
        let (request, client) = (facts.request.0, facts.client.0);
        let watch = self.waiting.remove(&request).expect("it waited");
        let n_clients = watch.others.len() as u64 + 1;
        let bound = n_clients * watch.own + (n_clients - 1) * watch.quantum;
        prop_assert!(watch.started <= bound, "request {} of client {}: {:?} over {}", request, client, watch, bound);
        let cost = self.costs[&request];
        self.last_started.insert(client, cost);
        for other in self.waiting.values_mut() {
            other.started += cost;
            if other.client != client {
                other.others.insert(client);
                other.quantum = other.quantum.max(cost);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each operation: who (0 to 4), prompt, answer, and what: mostly arrivals, ends and now and then a cancel.
    #[test]
    fn nobody_waits_longer_than_its_bound(
        max_running in 1..4u32,
        ops in prop::collection::vec((0..5u64, 1..200u32, 0..40u32, 0..8u32), 0..200),
    ) {
        let mut admission = admission(None, max_running);
        let mut counts = Counts::default();
        for (request, (client, n_prompt, max_tokens, what)) in (0..).zip(ops) {
            match what {
                0..4 => {
                    let facts = facts(request, client, n_prompt, max_tokens);
                    let cost = admission.cost(&facts);
                    let verdict = offer(&mut admission, facts);
                    counts.arrived(facts, cost);
                    if verdict == Verdict::Admit {
                        counts.started(facts)?;
                    }
                }
                4..7 => {
                    let oldest = admission.running().nth(client as usize % max_running as usize);
                    oldest.map(|running| admission.finish(running));
                }
                _ => {
                    let waiting = admission.waiting().nth(n_prompt as usize % 7).map(|facts| facts.request);
                    if let Some(request) = waiting {
                        admission.cancel(request);
                        counts.waiting.remove(&request.0);
                    }
                }
            }
            while let Some(order) = admission.next(&Gate::Open) {
                let Order::Submit(facts) = order else { panic!("{order:?}") };
                counts.started(facts)?;
            }
            prop_assert!(admission.n_waiting() == 0 || admission.n_running() == max_running, "an idle slot");
        }
    }

    /// With shares and sessions: whatever waits gets its turn when what runs ends.
    #[test]
    fn nobody_starves(
        kv in prop::option::of(1..400u32),
        requests in prop::collection::vec((0..4u64, prop::option::of(0..3u64), 1..200u32), 1..60),
    ) {
        let mut admission = admission(kv, 3);
        let n_requests = requests.len();
        for (request, (client, session, n_prompt)) in (0..).zip(requests) {
            let session = session.map(SessionId);
            offer(&mut admission, Facts { session, ..facts(request, client, n_prompt, 0) });
        }
        let mut n_ended = 0;
        loop {
            let running: Vec<RequestId> = admission.running().collect();
            let Some(running) = running.first().copied().filter(|_| running.len() <= 3) else { break };
            prop_assert!(n_ended < n_requests);
            admission.finish(running);
            n_ended += 1;
            while admission.next(&Gate::Open).is_some() {}
        }
        prop_assert_eq!((n_ended, admission.n_waiting()), (n_requests, 0));
    }
}
