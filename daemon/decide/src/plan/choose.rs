//! Which card is used: each is planned for by itself, and the best plan is taken.
//!
//! A card's free bytes alone do not say it: its context, its reserve and the gains of its layers are its own. Because every
//! card is tried, more room on one of them never makes the plan worse.

use std::cmp::Reverse;

use plimsoll_config::units::Bytes;

use super::ladder;
use super::load::{Inputs, Load};
use super::offers::Change;

/// The plan of one card, or of none.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    pub(super) inputs: Inputs<'a>,
    pub(super) last: Load,
    pub(super) given_up: Vec<Change>,
}

/// The best outcome over all cards; without a card that of the host alone. `None` if the model's keys and values can't be
/// stored in that type.
pub(super) fn choose(inputs: Inputs<'_>) -> Option<Outcome<'_>> {
    let cards = inputs.machine.gpus.iter().map(|gpu| Some(gpu.index));
    let none = inputs.machine.gpus.is_empty().then_some(None);
    let outcomes = cards.chain(none).filter_map(|card| {
        let inputs = Inputs { card, ..inputs };
        ladder::settle(inputs).map(|(last, given_up)| Outcome { inputs, last, given_up })
    });
    outcomes.max_by_key(Outcome::worth)
}

/// How good an outcome is, what counts most first: that it fits; of refusals, the card's free bytes, so that an offer taken
/// leads to the same card; how little of each lever was given up, the dearest first; experts read from the file and experts
/// on the card; time that layers on the card save; free bytes; and the lower index.
type Worth = (bool, Bytes, Reverse<[u64; 6]>, Reverse<u64>, u64, u64, Bytes, Reverse<Option<u32>>);

impl Outcome<'_> {
    fn worth(&self) -> Worth {
        let (n_file_only, n_cached) =
            self.last.placement.experts.map_or((0, 0), |experts| (experts.n_file_only, experts.n_cached));
        let free = self.inputs.gpu().map_or(Bytes::ZERO, |gpu| gpu.free);
        (
            self.last.fits(),
            if self.last.fits() { Bytes::ZERO } else { free },
            Reverse(given_up(&self.given_up)),
            Reverse(n_file_only),
            n_cached,
            self.saved_ns(),
            free,
            Reverse(self.inputs.card),
        )
    }

    /// Time of a token that the layers on the card save; where it was not measured, their bytes stand for it.
    fn saved_ns(&self) -> u64 {
        let (Some(gpu), placement) = (self.inputs.gpu(), &self.last.placement) else { return 0 };
        let layers = &self.inputs.model.layers;
        let of = |place: usize, bytes: Bytes| match gpu.layer_gains_ns.is_empty() {
            true => bytes.0,
            false => gpu.layer_gains_ns.get(place).copied().unwrap_or(0),
        };
        let of_layer = |layer: &u32| of(*layer as usize, layers[*layer as usize].dense);
        let output = if placement.output_on_gpu { of(layers.len(), self.inputs.model.output) } else { 0 };
        placement.gpu_layers.iter().map(of_layer).fold(output, u64::saturating_add)
    }
}

/// How far each lever of the ladder was moved, the dearest first.
fn given_up(changes: &[Change]) -> [u64; 6] {
    let mut moved = [0; 6];
    for change in changes {
        let (place, by) = match change {
            Change::ResidentBudget { from, to } => (0, from.0.saturating_sub(to.0)),
            Change::Draft { .. } => (1, 1),
            Change::Images { .. } => (2, 1),
            Change::Reserve { .. } => (3, 1),
            Change::Context { from, to } => (4, u64::from(from.0.saturating_sub(to.0))),
            Change::KvWindow { from, to } => (5, u64::from(from.0.saturating_sub(to.0))),
            // The ladder has no such lever: these are offers to a person.
            Change::CloseProgram { .. }
            | Change::Sessions { .. }
            | Change::KvType { .. }
            | Change::GpuLayers { .. } => continue,
        };
        moved[place] = by;
    }
    moved
}
