//! Chooses the next token: a pure function of (logits, parameters, seed, ids so far, position).
//!
//! Called by the job loop and the offline commands, once per generated token. It keeps no state: the random number of a
//! position is computed from the seed and the position alone, so an answer can be resumed anywhere, by another process too.
//!
//! The filters have one order, the one users of local models know:
//!
//! ```text
//! logits ─► repeat penalty ─► top-k ─► top-p ─► min-p ─► temperature ─► draw
//! ```
//!
//! top-p and min-p therefore judge the model's own probabilities (temperature 1), so raising the temperature makes the
//! choice among the kept tokens flatter and never keeps more of them. Equal logits go to the lower id everywhere.

use plimsoll_kernels::{math, order};
use std::cmp::Ordering;
use std::fmt;

/// How a token is chosen. [`Params::greedy`] is the neutral value of every field.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Keep the k likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set with at least this probability, never less than one token: 0 keeps the likeliest only, 1 all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the best; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 is off.
    pub repeat_penalty: f32,
    /// How many recent tokens the penalty looks at.
    pub repeat_last_n: u32,
    /// The seed of this answer.
    pub seed: u64,
}

/// Outside of these a penalty could turn finite logits into infinite ones.
const PENALTY_RANGE: std::ops::RangeInclusive<f32> = 0.01..=100.0;

impl Params {
    /// The likeliest token, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, repeat_last_n: 0, seed: 0 }
    }

    /// Says which field has an impossible value.
    ///
    /// # Errors
    /// [`SampleError::Parameter`] with the field, its value and what is possible.
    pub fn check(&self) -> Result<(), SampleError> {
        let rows: [(&'static str, f32, bool, &'static str); 4] = [
            ("temperature", self.temperature, self.temperature.is_finite() && self.temperature >= 0.0, "0 or more"),
            ("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "from 0 to 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1"),
            (
                "repeat_penalty",
                self.repeat_penalty,
                PENALTY_RANGE.contains(&self.repeat_penalty),
                "from 0.01 to 100 (1 is off)",
            ),
        ];
        match rows.into_iter().find(|(_, _, possible, _)| !possible) {
            Some((field, value, _, want)) => Err(SampleError::Parameter { field, value, want }),
            None => Ok(()),
        }
    }
}

/// Why no token could be chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleError {
    /// A parameter has an impossible value.
    Parameter {
        /// Its name.
        field: &'static str,
        /// What was given.
        value: f32,
        /// What is possible.
        want: &'static str,
    },
    /// The model gave NaN or an infinity: its weights are damaged, or the engine has a bug.
    NotFinite {
        /// The token whose logit it is.
        id: u32,
        /// The logit.
        value: f32,
    },
    /// There are no logits to choose from.
    Empty,
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { field, value, want } => write!(f, "{field} is {value}; it must be {want}"),
            Self::NotFinite { id, value } => {
                write!(f, "the model's logit for token {id} is {value}: check the model file's hash, it may be damaged")
            }
            Self::Empty => write!(f, "the model has an empty vocabulary"),
        }
    }
}

impl std::error::Error for SampleError {}

/// A token still in the running.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
}

/// Likelier first; equal logits by lower id. Logits are finite here, so `total_cmp` only separates -0 from 0: adding 0
/// makes both the same.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    (b.logit + 0.0).total_cmp(&(a.logit + 0.0)).then(a.id.cmp(&b.id))
}

/// The next token.
///
/// `logits` has one value per token of the vocabulary. `history` holds the ids so far, prompt included, for the repeat
/// penalty. `position` is where the chosen token will stand, counted from the session's first token: the same position
/// of the same answer always draws the same random number.
///
/// # Errors
/// [`SampleError`], by name: impossible parameters, or a logit that is NaN or infinite.
pub fn sample(logits: &[f32], params: &Params, history: &[u32], position: u32) -> Result<u32, SampleError> {
    params.check()?;
    let mut candidates = finite_candidates(logits)?;
    penalise(&mut candidates, params, history);
    if params.temperature == 0.0 {
        return candidates.iter().min_by(|a, b| by_rank(a, b)).map(|c| c.id).ok_or(SampleError::Empty);
    }
    keep_top_k(&mut candidates, params.top_k);
    keep_top_p(&mut candidates, params.top_p);
    keep_min_p(&mut candidates, params.min_p);
    draw(&candidates, params.temperature, uniform(params.seed, position))
}

/// The `n` likeliest tokens and their log-probabilities (natural logarithm, temperature 1), likeliest first.
///
/// # Errors
/// [`SampleError::NotFinite`] as in [`sample`].
pub fn top_log_probs(logits: &[f32], n: usize) -> Result<Vec<(u32, f32)>, SampleError> {
    let mut candidates = finite_candidates(logits)?;
    let log_z = log_sum_exp(logits);
    keep_top_k(&mut candidates, u32::try_from(n).unwrap_or(u32::MAX).max(1));
    candidates.truncate(n);
    Ok(candidates.into_iter().map(|c| (c.id, c.logit - log_z)).collect())
}

