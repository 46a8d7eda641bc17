//! Many days on all cores, and what they come to together.

use super::day::Day;
use super::policies::{Named, ORACLE};
use super::run::Run;
use super::score::DayScore;
use super::world::World;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Worlds; a seed takes the one at its remainder.
    pub worlds: Vec<World>,
    /// First seed.
    pub from_seed: u64,
    /// How many.
    pub n_seeds: u64,
    /// Length of each day.
    pub hours: u32,
    /// Policies, each beside the oracle.
    pub policies: Vec<Named>,
}

/// One seed: the oracle's day and those of the policies, in the order asked for.
#[derive(Debug, Clone)]
pub struct SeedScores {
    /// The seed.
    pub seed: u64,
    /// Its world.
    pub world: String,
    /// The oracle's.
    pub oracle: DayScore,
    /// The others'.
    pub scores: Vec<DayScore>,
}

/// A policy over all seeds: one line of the table.
#[derive(Debug, Clone)]
pub struct Line {
    /// The policy.
    pub policy: &'static str,
    /// How many days.
    pub seeds: u64,
    /// Hours of a day.
    pub hours: u32,
    /// Deaths for want of memory.
    pub oom: u64,
    /// Those on seeds that the oracle survives.
    pub oom_preventable: u64,
    /// Answers that nobody brought to an end.
    pub lost_answers: u64,
    /// Requests refused with a reason.
    pub refusals: u64,
    /// Moves down, and starts lower than before.
    pub downgrades: u64,
    /// Undone recoveries in the worst hour of a day, wherever it begins; of the days the 99th of a hundred.
    pub undone_recoveries_per_hour_p99: u32,
    /// Tokens against the oracle's: the mean of the days' shares.
    pub tokens_vs_oracle_mean: f64,
    /// The 5th of a hundred.
    pub tokens_vs_oracle_p5: f64,
    /// Seeds on which a rule was broken, or a worker died where the oracle's did not.
    pub failing_seeds: Vec<u64>,
    /// The seed with the smallest share, and the share.
    pub worst: (u64, f64),
}

impl Fleet {
    /// The world of a seed.
    #[must_use]
    pub fn world(&self, seed: u64) -> &World {
        &self.worlds[(seed % self.worlds.len() as u64) as usize]
    }

    /// The day of a seed.
    #[must_use]
    pub fn day(&self, seed: u64) -> Day {
        Day::new(self.world(seed), seed, self.hours)
    }

    /// Runs every seed on all cores; results in the order of seeds.
    #[must_use]
    pub fn run(&self) -> Vec<SeedScores> {
        let n_seeds = self.n_seeds as usize;
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<SeedScores>>> = Mutex::new(vec![None; n_seeds]);
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from).min(n_seeds.max(1));
        std::thread::scope(|scope| {
            for _ in 0..n_threads {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= n_seeds {
                            return;
                        }
                        let scores = self.seed(self.from_seed + index as u64);
                        // A poisoned lock means that another seed panicked: the scope reports that.
                        if let Ok(mut results) = results.lock() {
                            results[index] = Some(scores);
                        }
                    }
                });
            }
        });
        results.into_inner().unwrap_or_default().into_iter().flatten().collect()
    }

    /// One seed.
    #[must_use]
    pub fn seed(&self, seed: u64) -> SeedScores {
        let day = self.day(seed);
        let oracle = Run::new(&day, (ORACLE.make)(&day), false).play();
        let score = |named: &Named| {
            if named.name == ORACLE.name {
                return oracle.clone();
            }
            let mut score = Run::new(&day, (named.make)(&day), false).play();
            if oracle.oom() == 0 && score.oom() > 0 {
                let n_deaths = score.oom();
                score.violations.push(format!("{n_deaths} deaths for want of memory, where the oracle has none"));
            }
            score
        };
        let scores = self.policies.iter().map(score).collect();
        SeedScores { seed, world: day.world.name.clone(), oracle, scores }
    }

    /// The lines of the table.
    #[must_use]
    pub fn lines(&self, seeds: &[SeedScores]) -> Vec<Line> {
        let of = |(index, named): (usize, &Named)| self.line(named, index, seeds);
        self.policies.iter().enumerate().map(of).collect()
    }

    fn line(&self, named: &Named, index: usize, seeds: &[SeedScores]) -> Line {
        let sum = |of: fn(&DayScore) -> u32| seeds.iter().map(|seed| u64::from(of(&seed.scores[index]))).sum::<u64>();
        let preventable = seeds.iter().filter(|seed| seed.oracle.oom() == 0);
        let mut shares: Vec<(f64, u64)> = seeds.iter().map(|seed| (share(seed, index), seed.seed)).collect();
        shares.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut undone: Vec<u32> = seeds.iter().map(|seed| seed.scores[index].undone_worst_hour).collect();
        undone.sort_unstable();
        let failing = seeds.iter().filter(|seed| !seed.scores[index].violations.is_empty());
        Line {
            policy: named.name,
            seeds: seeds.len() as u64,
            hours: self.hours,
            oom: sum(DayScore::oom),
            oom_preventable: preventable.map(|seed| u64::from(seed.scores[index].oom())).sum(),
            lost_answers: sum(|score| score.lost_answers),
            refusals: sum(|score| score.refusals),
            downgrades: sum(|score| score.downgrades),
            undone_recoveries_per_hour_p99: of_hundred(&undone, 99).copied().unwrap_or(0),
            tokens_vs_oracle_mean: shares.iter().map(|(share, _)| share).sum::<f64>() / shares.len().max(1) as f64,
            tokens_vs_oracle_p5: of_hundred(&shares, 5).map_or(0.0, |(share, _)| *share),
            failing_seeds: failing.map(|seed| seed.seed).collect(),
            worst: shares.first().map_or((0, 0.0), |(share, seed)| (*seed, *share)),
        }
    }
}

/// Tokens of a policy's day against the oracle's; a day on which the oracle has none is whole.
fn share(seed: &SeedScores, index: usize) -> f64 {
    match seed.oracle.tokens {
        0 => 1.0,
        best => seed.scores[index].tokens as f64 / best as f64,
    }
}

/// The n-th of a hundred in a sorted list.
fn of_hundred<T>(sorted: &[T], n: usize) -> Option<&T> {
    sorted.get((sorted.len().saturating_sub(1) * n + 50) / 100)
}
