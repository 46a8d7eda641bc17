//! Which experts and which layers lie where.
//!
//! Experts are one row, the most used first; the card takes a prefix of it, host memory the next stretch, the file keeps
//! the rest. A prefix that ends at the first expert that does not fit leaves less than one expert unused, and a larger
//! budget never means fewer experts, which filling the gap with smaller ones would not promise.

use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

use super::machine::Profile;
use super::model::ModelSizes;

/// All experts of a model in the order in which they are placed, as running sums.
#[derive(Debug)]
pub(super) struct ExpertRow {
    /// Bytes of the first `n` experts, at place `n`.
    bytes: Vec<u64>,
    /// Bytes × uses of the first `n` experts.
    used_bytes: Vec<u128>,
    /// Tokens that the profile has seen × its layers with experts.
    layer_uses: u128,
    top_k: u64,
    per_layer: u64,
    n_layers: u64,
}

/// Bytes of a stretch of the row that one token uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uses {
    /// Every expert is used as often as any other.
    Uniform,
    /// As in the profile, where there is one.
    Profiled,
}

impl ExpertRow {
    pub(super) fn new(model: &ModelSizes, profile: Option<&Profile>) -> ExpertRow {
        let layers: Vec<(usize, Bytes)> = model.expert_layers().collect();
        let n_layers = layers.len() as u64;
        let bound = limits::MAX_RANKED_EXPERTS / n_layers.max(1);
        let (per_layer, top_k) =
            model.experts.map_or((0, 0), |experts| (u64::from(experts.per_layer).min(bound), u64::from(experts.top_k)));
        let mut row = ExpertRow { bytes: vec![0], used_bytes: vec![0], layer_uses: 0, top_k, per_layer, n_layers };
        let mut left = vec![per_layer; layers.len()];
        let ranked = profile.map_or(&[][..], |profile| &profile.ranked);
        for expert in ranked {
            // A profile of another model, or a damaged one, may name what is not there: it is left out.
            let Ok(at) = layers.binary_search_by_key(&(expert.layer as usize), |(place, _)| *place) else { continue };
            if left[at] > 0 {
                left[at] -= 1;
                row.push(layers[at].1, u64::from(expert.uses));
            }
        }
        for round in (0..per_layer).rev() {
            for (at, (_, bytes)) in layers.iter().enumerate() {
                if left[at] > round {
                    row.push(*bytes, 0);
                }
            }
        }
        row
    }

    fn push(&mut self, bytes: Bytes, uses: u64) {
        let total = self.bytes.last().copied().unwrap_or(0);
        self.bytes.push(total.saturating_add(bytes.0));
        let used = self.used_bytes.last().copied().unwrap_or(0);
        self.used_bytes.push(used.saturating_add(u128::from(bytes.0) * u128::from(uses)));
        self.layer_uses += u128::from(uses);
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64 - 1
    }

    pub(super) fn has_profile(&self) -> bool {
        self.layer_uses > 0
    }

    /// How many experts fit into `budget`, from place `from` on.
    pub(super) fn fill(&self, from: u64, budget: Bytes) -> u64 {
        let end = self.bytes[from as usize].saturating_add(budget.0);
        self.bytes.partition_point(|sum| *sum <= end) as u64 - 1 - from
    }

    /// Bytes of the experts from one place up to another.
    pub(super) fn stretch(&self, from: u64, to: u64) -> Bytes {
        Bytes(self.bytes[to as usize] - self.bytes[from as usize])
    }

    /// Bytes of that stretch that one token uses, on average.
    pub(super) fn bytes_per_token(&self, from: u64, to: u64, uses: Uses) -> Bytes {
        let (bytes, all) = match uses {
            Uses::Profiled if self.has_profile() => {
                let used = self.used_bytes[to as usize] - self.used_bytes[from as usize];
                let per_token = u128::from(self.top_k) * u128::from(self.n_layers);
                (used.saturating_mul(per_token), self.layer_uses)
            }
            Uses::Profiled | Uses::Uniform => {
                (u128::from(self.stretch(from, to).0) * u128::from(self.top_k), u128::from(self.per_layer))
            }
        };
        Bytes(u64::try_from(bytes / all.max(1)).unwrap_or(u64::MAX))
    }

    /// How often an expert of that stretch is used, in thousandths of all uses; `None` without a profile.
    pub(super) fn uses_permille(&self, from: u64, to: u64) -> Option<u64> {
        let per_token = self.bytes_per_token(0, self.len(), Uses::Profiled).0;
        let here = self.bytes_per_token(from, to, Uses::Profiled).0;
        (self.has_profile() && per_token > 0).then(|| (u128::from(here) * 1000 / u128::from(per_token)) as u64)
    }
}

/// A part of a dense model that a card may hold: a layer with its keys and values, or the output matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The layer; `None`: the output matrix.
    pub(super) layer: Option<u32>,
    /// What it takes of the card.
    pub(super) bytes: Bytes,
    /// What a token saves when it is there.
    pub(super) gain_ns: u64,
}

/// The parts in the order in which a card takes them: time saved per byte, the first layer first among equals.
pub(super) fn by_gain_per_byte(mut parts: Vec<Part>) -> Vec<Part> {
    // a's gain ÷ a's bytes against b's, both × both bytes. A part of nothing counts as one byte: 0 ÷ 0 has no order.
    let worth = |a: &Part, b: &Part| u128::from(a.gain_ns) * u128::from(b.bytes.0.max(1));
    parts.sort_by(|a, b| worth(b, a).cmp(&worth(a, b)));
    parts
}

/// Those that fit, in their order; one that does not fit is passed over for smaller ones behind it. In that order a larger
/// budget never saves less time: where two budgets part, the smaller one has less room left than the part that it passes.
pub(super) fn take_parts(parts: &[Part], budget: Bytes) -> Vec<Part> {
    let mut left = budget;
    let mut taken = Vec::new();
    for part in parts {
        if let Some(rest) = left.checked_sub(part.bytes) {
            left = rest;
            taken.push(*part);
        }
    }
    taken
}
