//! Policies that are bad on purpose, through whole days: the checker has to find each, and nothing in the same days without
//! the plant.
//!
//! Each is the project's own policy with one habit spoilt, between what the sensors say and what it is shown, or between what
//! it orders and what is carried out.

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::Mode;
use plimsoll_tests::sim::day::Day;
use plimsoll_tests::sim::fleet::Fleet;
use plimsoll_tests::sim::lever::Account;
use plimsoll_tests::sim::ours::Ours;
use plimsoll_tests::sim::policies::Named;
use plimsoll_tests::sim::policy::{Facts, Order, Policy};
use plimsoll_tests::sim::sight::{Happening, LeverAnswer, Sight};
use plimsoll_tests::sim::world::World;

/// How many days each plant has to be found on.
const N_SEEDS: u64 = 12;

/// The spoilt habit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    /// None: the control.
    Nothing,
    /// No lever is ever moved.
    NoGovernor,
    /// Every reading is taken for one of this moment.
    StaleTrusted,
    /// What a lever was to free counts as free before anything was read.
    PromisedForFreed,
    /// What was taken is given back as soon as it is not needed.
    NoQuiet,
}

struct Planted {
    plant: Plant,
    facts: Facts,
    ours: Ours,
    /// Answers to moves down whose relief no reading shows yet, or that wait to be undone.
    answers: Vec<(Millis, LeverAnswer)>,
}

impl Planted {
    fn new(day: &Day, plant: Plant) -> Planted {
        let facts = day.world.facts();
        let mode = if plant == Plant::NoGovernor { Mode::Off } else { Mode::Act };
        Planted { plant, ours: Ours::with_governor(&facts, mode), facts, answers: Vec::new() }
    }

    /// What the policy is shown.
    fn spoil(&mut self, now: Millis, sight: &Sight) -> Sight {
        let mut seen = sight.clone();
        match self.plant {
            Plant::Nothing | Plant::NoGovernor | Plant::NoQuiet => {}
            Plant::StaleTrusted => {
                seen.host.iter_mut().for_each(|host| host.taken_at = now);
                seen.cards.iter_mut().flatten().for_each(|card| card.taken_at = now);
            }
            Plant::PromisedForFreed => {
                self.answers
                    .retain(|(at, answer)| sight.taken_at(answer.lever.account()).is_some_and(|taken| taken <= *at));
                for (_, answer) in &self.answers {
                    count_as_freed(now, answer, &mut seen);
                }
            }
        }
        seen
    }

    /// Orders to give back what was taken a second ago, where it fits.
    fn give_back(&mut self, now: Millis, sight: &Sight) -> Option<Order> {
        let at = self.answers.iter().position(|(at, _)| now.since(*at) >= Millis(1_000))?;
        let (_, answer) = self.answers.swap_remove(at);
        let fits = sight.host.is_some_and(|host| host.value.room_to_line() > answer.moved.0 as i64);
        let home = self.facts.levers.iter().find(|fact| fact.lever == answer.lever)?.home;
        let to = answer.from.min(home);
        let is_host = answer.lever.account() == Account::Host;
        (fits && is_host && to > answer.to).then_some(Order::Move { worker: answer.worker, lever: answer.lever, to })
    }
}

/// Shows an account as it would be if a move had freed all that was promised.
fn count_as_freed(now: Millis, answer: &LeverAnswer, seen: &mut Sight) {
    let promised = answer.from.saturating_sub(answer.to);
    match (answer.lever.account(), &mut seen.host) {
        (Account::Host, Some(host)) => {
            host.taken_at = now;
            for group in &mut host.value.groups {
                group.unreclaimable = group.unreclaimable.saturating_sub(promised);
            }
        }
        (Account::Vram(card), _) => {
            for reading in seen.cards.get_mut(card.index()).into_iter().flatten() {
                reading.taken_at = now;
                reading.value.free = Bytes(reading.value.free.0 + promised.0);
            }
        }
        (Account::Host, None) => {}
    }
}

impl Policy for Planted {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        for happening in &sight.happened {
            match happening {
                Happening::Lever(answer) if answer.to < answer.from => self.answers.push((now, *answer)),
                Happening::Exited(_) => self.answers.clear(),
                Happening::Lever(_)
                | Happening::Spawned(_)
                | Happening::Ready(_)
                | Happening::Offered(_)
                | Happening::NoRoom(_)
                | Happening::Finished(_)
                | Happening::Cancelled(_) => {}
            }
        }
        let seen = self.spoil(now, sight);
        let mut orders = self.ours.step(now, &seen);
        if self.plant == Plant::NoQuiet {
            orders.extend(self.give_back(now, sight));
        }
        orders
    }

    fn next_look(&self) -> Millis {
        self.ours.next_look()
    }

    fn idle(&self) -> bool {
        self.ours.idle()
    }
}

/// What the checker says of a plant, all days of a world together.
fn found(world: &str, make: Named) -> Vec<String> {
    let worlds = vec![World::load(world).expect("a default world")];
    let fleet = Fleet { worlds, from_seed: 1, n_seeds: N_SEEDS, hours: 24, policies: vec![make] };
    fleet.run().into_iter().flat_map(|seed| seed.scores).flat_map(|score| score.violations).collect()
}

macro_rules! plant {
    ($plant:ident) => {
        Named { name: stringify!($plant), make: |day| Box::new(Planted::new(day, Plant::$plant)) }
    };
}

#[test]
fn without_a_plant_nothing_is_found() {
    for world in ["workstation-12g", "hostile-sensors"] {
        assert_eq!(found(world, plant!(Nothing)), Vec::<String>::new(), "{world}");
    }
}

#[test]
fn each_plant_is_found_by_the_rule_it_breaks() {
    for (world, named, expect) in [
        ("workstation-12g", plant!(NoGovernor), "deaths for want of memory"),
        ("hostile-sensors", plant!(StaleTrusted), "no fresh reading"),
        ("hostile-sensors", plant!(StaleTrusted), "is raised on an old reading"),
        ("workstation-12g", plant!(PromisedForFreed), "deaths for want of memory"),
        ("hostile-sensors", plant!(PromisedForFreed), "deaths for want of memory"),
        ("hostile-sensors", plant!(StaleTrusted), "before its relief was measured"),
        ("workstation-12g", plant!(NoQuiet), "after a downward move"),
    ] {
        let violations = found(world, named);
        let n_found = violations.iter().filter(|words| words.contains(expect)).count();
        assert!(n_found > 0, "{} in {world}: not {expect:?} in {violations:#?}", named.name);
    }
}
