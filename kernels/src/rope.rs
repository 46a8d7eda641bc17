//! Angles of rotary positions: cos and sin for the positions of one step, made on the host once and used by every layer.
//!
//! For pair i of a head of `dim` turning elements at position p: θ = p · freq_scale · base^(−2i/dim) / `freq_factor[i]`.
//! All of it is f64 by own routines and rounded to f32 at the end, so every host and every device turns by the same bits.

use crate::trig;

/// How positions become angles.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Elements of a head that turn; even.
    pub dim: usize,
    /// Base of the geometric series of wave lengths, usually 10,000 or more.
    pub base: f64,
    /// Linear scaling of positions: 1/factor; 1 for none.
    pub freq_scale: f64,
    /// A divisor of each pair's frequency (`rope_freqs.weight`), `dim / 2` of them.
    pub freq_factors: Option<Vec<f32>>,
    /// YaRN: slow pairs are interpolated by `freq_scale`, fast ones keep their frequency.
    pub yarn: Option<Yarn>,
}

/// Parameters of YaRN (Peng et al., 2023): pairs with more than `beta_fast` turns within the original context keep their
/// frequency, those with fewer than `beta_slow` are interpolated, between them a linear ramp mixes the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Context the model was first trained with, in tokens.
    pub original_context: u32,
    /// Weight of extrapolation, 0 to 1; usually 1.
    pub ext_factor: f64,
    /// Factor on cos and sin, beside the 1 + 0.1·ln(1/freq_scale) of the method.
    pub attn_factor: f64,
    /// Turns within the original context above which a pair is left alone; usually 32.
    pub beta_fast: f64,
    /// Turns below which a pair is interpolated; usually 1.
    pub beta_slow: f64,
}

impl RopeSpec {
    /// Plain rotary positions, no scaling.
    pub fn plain(dim: usize, base: f64) -> Self {
        Self { dim, base, freq_scale: 1.0, freq_factors: None, yarn: None }
    }

    /// Angle per position for each pair, and the factor on cos and sin.
    fn frequencies(&self) -> (Vec<f64>, f64) {
        let ln_base = trig::ln(self.base);
        let plain = |i: usize| {
            let factor = self.freq_factors.as_ref().map_or(1.0, |factors| f64::from(factors[i]));
            trig::exp(-(2.0 * i as f64 / self.dim as f64) * ln_base) / factor
        };
        let pairs = 0..self.dim / 2;
        let Some(yarn) = &self.yarn else {
            return (pairs.map(|i| plain(i) * self.freq_scale).collect(), 1.0);
        };
        // The pair that makes `turns` turns within the original context.
        let pair_of = |turns: f64| {
            let per_turn = f64::from(yarn.original_context) / (turns * std::f64::consts::TAU);
            self.dim as f64 * trig::ln(per_turn) / (2.0 * ln_base)
        };
        let low = pair_of(yarn.beta_fast).floor().max(0.0);
        let high = pair_of(yarn.beta_slow).ceil().min(self.dim as f64 - 1.0);
        let mixed = |i: usize| {
            let ramp = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let keep = (1.0 - ramp) * yarn.ext_factor;
            plain(i) * (self.freq_scale * (1.0 - keep) + keep)
        };
        (pairs.map(mixed).collect(), yarn.attn_factor * (1.0 - 0.1 * trig::ln(self.freq_scale)))
    }
}

/// cos and sin for the positions of one step: one row per token, `dim / 2` pairs per row.
#[derive(Debug, Clone)]
pub struct RopeTable {
    dim: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// A table with one row for each of `positions`.
    ///
    /// # Panics
    /// If `spec.dim` is odd, or the frequency factors are not `dim / 2`: the model's facts are checked before.
    pub fn new(positions: impl IntoIterator<Item = u32>, spec: &RopeSpec) -> Self {
        assert!(spec.dim.is_multiple_of(2), "rotary dimension {} is odd", spec.dim);
        if let Some(factors) = &spec.freq_factors {
            assert_eq!(factors.len(), spec.dim / 2, "one frequency factor per pair");
        }
        let (frequencies, factor) = spec.frequencies();
        let mut table = Self { dim: spec.dim, cos: Vec::new(), sin: Vec::new() };
        for position in positions {
            for frequency in &frequencies {
                let (cos, sin) = trig::cos_sin(f64::from(position) * frequency);
                table.cos.push((cos * factor) as f32);
                table.sin.push((sin * factor) as f32);
            }
        }
        table
    }

