//! The checker, with every rule broken on purpose: each plant is one row.

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_tests::sim::checker::Checker;
use plimsoll_tests::sim::clients::{End, Request};
use plimsoll_tests::sim::lever::{Lever, Positions};
use plimsoll_tests::sim::policy::{Facts, Order, Promises, Stop, Why};
use plimsoll_tests::sim::sight::{
    ClientKind, Exit, Generation, GroupReading, Happening, HostReading, LeverAnswer, MAX_GROUPS, Offer, Reading,
    RequestId, Sight,
};
use plimsoll_tests::sim::world::World;

const GIB: u64 = 1 << 30;
const FIRST: Generation = Generation(1);
const RESIDENT: Lever = Lever::ResidentBudget;

fn facts() -> Facts {
    World::load("cpu-only").expect("a default world").facts()
}

/// A step of a planted log: the moment, how old the reading is, foreign use, what happened, what was ordered.
struct Step {
    now_s: u64,
    age_s: u64,
    foreign: u64,
    happened: Vec<Happening>,
    orders: Vec<Order>,
}

fn step(now_s: u64, happened: Vec<Happening>, orders: Vec<Order>) -> Step {
    Step { now_s, age_s: 0, foreign: 4 * GIB, happened, orders }
}

fn sight(step: &Step) -> Sight {
    let mut groups = [GroupReading::default(); MAX_GROUPS];
    groups[0] = GroupReading { limit: Bytes(24 * GIB), unreclaimable: Bytes(step.foreign) };
    let value = HostReading { groups, n_groups: 1, ..HostReading::default() };
    let taken_at = Millis((step.now_s - step.age_s) * 1000);
    Sight { host: Some(Reading { taken_at, value }), happened: step.happened.clone(), ..Sight::default() }
}

/// Three open requests: the second is poison, the third has ended.
fn requests() -> Vec<Request> {
    let request = |id: u32| Request {
        offer: Offer { request: RequestId(id), client: ClientKind::Chat, prompt_tokens: 10, max_tokens: 10 },
        client: Some(0),
        answer_tokens: 10,
        poison_at: (id == 1).then_some(3),
        gives_up_ms: i64::MAX,
        position: 5,
        end: (id == 2).then_some(End::Finished),
        deaths: 0,
    };
    (0..3).map(request).collect()
}

fn knobs(resident: u64) -> Positions {
    let mut knobs = Positions::default();
    knobs.set(RESIDENT, Bytes(resident));
    knobs.set(Lever::KvCapacity, Bytes(GIB / 2));
    knobs
}

fn start(resident: u64) -> Order {
    Order::Start { knobs: knobs(resident), sessions: 2 }
}

fn to(bytes: u64) -> Order {
    Order::Move { worker: FIRST, lever: RESIDENT, to: Bytes(bytes) }
}

fn answer(from: u64, to: u64) -> Happening {
    let (from, to) = (Bytes(from), Bytes(to));
    let moved = Bytes(from.0.abs_diff(to.0));
    Happening::Lever(LeverAnswer {
        worker: FIRST,
        lever: RESIDENT,
        from,
        to,
        moved,
        took: Millis(9),
        turned_round: false,
    })
}

fn oom() -> Happening {
    Happening::Exited(Exit {
        worker: FIRST,
        signal: Some(9),
        code: None,
        cgroup_oom_kills: 1,
        kernel_log_names_it: Some(true),
        vram_error: false,
        asked_for: false,
        running: Vec::new(),
    })
}

fn begun() -> Vec<Step> {
    vec![step(1, Vec::new(), vec![start(8 * GIB)]), step(2, vec![Happening::Spawned(FIRST)], Vec::new())]
}

fn violations(steps: &[Step]) -> Vec<String> {
    let facts = facts();
    let mut checker = Checker::new(&facts, Promises { journal: true, discipline: true });
    for step in steps {
        checker.look(Millis(step.now_s * 1000), &sight(step), &step.orders, &requests());
    }
    checker.into_findings().violations
}

/// `later` after a worker has been started; `expect` is a part of the only sentence, or empty for none.
fn check(name: &str, later: Vec<Step>, expect: &str) {
    let mut steps = begun();
    steps.extend(later);
    let found = violations(&steps);
    match expect {
        "" => assert!(found.is_empty(), "{name}: {found:?}"),
        _ => assert!(found.len() == 1 && found[0].contains(expect), "{name}: {found:?}"),
    }
}

#[test]
fn planted_orders_to_the_wrong_worker_are_caught() {
    let stop = |worker| Order::Stop { worker, how: Stop::Kill };
    check("well", vec![step(3, Vec::new(), vec![stop(FIRST)])], "");
    check("not ours", vec![step(3, Vec::new(), vec![stop(Generation(2))])], "a stop goes to worker 2");
    check("dead", vec![step(3, vec![oom()], vec![stop(FIRST)])], "a stop goes to worker 1");
    check("two", vec![step(3, Vec::new(), vec![start(4 * GIB)])], "a second worker");
}

