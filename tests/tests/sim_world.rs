//! The simulator's physics, in small days made by hand: when exactly memory runs out, and what would have helped.

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_tests::sim::curve::{Change, Curve};
use plimsoll_tests::sim::day::{Day, Span, SuspendAt};
use plimsoll_tests::sim::lever::{Lever, Positions};
use plimsoll_tests::sim::policy::Order;
use plimsoll_tests::sim::run::Run;
use plimsoll_tests::sim::score::DayScore;
use plimsoll_tests::sim::script::{Script, Seen};
use plimsoll_tests::sim::sight::{Exit, Generation, Happening, RequestId};
use plimsoll_tests::sim::world::World;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const FIRST: Generation = Generation(1);

/// A calm hour of a world, with nobody else on the machine: 16 GiB, no clients' trouble, no faults.
fn calm(world: &str) -> Day {
    let mut world = World::load(world).expect("a default world");
    world.requests.agents = 0;
    world.requests.cancels_permille = 0;
    world.requests.titles = false;
    let mut day = Day::new(&world, 7, 1);
    day.limits = vec![16 * GIB];
    day.foreign = vec![Curve::flat(GIB)];
    day.cards.iter_mut().for_each(|card| *card = Curve::flat(0));
    day.disk = vec![(0, 1000)];
    day.stalls = Vec::new();
    day.suspends = Vec::new();
    day.kills = Vec::new();
    day.crashes = Vec::new();
    day.hangs = Vec::new();
    day.poison = None;
    day.sensor_faults = Vec::new();
    day.freed_permille = 1000;
    day.lying_worker = false;
    day.world.sensors.host_noise_mib = 0;
    day.world.sensors.card_noise_mib = 0;
    day
}

fn knobs(levers: &[(Lever, i64)]) -> Positions {
    let mut knobs = Positions::default();
    levers.iter().for_each(|(lever, bytes)| knobs.set(*lever, Bytes(*bytes as u64)));
    knobs
}

/// 1.5 GiB fixed + 4 of experts + 0.5 of KV.
fn small() -> Positions {
    knobs(&[(Lever::ResidentBudget, 4 * GIB), (Lever::KvCapacity, GIB / 2)])
}

fn ours(day: &Day, knobs: &Positions) -> i64 {
    let facts = day.world.facts();
    let levers = facts.levers.iter().filter(|f| f.lever.account() == plimsoll_tests::sim::lever::Account::Host);
    facts.host_fixed.0 as i64 + levers.map(|f| knobs.get(f.lever).0 as i64).sum::<i64>()
}

fn ramp(at_ms: i64, bytes_per_ms: i64, for_ms: i64) -> Vec<Change> {
    vec![
        Change { at_ms, jump: 0, slope: bytes_per_ms },
        Change { at_ms: at_ms + for_ms, jump: 0, slope: -bytes_per_ms },
    ]
}

fn play(day: &Day, mut orders: Vec<(u64, Order)>, look_ms: u64) -> (DayScore, Seen) {
    orders.sort_by_key(|(at, _)| *at);
    let orders = orders.into_iter().map(|(at, order)| (Millis(at), order)).collect();
    let (script, seen) = Script::new(orders, Millis(look_ms));
    let score = Run::new(day, Box::new(script), false).play();
    let seen = seen.borrow().clone();
    (score, seen)
}

fn start(knobs: Positions) -> (u64, Order) {
    (0, Order::Start { knobs, sessions: 2 })
}

fn exit(seen: &Seen) -> Option<(i64, Exit)> {
    seen.happened.iter().find_map(|(at, happening)| match happening {
        Happening::Exited(exit) => Some((at.0 as i64, exit.clone())),
        _ => None,
    })
}

#[test]
fn the_kernel_kills_at_the_millisecond_at_which_need_crosses_the_limit() {
    for (slope, from) in [(MIB, 60_000), (3 * MIB + 17, 600_001), (50_001, 123_456), (7, 1000)] {
        let mut day = calm("cpu-only");
        day.foreign[0] = Curve::new(2 * GIB, ramp(from, slope, 3_000_000));
        let held = ours(&day, &small());
        let crossing = (0..3_600_000).find(|ms| day.foreign[0].at(*ms) + held > day.limits[0]);
        let (score, seen) = play(&day, vec![start(small())], 30_000);
        assert_eq!(exit(&seen).map(|(at, _)| at), crossing, "slope {slope} from {from}");
        assert_eq!(score.oom_host, u32::from(crossing.is_some()), "slope {slope}");
        if let Some((_, exit)) = exit(&seen) {
            assert_eq!((exit.signal, exit.cgroup_oom_kills, exit.kernel_log_names_it), (Some(9), 1, Some(true)));
        }
    }
}

