//! What holds whatever happens.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::quiet::Quiet;
use plimsoll_decide::governor::trend::Trend;
use plimsoll_decide::governor::trust::Trust;
use plimsoll_decide::governor::{Lever, Mode, Move, Note, Why};
use plimsoll_decide::ledger::AccountId;
use proptest::prelude::*;

use crate::bench::{Bench, Manners};

fn corners() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let corner = (500u64..30_000, 1u64 << 10..30 << 10);
    prop::collection::vec(corner, 1..12).prop_map(|steps| {
        let mut at = 0;
        let mut corners = vec![(0, 8 << 10)];
        for (ms, mib) in steps {
            at += ms;
            corners.push((at, mib));
        }
        corners
    })
}

fn manners() -> impl Strategy<Value = Manners> {
    let answers = prop_oneof![8 => (1u64..800).prop_map(Some), 1 => Just(None)];
    (answers, 300u64..=1000).prop_map(|(answers_in_ms, frees_permille)| Manners {
        answers_in_ms,
        frees_permille,
        blind: None,
        stuck: None,
    })
}

proptest! {
    // Each case of the first is ten minutes of a machine.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Levers stay between floor and home, no account has two moves under way (but a raise that is turned round), what goes up
    /// has waited for its quiet time, and the governor never asks for a look in the past.
    #[test]
    fn orders_keep_the_rules(foreign in corners(), foreign_card in corners(), manners in manners()) {
        let mut bench = Bench::new(Mode::Act);
        bench.foreign = foreign;
        bench.foreign_card = foreign_card.into_iter().map(|(ms, mib)| (ms, mib / 3)).collect();
        bench.manners = manners;
        let levers = bench.levers.clone();
        bench.run(600_000);
        let story = bench.story();
        let mut lowered = [Millis(0); 2];
        let mut under_way: [Option<Move>; 2] = [None; 2];
        for (at, note) in &bench.notes {
            if let Note::Relief { moved, .. } = note {
                let flight = &mut under_way[usize::from(moved.account != AccountId::Host)];
                *flight = flight.filter(|flight| flight.id != moved.id);
            }
            let Note::Moved(moved, why) = note else { continue };
            let flight = under_way[usize::from(moved.account != AccountId::Host)].replace(*moved);
            let turns = |flight: Move| flight.lever == moved.lever && !flight.is_down() && moved.is_down();
            prop_assert!(flight.is_none_or(turns), "{} while {:?}\n{}", note, flight, story);
            let lever = levers.iter().find(|lever| lever.lever == moved.lever).expect("it exists");
            let top = if matches!(why, Why::FileReads { .. }) { lever.ceiling } else { lever.home };
            prop_assert!((lever.floor..=top).contains(&moved.to), "{}\n{}", note, story);
            let last = &mut lowered[usize::from(moved.account != AccountId::Host)];
            if moved.is_down() {
                *last = *at;
            } else {
                prop_assert!(at.since(*last) >= limits::QUIET_MIN, "{}: {}\n{}", at, note, story);
            }
        }
    }

    /// The same inputs make the same orders.
    #[test]
    fn it_is_a_function(foreign in corners(), manners in manners()) {
        let run = || {
            let mut bench = Bench::new(Mode::Act);
            bench.foreign.clone_from(&foreign);
            bench.manners = manners;
            bench.run(120_000);
            (bench.orders.clone(), bench.story())
        };
        prop_assert_eq!(run(), run());
    }

    /// A straight line has its slope, with one sample in six wrong by any amount.
    #[test]
    fn the_slope_is_robust(rate_mib in -4_000i64..4_000, wrong in 0usize..6, by in any::<i32>()) {
        let mut trend = Trend::new(0);
        for i in 0..6i64 {
            let error = if i as usize == wrong { i64::from(by) } else { 0 };
            trend.note(Millis(1 + 200 * i as u64), (64 << 30) - rate_mib * (1 << 20) * 200 * i / 1000 + error);
        }
        let rate = rate_mib << 20;
        // A wrong reading may make it say less, never more than the noise of integer division.
        prop_assert!(trend.slope() <= rate + 10, "{} for {}", trend.slope(), rate);
        if wrong == 0 {
            prop_assert!((trend.slope() - rate).abs() <= 10, "{} for {}", trend.slope(), rate);
        }
    }

    /// Quiet times are what a list of all undone recoveries says.
    #[test]
    fn quiet_time_follows_its_history(steps in prop::collection::vec((any::<bool>(), 1u64..5_000), 1..60)) {
        let (mut quiet, mut span, mut changed, mut raised) = (Quiet::default(), limits::QUIET_MIN.0, 0, None);
        let mut now = 0;
        for (is_raise, pause_s) in steps {
            now += pause_s * 1000;
            while span > limits::QUIET_MIN.0 && now - changed >= limits::QUIET_HALVES_AFTER.0 {
                span = (span / 2).max(limits::QUIET_MIN.0);
                changed += limits::QUIET_HALVES_AFTER.0;
            }
            if is_raise {
                quiet.raised(Millis(now));
                raised = Some(now);
            } else {
                let within = span.max(limits::UNDONE_WITHIN.0);
                let is_undone = raised.take().is_some_and(|at| now - at < within);
                if is_undone {
                    (span, changed) = ((2 * span).min(limits::QUIET_MAX.0), now);
                }
                prop_assert_eq!(quiet.lowered(Millis(now)), is_undone);
            }
            prop_assert_eq!(quiet.span(Millis(now)), Millis(span));
        }
    }

    /// Trust stays within its bounds, and a lever is asked for at least what is needed.
    #[test]
    fn trust_is_bounded(moves in prop::collection::vec((0u64..1 << 36, 0u64..1 << 37), 0..20), need in 0u64..1 << 36) {
        let mut trust = Trust::default();
        for (promised, measured) in moves {
            trust.learn(Lever::KvWindow, Bytes(promised), Bytes(measured));
            let permille = trust.permille(Lever::KvWindow);
            prop_assert!((limits::TRUST_MIN_PERMILLE..=1000).contains(&permille));
        }
        let distance = trust.distance(Lever::KvWindow, Bytes(need));
        prop_assert!(distance >= Bytes(need) && distance <= Bytes(need * 1000 / limits::TRUST_MIN_PERMILLE));
        prop_assert_eq!(trust.distance(Lever::Draft, Bytes(need)), Bytes(need));
    }
}
