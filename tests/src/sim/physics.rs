//! How fast a worker is: the roofline of its tiers × 0.55, as measured on real machines.
//!
//! Floats here are multiplied, divided and added only, so that they are the same bits on every machine.

use super::day::MIB;
use super::lever::{Card, Lever, LeverFacts};
use super::world::World;

/// Hits over the share of experts that a tier holds, both in thousandths: measured with 128 experts, top-8; the first point on
/// a 12 GiB card (0.28 of 46.84 GiB gave 20–22 %).
const HITS: [(i64, i64); 7] = [(0, 0), (6, 210), (50, 370), (150, 740), (300, 890), (500, 960), (1000, 1000)];

/// Share of the roofline that an engine reaches.
const OF_ROOFLINE: f64 = 0.55;

/// Decoding where VRAM was short at a request's start, in millionths of a token per millisecond: 3 tokens a second.
pub const SHORT_VRAM_RATE: i64 = 3_000;

/// Speed that is left when no page of page cache is.
const SQUEEZED: f64 = 0.3;

/// How much swapped weights slow: with a twentieth of ours in swap the speed is halved.
const SWAP_PRICE: f64 = 20.0;

/// What the rates depend on. Bytes.
#[derive(Debug, Clone, Copy)]
pub struct State<'a> {
    /// Held by each lever.
    pub held: &'a [i64; Lever::COUNT],
    /// KV of the requests that run.
    pub kv: i64,
    /// How many run.
    pub n_running: i64,
    /// Share of the disk, thousandths.
    pub disk_permille: i64,
    /// Swapped out.
    pub swapped: i64,
    /// All of ours.
    pub ours: i64,
    /// Whether page cache is gone.
    pub squeezed: bool,
}

/// Rates of a worker, all its requests together, in millionths of a token per millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Decoding.
    pub decode: i64,
    /// Prompt.
    pub prefill: i64,
    /// Bytes read from the file for one token.
    pub file_bytes_per_token: i64,
    /// Uses of experts found in VRAM, in RAM, in the file: thousandths.
    pub hits_permille: (i64, i64, i64),
}

/// The fixed part of the calculation for one world.
#[derive(Debug, Clone)]
pub struct Physics {
    experts: f64,
    cycle: f64,
    dense: f64,
    dense_on_card: f64,
    ram: f64,
    disk: f64,
    cards: Vec<f64>,
    draft_gain: f64,
    draft_home: i64,
    prefill: f64,
    best: f64,
}

impl Physics {
    /// For a world.
    #[must_use]
    pub fn new(world: &World, levers: &[LeverFacts]) -> Self {
        let model = &world.model;
        let mib = |n: u64| n as f64;
        let drafts = levers.iter().filter(|facts| matches!(facts.lever, Lever::Draft(_)));
        let mut physics = Self {
            experts: mib(model.experts_mib),
            cycle: mib(model.token_cycle_mib),
            dense: mib(model.dense_mib),
            dense_on_card: mib(model.dense_mib) * mib(model.dense_on_card_permille) / 1000.0,
            ram: mib(model.ram_mib_per_s),
            disk: mib(world.disk.read_mib_per_s),
            cards: world.cards.iter().map(|card| mib(card.bandwidth_mib_per_s)).collect(),
            draft_gain: 1.0 + mib(model.draft_gain_permille) / 1000.0,
            draft_home: drafts.map(|facts| facts.home.0 as i64).sum(),
            prefill: mib(model.prefill_tokens_per_s),
            best: 1.0,
        };
        let mut held = [0; Lever::COUNT];
        for facts in levers {
            held[facts.lever.index()] = facts.home.0 as i64;
        }
        let state =
            State { held: &held, kv: 0, n_running: 1, disk_permille: 1000, swapped: 0, ours: 1, squeezed: false };
        physics.best = physics.seconds_per_token(&state).0;
        physics
    }