    /// Elements of a head that turn.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Rows: positions in this step.
    pub fn n_rows(&self) -> usize {
        if self.dim == 0 { 0 } else { self.cos.len() / (self.dim / 2) }
    }

    /// cos and sin of row `row`, one of each per pair.
    pub fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let range = row * (self.dim / 2)..(row + 1) * (self.dim / 2);
        (&self.cos[range.clone()], &self.sin[range])
    }
}

#[cfg(test)]
mod tests {
    use super::{RopeSpec, RopeTable, Yarn};

    #[test]
    fn table_is_the_f64_rotation_up_to_a_million() {
        for base in [10_000.0, 100_000.0, 1_000_000.0] {
            let positions = [0, 1, 2, 63, 64, 511, 8191, 131_071, 524_287, 999_983, 1_000_000];
            let table = RopeTable::new(positions, &RopeSpec::plain(64, base));
            for (row, position) in positions.iter().enumerate() {
                let (cos, sin) = table.row(row);
                for i in 0..32 {
                    let angle = f64::from(*position) * base.powf(-2.0 * i as f64 / 64.0);
                    assert!((f64::from(cos[i]) - angle.cos()).abs() < 1e-7, "cos of pair {i} at {position}");
                    assert!((f64::from(sin[i]) - angle.sin()).abs() < 1e-7, "sin of pair {i} at {position}");
                }
            }
        }
    }

    #[test]
    fn linear_scaling_divides_positions() {
        let plain = RopeTable::new([7], &RopeSpec::plain(32, 1e4));
        let scaled = RopeTable::new([56], &RopeSpec { freq_scale: 0.125, ..RopeSpec::plain(32, 1e4) });
        assert_eq!(plain.row(0), scaled.row(0));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let yarn = Yarn { original_context: 4096, ext_factor: 1.0, attn_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0 };
        let spec = RopeSpec { freq_scale: 0.25, yarn: Some(yarn), ..RopeSpec::plain(128, 1e4) };
        let (mixed, factor) = spec.frequencies();
        let (plain, _) = RopeSpec::plain(128, 1e4).frequencies();
        assert!((factor - (1.0 + 0.1 * 4.0_f64.ln())).abs() < 1e-12);
        for (i, (mixed, plain)) in mixed.iter().zip(&plain).enumerate() {
            let turns = 4096.0 * plain / std::f64::consts::TAU;
            if turns > 40.0 {
                assert!((mixed - plain).abs() < 1e-12, "pair {i} turns {turns} times and stays");
            } else if turns < 0.9 {
                assert!((mixed - plain / 4.0).abs() < 1e-12, "pair {i} turns {turns} times and is interpolated");
            } else {
                assert!((plain / 4.0 - 1e-12..=plain + 1e-12).contains(mixed), "pair {i} is between");
            }
        }
    }

    #[test]
    fn frequency_factors_divide_each_pair() {
        let mut factors = vec![1.0; 16];
        factors[15] = 8.0;
        let plain = RopeTable::new([40], &RopeSpec::plain(32, 5e5));
        let with = RopeTable::new([40], &RopeSpec { freq_factors: Some(factors), ..RopeSpec::plain(32, 5e5) });
        assert_eq!(plain.row(0).0[..15], with.row(0).0[..15]);
        assert!(plain.row(0).1[15] > with.row(0).1[15], "a divided frequency turns less");
    }
}
