//! The project's own policy through days of every world; the long figures are in CONTRIBUTING.md, with their command.

use plimsoll_tests::sim::fleet::{Fleet, Line, SeedScores};
use plimsoll_tests::sim::policies::{ALL, Named};
use plimsoll_tests::sim::world::{NAMES, World};

/// Days that nobody tuned for.
const FROM_SEED: u64 = 3_000_000;

fn ours(n_seeds: u64) -> (Line, Vec<SeedScores>) {
    let worlds = NAMES.iter().map(|name| World::load(name).expect("a default world")).collect();
    let policies: Vec<Named> = ALL.into_iter().filter(|named| named.name == "ours").collect();
    let fleet = Fleet { worlds, from_seed: FROM_SEED, n_seeds, hours: 24, policies };
    let seeds = fleet.run();
    let [line] = <[Line; 1]>::try_from(fleet.lines(&seeds)).expect("one policy, one line");
    (line, seeds)
}

#[test]
fn nothing_that_could_have_lived_dies_and_no_answer_is_lost() {
    let (line, seeds) = ours(294);
    for seed in &seeds {
        let violations = &seed.scores[0].violations;
        assert!(violations.is_empty(), "seed {} of {}: {violations:#?}", seed.seed, seed.world);
    }
    assert_eq!((line.oom_preventable, line.lost_answers), (0, 0), "{line:?}");
    assert!(line.tokens_vs_oracle_mean >= 0.95, "{line:?}");
    assert!(line.undone_recoveries_per_hour_p99 <= 4, "{line:?}");
    // It had work to do.
    let n_downgrades = seeds.iter().filter(|seed| seed.scores[0].downgrades > 0).count();
    assert!(n_downgrades > 280, "{n_downgrades} of {} days had a move", seeds.len());
}
