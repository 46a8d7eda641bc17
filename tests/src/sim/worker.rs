//! The worker of the simulator: its bytes, its jobs, the moves of its levers. It knows no time but "so many milliseconds on".
//!
//! ```text
//! Loading ──all pools full──► Serving ──stop, signal or death──► gone (machine.rs keeps what it still holds)
//! ```

use super::lever::{Account, Lever, LeverFacts, MAX_CARDS, Positions};
use super::physics::Rates;
use super::pool::Pool;
use super::sight::{Generation, RequestId, Running};

/// Millionths of a token: progress is counted in them.
pub const MICRO: i64 = 1_000_000;

/// A job's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Submitted while admission is paused.
    Waiting,
    /// Prompt: millionths of tokens left.
    Prefill(i64),
    /// Answer.
    Decode,
}

/// A request in the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Which.
    pub request: RequestId,
    /// Where it is.
    pub phase: Phase,
    /// Answer so far, millionths of tokens.
    pub done: i64,
    /// Answer tokens at which something happens: its end, or the worker's (poison).
    pub until: i64,
    /// Whether VRAM was short when it began.
    pub slow: bool,
    /// KV that is kept for it.
    pub kv: i64,
}

impl Job {
    /// The job as the daemon sees it.
    #[must_use]
    pub fn seen(&self) -> Running {
        let prefill_left = match self.phase {
            Phase::Prefill(left) => (left / MICRO) as u32,
            Phase::Waiting | Phase::Decode => 0,
        };
        let in_prefill = self.phase != Phase::Decode;
        Running { request: self.request, position: (self.done / MICRO) as u32, in_prefill, prefill_left }
    }
}

/// A move of a lever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moving {
    /// Which.
    pub lever: Lever,
    /// Position before.
    pub from: i64,
    /// Position asked for.
    pub to: i64,
    /// When it was ordered.
    pub ordered_ms: i64,
    /// The hand-over at which it begins.
    pub begins_ms: i64,
    /// Whether it has begun.
    pub begun: bool,
    /// Held when it began.
    pub held_before: i64,
    /// Whether a later order on the lever took its place.
    pub turned_round: bool,
}

/// A living worker.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its number.
    pub generation: Generation,
    /// Whether it still loads.
    pub loading: bool,
    /// Most jobs.
    pub sessions: usize,
    /// Host bytes beside the levers.
    pub fixed: Pool,
    /// What each lever's object holds.
    pub pools: [Pool; Lever::COUNT],
    /// Where each lever stands.
    pub positions: [i64; Lever::COUNT],
    /// Bytes beside the levers on each card.
    pub card_fixed: [i64; MAX_CARDS],
    /// Prompt path on each card, from the first request on.
    pub prompt_path: [i64; MAX_CARDS],
    /// What it works on.
    pub jobs: Vec<Job>,
    /// Moves under way.
    pub moves: Vec<Moving>,
    /// When it ends because it was told to.
    pub ends_ms: Option<i64>,
    /// Whether it makes no progress any more.
    pub hung: bool,
    /// Whether submitted jobs wait.
    pub paused: bool,
    /// Millionths of tokens decoded.
    pub decoded: i64,
    /// Its speed.
    pub rates: Rates,
}

impl Worker {
    /// A worker that begins to load.
    #[must_use]
    pub fn spawn(
        generation: Generation,
        knobs: &Positions,
        levers: &[LeverFacts],
        sessions: usize,
        fixed: i64,
    ) -> Self {
        let mut worker = Self {
            generation,
            loading: true,
            sessions,
            fixed: Pool::default(),
            pools: [Pool::default(); Lever::COUNT],
            positions: [0; Lever::COUNT],
            card_fixed: [0; MAX_CARDS],
            prompt_path: [0; MAX_CARDS],
            jobs: Vec::new(),
            moves: Vec::new(),
            ends_ms: None,
            hung: false,
            paused: false,
            decoded: 0,
            rates: Rates::default(),
        };
        worker.fixed.go(fixed, 1);
        for facts in levers {
            let index = facts.lever.index();
            worker.positions[index] = knobs.get(facts.lever).0 as i64;
            worker.pools[index].go(worker.positions[index], 1);
        }
        worker
    }