    /// The rates of a worker in this state.
    #[must_use]
    pub fn rates(&self, state: &State<'_>) -> Rates {
        let (seconds, file_mib, hits_permille) = self.seconds_per_token(state);
        let mut slow = 1.0;
        if state.squeezed {
            slow *= SQUEEZED;
        }
        if state.swapped > 0 {
            slow /= 1.0 + SWAP_PRICE * state.swapped as f64 / (state.ours.max(1)) as f64;
        }
        let drafting = self.draft_home > 0 && self.sum(state, Lever::Draft) >= self.draft_home;
        let gain = if drafting { self.draft_gain } else { 1.0 };
        let as_millionths = |per_second: f64| (per_second * 1000.0) as i64;
        Rates {
            decode: as_millionths(OF_ROOFLINE / seconds * slow * gain).max(1),
            prefill: as_millionths(self.prefill * (self.best / seconds) * slow).max(1),
            file_bytes_per_token: (file_mib * MIB as f64) as i64,
            hits_permille,
        }
    }

    fn sum(&self, state: &State<'_>, lever: fn(Card) -> Lever) -> i64 {
        (0..self.cards.len()).map(|card| state.held[lever(Card(card as u8)).index()]).sum()
    }

    /// Seconds of a token at the roofline, MiB from the file, hits by tier.
    fn seconds_per_token(&self, state: &State<'_>) -> (f64, f64, (i64, i64, i64)) {
        let mib = |bytes: i64| bytes as f64 / MIB as f64;
        let held = |lever: Lever| mib(state.held[lever.index()]);
        let card = self.cards.first().copied().unwrap_or(self.ram);
        let mut seconds = 0.0;
        let layers = mib(self.sum(state, Lever::GpuLayers));
        let on_card = if self.dense < self.dense_on_card + layers { self.dense } else { self.dense_on_card + layers };
        seconds += on_card / card + (self.dense - on_card) / self.ram;
        let kv = mib(state.kv) / state.n_running.max(1) as f64;
        let window = mib(self.sum(state, Lever::KvWindow));
        let in_window = if kv < window { kv } else { window };
        seconds += in_window / card + (kv - in_window) / self.ram;
        if self.experts <= 0.0 {
            return (seconds, 0.0, (0, 0, 0));
        }
        let in_vram = mib(self.sum(state, Lever::ExpertCache));
        let vram = hit_share(in_vram / self.experts);
        let all = hit_share((in_vram + held(Lever::ResidentBudget)) / self.experts);
        for (number, bandwidth) in self.cards.iter().enumerate() {
            let part = held(Lever::ExpertCache(Card(number as u8)));
            if part > 0.0 {
                seconds += self.cycle * vram * (part / in_vram) / bandwidth;
            }
        }
        seconds += self.cycle * (all - vram) / self.ram;
        let file = self.cycle * (1.0 - all);
        seconds += file / (self.disk * state.disk_permille.max(1) as f64 / 1000.0);
        let permille = |share: f64| (share * 1000.0) as i64;
        (seconds, file, (permille(vram), permille(all - vram), permille(1.0 - all)))
    }
}

/// The share of uses that hit when this share of the experts is held, hottest first.
fn hit_share(held: f64) -> f64 {
    let held = held * 1000.0;
    for pair in HITS.windows(2) {
        let ((from, low), (to, high)) = (pair[0], pair[1]);
        if held <= to as f64 {
            let part = (held - from as f64) / (to - from) as f64;
            return (low as f64 + part * (high - low) as f64) / 1000.0;
        }
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_the_measured_ones_and_never_fall() {
        for (held, hits) in [(0.05, 0.37), (0.15, 0.74), (0.30, 0.89), (0.50, 0.96), (1.0, 1.0), (1.2, 1.0)] {
            assert!((hit_share(held) - hits).abs() < 1e-9, "{held}: {}", hit_share(held));
        }
        let shares: Vec<f64> = (0..=1000).map(|n| hit_share(f64::from(n) / 1000.0)).collect();
        assert!(shares.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn the_workstation_is_as_fast_as_the_measured_one() {
        let world = World::load("workstation-12g").expect("a default world");
        let levers = world.facts().levers;
        let physics = Physics::new(&world, &levers);
        let mut held = [0; Lever::COUNT];
        for facts in &levers {
            held[facts.lever.index()] = facts.home.0 as i64;
        }
        held[Lever::ResidentBudget.index()] = 32 << 30;
        let state =
            State { held: &held, kv: 0, n_running: 1, disk_permille: 1000, swapped: 0, ours: 1, squeezed: false };
        let decode = physics.rates(&state).decode;
        assert!((36_000..46_000).contains(&decode), "39–43 tokens a second were measured, this is {decode} / 1000");
    }
}