#[test]
fn a_lever_in_time_saves_the_worker_and_a_late_one_does_not() {
    let mut day = calm("cpu-only");
    day.foreign[0] = Curve::new(2 * GIB, ramp(60_000, 2 * MIB, 4_250));
    let crossing = day.foreign[0].first_over(day.limits[0] - ours(&day, &small()), 0, 100_000).expect("it crosses");
    let lower = |before_ms: i64| {
        let to = Bytes(2 * GIB as u64 + 512 * MIB as u64);
        let order = Order::Move { worker: FIRST, lever: Lever::ResidentBudget, to };
        play(&day, vec![start(small()), ((crossing - before_ms) as u64, order)], 30_000).0.oom_host
    };
    assert_eq!(lower(500), 0, "half a second is enough for hand-over and 1.5 GiB");
    assert_eq!(lower(1), 1, "the hand-over alone takes longer than a millisecond");
    day.stalls = vec![Span { from_ms: crossing - 600, to_ms: crossing + 100 }];
    let order =
        Order::Move { worker: FIRST, lever: Lever::ResidentBudget, to: Bytes(2 * GIB as u64 + 512 * MIB as u64) };
    let (score, _) = play(&day, vec![start(small()), ((crossing - 500) as u64, order)], 30_000);
    assert_eq!(score.oom_host, 1, "a stalled disk holds the hand-over");
}

#[test]
fn a_lever_frees_less_than_promised_and_a_lying_worker_says_more() {
    for (freed_permille, lies) in [(1000, false), (500, false), (500, true)] {
        let mut day = calm("cpu-only");
        (day.freed_permille, day.lying_worker) = (freed_permille, lies);
        let to = Bytes(3 * GIB as u64);
        let order = Order::Move { worker: FIRST, lever: Lever::ResidentBudget, to };
        let (_, seen) = play(&day, vec![start(small()), (60_000, order)], 1000);
        let said = seen.happened.iter().find_map(|(_, happening)| match happening {
            Happening::Lever(answer) => Some(answer.moved.0 as i64),
            _ => None,
        });
        let really = GIB * freed_permille / 1000;
        assert_eq!(said, Some(if lies { GIB } else { really }), "{freed_permille} {lies}");
        let last = seen.host.last().expect("readings").1.ours.0 as i64;
        assert_eq!(last, ours(&day, &small()) - really, "{freed_permille} {lies}");
    }
}

#[test]
fn swap_puts_death_off_and_shows_in_the_readings() {
    let mut day = calm("laptop-zram");
    day.foreign[0] = Curve::new(2 * GIB, ramp(60_000, MIB / 4, 600_000));
    let held = ours(&day, &small());
    let swap = day.world.host.swap.clone().expect("zram");
    let relief = swap.size_mib as i64 * MIB * (1000 - swap.ram_cost_permille as i64) / 1000;
    let late = day.foreign[0].first_over(day.limits[0] + relief - held, 0, 3_600_000);
    let (_, seen) = play(&day, vec![start(small())], 1000);
    assert_eq!(exit(&seen).map(|(at, _)| at), late);
    let swapping: Vec<&(Millis, _)> = seen.host.iter().filter(|(_, host)| host.swap_used.0 > 0).collect();
    assert!(swapping.len() > 10 && swapping.iter().all(|(_, host)| host.psi_some_permille > 0), "{}", swapping.len());
}