#[test]
fn planted_requests_are_caught() {
    let submit = |id: u32, from_position: u32| Order::Submit { worker: FIRST, request: RequestId(id), from_position };
    let refuse = |id: u32, why: Why| Order::Refuse { request: RequestId(id), why };
    let one = |order| vec![step(3, Vec::new(), vec![order])];
    check("well", one(submit(0, 5)), "");
    check("doubled tokens", one(submit(0, 4)), "goes on at token 4, its client has 5");
    check("ended", one(submit(2, 5)), "after its end");
    check("unknown", one(submit(9, 0)), "never offered");
    check("twice", vec![step(3, Vec::new(), vec![submit(0, 5), submit(0, 5)])], "while it runs");
    check("poison", one(refuse(1, Why::Poison)), "");
    check("innocent", one(refuse(0, Why::Poison)), "is innocent");
    check("refused after its end", one(refuse(2, Why::QueueFull)), "is not open");
}

#[test]
fn planted_moves_are_caught() {
    check("under its floor", vec![step(3, Vec::new(), vec![to(GIB)])], "outside of floor and home");
    check("over home", vec![step(300, Vec::new(), vec![to(13 * GIB)])], "outside of floor and home");
    let two = vec![step(3, Vec::new(), vec![to(7 * GIB)]), step(4, Vec::new(), vec![to(6 * GIB)])];
    check("two on their way", two, "is on its way");
    let down = |second: Step| vec![step(3, Vec::new(), vec![to(7 * GIB)]), second];
    let measured = step(5, vec![answer(8 * GIB, 7 * GIB)], Vec::new());
    check("measured", vec![down(measured), vec![step(6, Vec::new(), vec![to(6 * GIB)])]].concat_steps(), "");
    let unseen = step(4, vec![answer(8 * GIB, 7 * GIB)], vec![to(6 * GIB)]);
    check("not measured", down(unseen), "before its relief was measured");
    check("up at once", down(step(60, vec![answer(8 * GIB, 7 * GIB)], vec![to(8 * GIB)])), "after a downward move");
    check("up later", down(step(130, vec![answer(8 * GIB, 7 * GIB)], vec![to(8 * GIB)])), "");
    let old = Step { age_s: 9, ..step(300, Vec::new(), vec![to(9 * GIB)]) };
    check("up on an old reading", vec![old], "on an old reading");
    let pressed = Step { foreign: 22 * GIB, ..step(200, Vec::new(), Vec::new()) };
    check("up after pressure", vec![pressed, step(260, Vec::new(), vec![to(9 * GIB)])], "after pressure");
    let full = Step { foreign: 20 * GIB, ..step(300, Vec::new(), vec![to(11 * GIB)]) };
    check("up beyond the line", vec![full], "left under the line");
    let turned = vec![step(300, Vec::new(), vec![to(9 * GIB)]), step(301, Vec::new(), vec![to(7 * GIB)])];
    check("a raise is turned round", turned, "");
}

#[test]
fn planted_recoveries_that_never_hold_are_caught() {
    let mut steps = Vec::new();
    for n in 0..8 {
        let at = 300 + n * 240;
        steps.push(step(at, vec![answer(8 * GIB, 7 * GIB)], vec![to(8 * GIB)]));
        steps.push(step(at + 60, vec![answer(7 * GIB, 8 * GIB)], vec![to(7 * GIB)]));
    }
    let mut all = begun();
    all.extend(steps);
    let found = violations(&all);
    assert!(!found.is_empty() && found.iter().all(|words| words.contains("undone within an hour")), "{found:?}");
}

#[test]
fn planted_starts_are_caught() {
    let first = |step: Step| violations(&[step]);
    assert!(first(step(1, Vec::new(), vec![start(8 * GIB)])).is_empty());
    let over = first(Step { foreign: 15 * GIB, ..step(1, Vec::new(), vec![start(8 * GIB)]) });
    assert!(over.len() == 1 && over[0].contains("a start plans"), "{over:?}");
    let old = first(Step { age_s: 6, ..step(9, Vec::new(), vec![start(8 * GIB)]) });
    assert!(old.len() == 1 && old[0].contains("no fresh reading"), "{old:?}");
}

#[test]
fn planted_repetitions_after_a_death_are_caught() {
    let died = || step(10, vec![oom()], Vec::new());
    let again = |foreign: u64, resident: u64, at: u64| Step { foreign, ..step(at, Vec::new(), vec![start(resident)]) };
    check("the same", vec![died(), again(4 * GIB, 8 * GIB, 20)], "repeats the knobs");
    check("one lever down", vec![died(), again(4 * GIB, 7 * GIB, 20)], "");
    check("room was made", vec![died(), again(3 * GIB, 8 * GIB, 20)], "");
    check("two hours later", vec![died(), again(4 * GIB, 8 * GIB, 7300)], "");
}

#[test]
fn the_end_of_a_day_finds_what_was_forgotten() {
    let mut requests = requests();
    requests[0].end = Some(End::Lost);
    requests[1].deaths = 4;
    let mut checker = Checker::new(&facts(), Promises { journal: true, discipline: true });
    checker.finish(&requests, true);
    let found = checker.into_findings().violations;
    for expect in ["never ends", "is lost", "request 1 never ended", "killed 4 workers"] {
        assert!(found.iter().any(|words| words.contains(expect)), "{expect}: {found:?}");
    }
}

/// Lists of steps, one after the other.
trait ConcatSteps {
    fn concat_steps(self) -> Vec<Step>;
}

impl ConcatSteps for Vec<Vec<Step>> {
    fn concat_steps(self) -> Vec<Step> {
        self.into_iter().flatten().collect()
    }
}