/// ln Σ exp(logit), with the sum in the order of every float sum, [`order::sum`].
pub fn log_sum_exp(logits: &[f32]) -> f32 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = logits.iter().map(|&logit| weight(logit, best, 1.0)).collect();
    best + math::ln(order::sum(&weights))
}

fn finite_candidates(logits: &[f32]) -> Result<Vec<Candidate>, SampleError> {
    if let Some((id, &value)) = (0..).zip(logits).find(|(_, logit)| !logit.is_finite()) {
        return Err(SampleError::NotFinite { id, value });
    }
    if logits.is_empty() {
        return Err(SampleError::Empty);
    }
    Ok((0..).zip(logits).map(|(id, &logit)| Candidate { id, logit }).collect())
}

/// Each recent id once, however often it occurs.
fn penalise(candidates: &mut [Candidate], params: &Params, history: &[u32]) {
    if params.repeat_penalty == 1.0 {
        return;
    }
    let mut recent = history[history.len().saturating_sub(params.repeat_last_n as usize)..].to_vec();
    recent.sort_unstable();
    recent.dedup();
    for id in recent {
        // Candidates still stand at their ids; an id over the vocabulary has no logit to change.
        if let Some(c) = candidates.get_mut(id as usize) {
            c.logit = if c.logit > 0.0 { c.logit / params.repeat_penalty } else { c.logit * params.repeat_penalty };
        }
    }
}

/// Keeps the k likeliest, in rank order. `k` = 0 keeps all, in order of id.
fn keep_top_k(candidates: &mut Vec<Candidate>, k: u32) {
    let k = k as usize;
    if k == 0 {
        return;
    }
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, by_rank);
        candidates.truncate(k);
    }
    candidates.sort_unstable_by(by_rank);
}

/// Keeps the shortest run of likeliest tokens whose probability is at least `top_p`; always at least one.
fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f32) {
    if top_p >= 1.0 {
        return;
    }
    let best = best_logit(candidates);
    let weights: Vec<f32> = candidates.iter().map(|c| weight(c.logit, best, 1.0)).collect();
    let enough = f64::from(top_p) * f64::from(order::sum(&weights));
    // A nucleus is short: ranking 64 candidates, then 1024, … avoids sorting a vocabulary of 262,144.
    let mut n_ranked = 0;
    let mut sum = 0.0_f64;
    while n_ranked < candidates.len() {
        let until = if n_ranked == 0 { 64 } else { n_ranked * 16 }.min(candidates.len());
        rank_until(candidates, n_ranked, until);
        for i in n_ranked..until {
            sum += f64::from(weight(candidates[i].logit, best, 1.0));
            if sum >= enough {
                candidates.truncate(i + 1);
                return;
            }
        }
        n_ranked = until;
    }
}

/// Brings ranks `from..until` to their places; ranks before `from` are there already.
fn rank_until(candidates: &mut [Candidate], from: usize, until: usize) {
    let rest = &mut candidates[from..];
    let n = until - from;
    if n < rest.len() {
        rest.select_nth_unstable_by(n - 1, by_rank);
    }
    rest[..n].sort_unstable_by(by_rank);
}

/// Keeps tokens whose probability is at least `min_p` of the best one's; the order stays.
fn keep_min_p(candidates: &mut Vec<Candidate>, min_p: f32) {
    if min_p == 0.0 {
        return;
    }
    let best = best_logit(candidates);
    candidates.retain(|c| weight(c.logit, best, 1.0) >= min_p);
}

/// Walks the candidates until their weights pass `u` of the whole. A walk that rounding leaves short of it ends at the
/// best candidate, never at a random unlikely one.
fn draw(candidates: &[Candidate], temperature: f32, u: f64) -> Result<u32, SampleError> {
    let best = best_logit(candidates);
    let weights: Vec<f32> = candidates.iter().map(|c| weight(c.logit, best, temperature)).collect();
    let target = u * f64::from(order::sum(&weights));
    let mut sum = 0.0_f64;
    for (c, &weight) in candidates.iter().zip(&weights) {
        sum += f64::from(weight);
        if sum > target {
            return Ok(c.id);
        }
    }
    candidates.iter().min_by(|a, b| by_rank(a, b)).map(|c| c.id).ok_or(SampleError::Empty)
}

fn best_logit(candidates: &[Candidate]) -> f32 {
    candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
}

/// exp((logit − best) / temperature), in [0, 1]. Under −104 it is 0 in f32; the clamp keeps a tiny temperature from
/// making −∞.
fn weight(logit: f32, best: f32, temperature: f32) -> f32 {
    math::exp(((logit - best) / temperature).max(-104.0))
}

/// The random number of one position of one answer, uniform in [0, 1) with 53 bits.
///
/// Counter-based: SplitMix64's output function (Steele, Lea, Flood 2014) over the seed, then over the position. Two rounds,
/// because neighbouring seeds and neighbouring positions must not meet on one line of the same sequence.
pub fn uniform(seed: u64, position: u32) -> f64 {
    let bits = mix(mix(seed).wrapping_add(u64::from(position)));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// SplitMix64's step and output function.
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