#[test]
fn the_tightest_group_binds_though_the_machine_has_room() {
    let mut day = calm("container");
    day.limits = vec![64 * GIB, 12 * GIB, 40 * GIB];
    day.foreign = vec![Curve::flat(20 * GIB), Curve::new(GIB, ramp(60_000, MIB, 60_000)), Curve::flat(GIB)];
    let crossing = day.foreign[1].first_over(day.limits[1] - ours(&day, &small()), 0, 3_600_000);
    let (_, seen) = play(&day, vec![start(small())], 1000);
    let (at, exit) = exit(&seen).expect("it dies");
    assert_eq!(Some(at), crossing);
    assert_eq!((exit.cgroup_oom_kills, exit.kernel_log_names_it), (1, None), "the log can't be read there");
    let before = seen.host.iter().rev().find(|(when, _)| (when.0 as i64) < at).expect("a reading").1;
    assert!(before.headroom() < 2 * GIB && before.groups[0].limit.0 as i64 == 64 * GIB, "{before:?}");
}

#[test]
fn without_swap_psi_is_silent_until_the_last_moment() {
    let mut day = calm("cpu-only");
    day.foreign[0] = Curve::new(2 * GIB, ramp(60_000, MIB, 60_000));
    let (_, seen) = play(&day, vec![start(small())], 10);
    let (death, _) = exit(&seen).expect("it dies");
    let first = seen.host.iter().find(|(_, host)| host.psi_some_permille > 0).expect("PSI rises").0;
    assert!((50..=200).contains(&(death - first.0 as i64)), "{} ms before the kill", death - first.0 as i64);
}

#[test]
fn a_full_card_kills_at_the_next_allocation_only() {
    let mut day = calm("workstation-12g");
    let knobs = knobs(&[(Lever::ExpertCache(plimsoll_tests::sim::lever::Card(0)), GIB), (Lever::KvCapacity, 2 * GIB)]);
    day.limits = vec![62 * GIB];
    day.cards[0] = Curve::new(GIB, ramp(30_000, 10 * MIB, 1_000));
    let (_, seen) = play(&day, vec![start(knobs)], 1000);
    assert_eq!(exit(&seen), None, "nothing was allocated");
    let offered = seen.happened.iter().find_map(|(at, h)| matches!(h, Happening::Offered(_)).then_some(at.0));
    let submit = Order::Submit { worker: FIRST, request: RequestId(0), from_position: 0 };
    let at = offered.expect("somebody asks");
    let (score, seen) = play(&day, vec![start(knobs), (at, submit)], 1000);
    let (died, exit) = exit(&seen).expect("the prompt path can't be allocated");
    assert!(exit.vram_error && exit.signal.is_none() && died as u64 >= at, "{exit:?}");
    assert_eq!((score.oom_vram, score.lost_answers > 0), (1, true));
}

#[test]
fn under_the_line_of_vram_a_request_crawls() {
    for (foreign, is_short) in [(4 * GIB, 0), (5 * GIB, 1)] {
        let mut day = calm("workstation-12g");
        day.limits = vec![62 * GIB];
        day.world.requests.chats = 1;
        day.cards[0] = Curve::flat(foreign);
        let submit = Order::Submit { worker: FIRST, request: RequestId(0), from_position: 0 };
        let levers = knobs(&[(Lever::KvCapacity, 2 * GIB), (Lever::ResidentBudget, 8 * GIB)]);
        let (_, seen) = play(&day, vec![start(levers)], 1000);
        let asked = seen.happened.iter().find_map(|(at, h)| matches!(h, Happening::Offered(_)).then_some(at.0));
        let (score, _) = play(&day, vec![start(levers), (asked.expect("somebody asks"), submit)], 1000);
        assert_eq!(score.short_starts, is_short, "{foreign} bytes of others");
    }
}

#[test]
fn suspend_stops_one_clock_and_takes_the_clients() {
    let mut day = calm("laptop-zram");
    day.suspends = vec![SuspendAt { at_ms: 1_200_000, sleep_ms: 3_000_000, card_silent_ms: 5_000 }];
    let (score, seen) = play(&day, Vec::new(), 1000);
    let gap = |(now, boot): &(Millis, Millis)| boot.0 - now.0;
    let gaps: Vec<u64> = seen.boot.iter().map(gap).collect();
    assert_eq!((gaps.first(), gaps.last()), (Some(&0), Some(&3_000_000)));
    let gone = seen.happened.iter().filter(|(at, h)| at.0 == 1_200_000 && matches!(h, Happening::Cancelled(_)));
    assert!(gone.count() > 0 && score.cancelled > 0, "nobody waited at the suspend");
}