    /// Paces the load: all objects grow together and are full at about the same time.
    pub fn pace_load(&mut self, bytes_per_ms: i64) {
        let left = |pool: &Pool| pool.target() - pool.held();
        let all: i64 = (left(&self.fixed) + self.pools.iter().map(left).sum::<i64>()).max(1);
        let share = |pool: &Pool| (i128::from(left(pool)) * i128::from(bytes_per_ms) / i128::from(all)) as i64;
        let speed = share(&self.fixed);
        self.fixed.hurry(speed);
        for pool in &mut self.pools {
            let speed = share(pool);
            pool.hurry(speed);
        }
    }

    /// Bytes held by each lever's object.
    #[must_use]
    pub fn held(&self) -> [i64; Lever::COUNT] {
        self.pools.map(|pool| pool.held())
    }

    /// Bytes of one account after `ms` more, and how they change now.
    #[must_use]
    pub fn bytes(&self, account: Account, levers: &[LeverFacts], ms: i64) -> (i64, i64) {
        let beside = match account {
            Account::Host => (self.fixed.after(ms), self.fixed.slope()),
            Account::Vram(card) => (self.card_fixed[card.index()] + self.prompt_path[card.index()], 0),
        };
        let of_account = levers.iter().filter(|facts| facts.lever.account() == account);
        of_account.fold(beside, |(bytes, slope), facts| {
            let pool = &self.pools[facts.lever.index()];
            (bytes + pool.after(ms), slope + pool.slope())
        })
    }

    /// Whether it takes bytes in an account now: what can fail.
    #[must_use]
    pub fn grows(&self, account: Account, levers: &[LeverFacts]) -> bool {
        levers.iter().any(|facts| facts.lever.account() == account && self.pools[facts.lever.index()].slope() > 0)
    }

    /// KV kept for running requests.
    #[must_use]
    pub fn kv_in_use(&self) -> i64 {
        self.jobs.iter().map(|job| job.kv).sum()
    }

    /// How many jobs make progress.
    #[must_use]
    pub fn n_active(&self) -> i64 {
        self.jobs.iter().filter(|job| job.phase != Phase::Waiting).count() as i64
    }

    /// What a job gains in a millisecond, millionths of tokens.
    #[must_use]
    pub fn rate_of(&self, job: &Job) -> i64 {
        let n_active = self.n_active().max(1);
        match job.phase {
            Phase::Waiting => 0,
            Phase::Prefill(_) => (self.rates.prefill / n_active).max(1),
            Phase::Decode if job.slow => (self.rates.decode / n_active).clamp(1, super::physics::SHORT_VRAM_RATE),
            Phase::Decode => (self.rates.decode / n_active).max(1),
        }
    }

    /// Millionths of tokens that all jobs decode in a millisecond.
    #[must_use]
    pub fn decode_rate(&self) -> i64 {
        self.jobs.iter().filter(|job| job.phase == Phase::Decode).map(|job| self.rate_of(job)).sum()
    }

    /// Whether it computes.
    #[must_use]
    pub fn works(&self) -> bool {
        !self.loading && !self.hung
    }

    /// Milliseconds until a pool arrives or a job comes to its next point.
    #[must_use]
    pub fn ms_to_next(&self) -> Option<i64> {
        let pools = self.pools.iter().chain([&self.fixed]).filter_map(Pool::ms_left).min();
        if !self.works() {
            return pools;
        }
        let jobs = self.jobs.iter().filter_map(|job| {
            let left = match job.phase {
                Phase::Waiting => return None,
                Phase::Prefill(left) => left,
                Phase::Decode => job.until * MICRO - job.done,
            };
            let rate = self.rate_of(job);
            Some((left + rate - 1).max(0) / rate)
        });
        jobs.chain(pools).min()
    }

    /// Goes on for `ms`, which is not past the next point. Says what was decoded, millionths of tokens.
    pub fn advance(&mut self, ms: i64) -> i64 {
        self.fixed.advance(ms);
        self.pools.iter_mut().for_each(|pool| pool.advance(ms));
        if !self.works() {
            return 0;
        }
        let mut decoded = 0;
        for index in 0..self.jobs.len() {
            let gain = self.rate_of(&self.jobs[index]) * ms;
            let job = &mut self.jobs[index];
            match job.phase {
                Phase::Waiting => {}
                Phase::Prefill(left) => job.phase = Phase::Prefill((left - gain).max(0)),
                Phase::Decode => {
                    let gain = gain.min(job.until * MICRO - job.done);
                    job.done += gain;
                    decoded += gain;
                }
            }
        }
        self.decoded += decoded;
        decoded
    }
}
