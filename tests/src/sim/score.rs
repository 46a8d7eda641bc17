//! What one day came to.

use super::checker::Findings;
use super::clients::{End, Request};
use super::day::HOUR_MS;
use super::events::Cause;
use super::story::Story;
use super::worker::Worker;

/// The figures of one day of one policy.
#[derive(Debug, Clone, Default)]
pub struct DayScore {
    /// The seed.
    pub seed: u64,
    /// Kills by the kernel.
    pub oom_host: u32,
    /// Deaths of an allocation on a card.
    pub oom_vram: u32,
    /// Deaths by signal 11.
    pub crashes: u32,
    /// Requests that nobody brought to an end.
    pub lost_answers: u32,
    /// Requests that were refused with a reason.
    pub refusals: u32,
    /// Moves down, and starts with a lever lower than before.
    pub downgrades: u32,
    /// Upward moves that had to be undone, by hour.
    pub undone_per_hour: Vec<u32>,
    /// Answer tokens that reached a client whose answer was not lost.
    pub tokens: u64,
    /// The most of them in any hour, wherever it begins.
    pub undone_worst_hour: u32,
    /// Requests asked.
    pub offered: u32,
    /// Answers completed.
    pub finished: u32,
    /// Clients that went away.
    pub cancelled: u32,
    /// Requests that began with VRAM under its line.
    pub short_starts: u32,
    /// Milliseconds with a worker that serves.
    pub serving_ms: u64,
    /// Rules that were broken, each as a sentence.
    pub violations: Vec<String>,
    /// The day in sentences, if asked for.
    pub story: Vec<String>,
}

impl DayScore {
    /// Deaths for want of memory, of either kind.
    #[must_use]
    pub fn oom(&self) -> u32 {
        self.oom_host + self.oom_vram
    }
}

/// The figures while the day runs.
#[derive(Debug, Clone)]
pub struct Tally {
    score: DayScore,
    length_ms: i64,
}

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub fn new(length_ms: i64) -> Self {
        Self { score: DayScore::default(), length_ms }
    }

    /// Time passed.
    pub fn passed(&mut self, ms: i64, worker: Option<&Worker>) {
        if worker.is_some_and(Worker::works) {
            self.score.serving_ms += ms as u64;
        }
    }

    /// A request was asked.
    pub fn offered(&mut self) {
        self.score.offered += 1;
    }

    /// A request began with VRAM under its line.
    pub fn short_start(&mut self) {
        self.score.short_starts += 1;
    }

    /// A request ended.
    pub fn ended(&mut self, request: &Request) {
        let (count, counts_tokens) = match request.end {
            Some(End::Finished) => (&mut self.score.finished, true),
            Some(End::Cancelled) => (&mut self.score.cancelled, true),
            Some(End::Refused) => (&mut self.score.refusals, true),
            Some(End::Lost) => (&mut self.score.lost_answers, false),
            None => return,
        };
        *count += 1;
        if counts_tokens {
            self.score.tokens += u64::from(request.position);
        }
    }

    /// A worker ended.
    pub fn died(&mut self, cause: Cause) {
        match cause {
            Cause::OutOfMemory(_) => self.score.oom_host += 1,
            Cause::CardFull(_) => self.score.oom_vram += 1,
            Cause::Crash | Cause::Poison(_) => self.score.crashes += 1,
            Cause::OutsideKill | Cause::Told | Cause::KilledByUs => {}
        }
    }

    /// The day is over.
    #[must_use]
    pub fn finish(mut self, findings: Findings, story: &Story, seed: u64) -> DayScore {
        let hours = (self.length_ms + HOUR_MS - 1) / HOUR_MS;
        self.score.undone_per_hour = vec![0; hours.max(1) as usize];
        let last = self.score.undone_per_hour.len() - 1;
        let from =
            |at_ms: &u64| findings.undone_ms.iter().filter(|ms| (*at_ms..at_ms + HOUR_MS as u64).contains(ms)).count();
        self.score.undone_worst_hour = findings.undone_ms.iter().map(from).max().unwrap_or(0) as u32;
        for at_ms in findings.undone_ms {
            self.score.undone_per_hour[((at_ms as i64 / HOUR_MS) as usize).min(last)] += 1;
        }
        self.score.seed = seed;
        self.score.downgrades = findings.downgrades;
        self.score.violations = findings.violations;
        self.score.story = story.lines().to_vec();
        self.score
    }
}
