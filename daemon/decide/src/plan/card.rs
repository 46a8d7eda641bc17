//! What one choice of knobs costs on a card, in the order in which it is allocated: context, dense weights, keys and
//! values, the reserve; the expert cache gets the rest.
//!
//! Everything is decided on the card's free bytes. The list of programs only says whose the others are: it may be empty
//! in a container, or lack bytes, and then they are `unattributed`.

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, thousands};

use super::load::{Choice, Inputs, Reserve};
use super::machine::{CardReading, RequestStart};
use super::model::ModelSizes;
use super::placement::{Part, by_gain_per_byte, take_parts};
use super::wish::{Draft, Images, Policy};
use super::{Cause, Shortfall};
use crate::ledger::{Account, AccountId, Basis, Bounds, Entry, Object};

/// A card under a choice.
#[derive(Debug)]
pub(super) struct CardLoad {
    pub(super) index: u32,
    pub(super) account: Account,
    /// Whether anything of ours is on it.
    pub(super) is_used: bool,
    /// Layers on it, in order.
    pub(super) layers: Vec<u32>,
    /// Whether the output matrix is.
    pub(super) has_output: bool,
    /// Whether the model reads images, there or elsewhere.
    pub(super) has_images: bool,
    /// Whether it drafts.
    pub(super) has_draft_head: bool,
    /// Experts on it.
    pub(super) n_cached: u64,
    pub(super) reserve: Bytes,
    /// What the reserve's later allocations need of it.
    pub(super) reserve_parts: Bytes,
    /// What is left of the start test, or missing when negative. 0 where nothing is tested.
    pub(super) margin_bytes: i128,
    pub(super) shortfall: Option<Shortfall>,
}

/// The reserve that would have kept the line: what it was, and what was missing at a request's start, up to the next 64
/// MiB. One that kept it stays.
pub fn suggested_reserve(seen: RequestStart) -> Bytes {
    match limits::VRAM_LINE_FREE.saturating_sub(seen.lowest_free) {
        Bytes::ZERO => seen.reserve,
        missing => next_step(seen.reserve.saturating_add(missing)),
    }
}

fn next_step(reserve: Bytes) -> Bytes {
    let step = limits::RESERVE_STEP.0;
    Bytes(reserve.0.div_ceil(step).saturating_mul(step))
}

/// What is allocated after the expert cache is sized. What the model lacks is not there.
fn reserve_parts(inputs: Inputs<'_>, gpu: &CardReading, draft: Draft) -> Vec<(Object, Bytes)> {
    let model = inputs.model;
    let mut parts = Vec::new();
    if let Some(speculation) = model.speculation {
        parts.push((Object::VerifyArena, speculation.verify_arena));
        parts.push((Object::DraftHead, draft_head(model, draft)));
    }
    parts.push((Object::PromptPath, inputs.estimated(AccountId::Vram(gpu.index), Object::PromptPath)));
    parts.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    parts
}

fn draft_head(model: &ModelSizes, draft: Draft) -> Bytes {
    model.speculation.map_or(Bytes::ZERO, |speculation| match draft {
        Draft::Full => speculation.draft_head,
        Draft::Small => speculation.small_draft_head.unwrap_or(speculation.draft_head),
    })
}

/// What stays free of the card when the expert cache is sized.
#[derive(Debug)]
struct Kept {
    reserve: Bytes,
    /// What is allocated of it later, in that order.
    parts: Vec<(Object, Bytes)>,
}

impl Kept {
    fn new(inputs: Inputs<'_>, choice: &Choice, gpu: &CardReading) -> Kept {
        let parts = reserve_parts(inputs, gpu, choice.draft);
        let mut kept = Kept { reserve: Bytes::ZERO, parts };
        kept.reserve = reserve(choice, gpu, kept.needed());
        kept
    }

    fn needed(&self) -> Bytes {
        self.parts.iter().map(|(_, bytes)| *bytes).sum()
    }
}

/// The reserve of a choice.
fn reserve(choice: &Choice, gpu: &CardReading, parts: Bytes) -> Bytes {
    let ample = match gpu.request_start {
        Some(seen) => suggested_reserve(seen),
        None => next_step(parts.saturating_add(limits::VRAM_LINE_FREE)),
    };
    match choice.reserve {
        Reserve::Exactly(bytes) => bytes,
        Reserve::Ample => ample,
        Reserve::Tight => {
            let tight = ample.saturating_sub(Bytes(limits::VRAM_LINE_FREE.0 - limits::VRAM_SLACK_LOW.0));
            // One that was too small once is not tried again.
            let was_short = gpu.request_start.filter(|seen| seen.lowest_free < limits::VRAM_LINE_FREE);
            was_short.map_or(tight, |seen| tight.max(next_step(seen.reserve.saturating_add(Bytes(1)))).min(ample))
        }
    }
}

/// A card that we leave alone.
pub(super) fn idle(gpu: &CardReading) -> Account {
    let line = gpu.total.saturating_sub(limits::VRAM_LINE_FREE);
    account(gpu, line, others(gpu))
}

fn account(gpu: &CardReading, line: Bytes, entries: Vec<Entry>) -> Account {
    Account {
        id: AccountId::Vram(gpu.index),
        title: gpu.name.clone(),
        bounds: Some(Bounds { limit: gpu.total, line }),
        entries,
        asked_beside: Bytes::ZERO,
    }
}

/// Everybody else's bytes. Together they are what is in use, whatever the lists say: a list that says more is cut.
fn others(gpu: &CardReading) -> Vec<Entry> {
    let mut left = gpu.total.saturating_sub(gpu.free);
    let mut entries = Vec::new();
    let mut push = |object, bytes: Bytes, detail: String| {
        let bytes = bytes.min(left);
        left = left.saturating_sub(bytes);
        if bytes > Bytes::ZERO {
            entries.push(Entry { object, bytes, basis: Basis::Measured, detail });
        }
    };
    push(Object::DriverReserved, gpu.driver_reserved.unwrap_or_default(), String::new());
    let mut programs: Vec<_> = gpu.programs.iter().collect();
    programs.sort_by_key(|user| (std::cmp::Reverse(user.program.bytes), user.program.pid));
    for user in programs {
        let desktop = if user.is_desktop { ", desktop" } else { "" };
        push(Object::Foreign, user.program.bytes, format!("{} (pid {}){desktop}", user.program.name, user.program.pid));
    }
    push(Object::Unattributed, gpu.total, "in use, of no known holder".to_owned());
    entries
}

/// What a choice costs on a card; `kv_layers` are the keys and values that it holds of each layer.
pub(super) fn load(inputs: Inputs<'_>, choice: &Choice, gpu: &CardReading, kv_layers: &[Bytes]) -> CardLoad {
    let kept = Kept::new(inputs, choice, gpu);
    match (inputs.row.len(), choice.gpu_layers) {
        (0, _) => layers_by_gain(inputs, choice, gpu, kv_layers, &kept),
        (_, Setting::Exactly(0)) => unused(inputs, gpu, &kept),
        (_, Setting::Exactly(_) | Setting::Auto) => expert_cache(inputs, choice, gpu, kv_layers, &kept),
    }
}

/// A card with nothing of ours on it.
fn unused(inputs: Inputs<'_>, gpu: &CardReading, kept: &Kept) -> CardLoad {
    CardLoad {
        index: gpu.index,
        account: idle(gpu),
        is_used: false,
        layers: Vec::new(),
        has_output: false,
        has_images: inputs.model.image_encoder.is_some(),
        has_draft_head: inputs.model.speculation.is_some(),
        n_cached: 0,
        reserve: kept.reserve,
        reserve_parts: kept.needed(),
        margin_bytes: 0,
        shortfall: None,
    }
}

/// A model with experts: every dense weight is on the card, and the cache gets what the reserve leaves.
fn expert_cache(inputs: Inputs<'_>, choice: &Choice, gpu: &CardReading, kv_layers: &[Bytes], kept: &Kept) -> CardLoad {
    let model = inputs.model;
    let layers = model.layers.iter().map(|layer| layer.dense);
    let dense: Bytes = layers.chain([model.output, images(model, choice)]).sum();
    let kv: Bytes = kv_layers.iter().copied().sum();
    let reserve = kept.reserve;
    let head = draft_head(model, choice.draft);
    let signed = |bytes: Bytes| i128::from(bytes.0);
    let free_bytes = signed(gpu.free) - signed(context(inputs, gpu)) - signed(dense) - signed(kv);
    let start_bytes = free_bytes - signed(reserve) - signed(head);
    let (n_slots, floor) = match choice.policy {
        Policy::Strict | Policy::Wait => model.cache_floor(),
        Policy::Adapt => (1, model.largest_expert()),
    };
    let missing = signed(floor) - start_bytes;

    let mut entries = ours(context(inputs, gpu), (dense, String::new()), kv, choice.kv_detail(inputs.wish.kv_sharing));
    let (in_reserve, slack) = reserve_entries(kept);
    entries.extend(in_reserve);
    let kept_free = slack.min(limits::VRAM_LINE_FREE).min(gpu.total);
    let mut account = account(gpu, gpu.total.saturating_sub(kept_free), Vec::new());
    let (mut n_cached, mut shortfall) = (0, None);
    let (bytes, detail) = if missing <= 0 {
        let room = Bytes(u64::try_from(free_bytes - signed(reserve)).unwrap_or(0));
        n_cached = inputs.row.fill(0, inputs.machine.caps.expert_cache.map_or(room, |cap| room.min(cap)));
        (inputs.row.stretch(0, n_cached), format!("{} experts", thousands(n_cached)))
    } else {
        let bytes = Bytes(u64::try_from(missing).unwrap_or(u64::MAX));
        let is_reserve_written = matches!(inputs.wish.reserve, Setting::Exactly(_));
        let cause = Cause::UnderFloor {
            free_bytes,
            reserve,
            is_reserve_written,
            draft_head: head,
            n_fit: inputs.row.fill(0, Bytes(u64::try_from(start_bytes).unwrap_or(0))),
            n_slots,
            floor,
        };
        shortfall = Some(Shortfall { account: account.id, bytes, cause });
        account.asked_beside = head.saturating_add(slack.saturating_sub(kept_free));
        (floor, format!("at least {} experts", thousands(n_slots)))
    };
    entries.push(Entry { object: Object::ExpertCache, bytes, basis: Basis::Planned, detail });
    entries.extend(others(gpu));
    account.entries = entries;
    let layers = (0..model.layers.len() as u32).collect();
    CardLoad {
        account,
        is_used: true,
        layers,
        has_output: true,
        n_cached,
        margin_bytes: -missing,
        shortfall,
        ..unused(inputs, gpu, kept)
    }
}

/// A dense model: the layers that save the most time for their bytes, as many as fit beside the reserve.
fn layers_by_gain(
    inputs: Inputs<'_>,
    choice: &Choice,
    gpu: &CardReading,
    kv_layers: &[Bytes],
    kept: &Kept,
) -> CardLoad {
    let images = images(inputs.model, choice);
    let fixed = [context(inputs, gpu), kept.reserve, images].into_iter().sum();
    let row = by_gain_per_byte(candidates(inputs.model, gpu, kv_layers));
    let mut margin_bytes = 0;
    let (taken, shortfall) = match choice.gpu_layers {
        Setting::Auto => {
            // Where the gain was measured and there is none, the CPU keeps it.
            let row: Vec<Part> = row.into_iter().filter(|part| part.gain_ns > 0).collect();
            let mut taken = gpu.free.checked_sub(fixed).map_or_else(Vec::new, |room| take_parts(&row, room));
            let (mut n_layers, most) = (0, inputs.machine.caps.gpu_layers.unwrap_or(u32::MAX));
            taken.retain(|part| {
                n_layers += u32::from(part.layer.is_some());
                part.layer.is_none() || n_layers <= most
            });
            (taken, None)
        }
        Setting::Exactly(n_layers) => {
            let asked: Vec<Part> =
                row.into_iter().filter(|part| part.layer.is_some()).take(n_layers as usize).collect();
            let needed = asked.iter().map(|part| part.bytes).sum::<Bytes>().saturating_add(fixed);
            let missing = needed.saturating_sub(gpu.free);
            margin_bytes = i128::from(gpu.free.0) - i128::from(needed.0);
            let cause = Cause::GpuLayers { n_layers, needed, free: gpu.free };
            let short = Shortfall { account: AccountId::Vram(gpu.index), bytes: missing, cause };
            let is_short = missing > Bytes::ZERO && n_layers > 0;
            (asked, is_short.then_some(short))
        }
    };
    if taken.is_empty() {
        return unused(inputs, gpu, kept); // without a layer on it the card needs no context either
    }
    let mut layers: Vec<u32> = taken.iter().filter_map(|part| part.layer).collect();
    layers.sort_unstable();
    let has_output = taken.iter().any(|part| part.layer.is_none());
    let output = if has_output { inputs.model.output } else { Bytes::ZERO };
    let of_layer = |layer: &u32| inputs.model.layers[*layer as usize].dense;
    let dense = layers.iter().map(of_layer).chain([output, images]).sum();
    let kv = layers.iter().map(|layer| kv_layers[*layer as usize]).sum();

    let detail = format!("{} of {} layers", layers.len(), inputs.model.layers.len());
    let detail = if has_output { format!("{detail} and the output") } else { detail };
    let mut entries = ours(context(inputs, gpu), (dense, detail), kv, choice.kv_detail(inputs.wish.kv_sharing));
    let (in_reserve, slack) = reserve_entries(kept);
    entries.extend(in_reserve);
    entries.extend(others(gpu));
    let kept_free = slack.min(limits::VRAM_LINE_FREE).min(gpu.total);
    let mut account = account(gpu, gpu.total.saturating_sub(kept_free), entries);
    if shortfall.is_some() {
        account.asked_beside = slack.saturating_sub(kept_free);
    }
    CardLoad { account, is_used: true, layers, has_output, margin_bytes, shortfall, ..unused(inputs, gpu, kept) }
}

/// What a card may hold of a dense model.
fn candidates(model: &ModelSizes, gpu: &CardReading, kv_layers: &[Bytes]) -> Vec<Part> {
    let gain = |place: usize, bytes: Bytes| match gpu.layer_gains_ns.is_empty() {
        true => bytes.0,
        false => gpu.layer_gains_ns.get(place).copied().unwrap_or(0),
    };
    let sizes = model.layers.iter().zip(kv_layers).map(|(layer, kv)| layer.dense.saturating_add(*kv));
    let mut parts: Vec<Part> = (0..)
        .zip(sizes)
        .map(|(layer, bytes)| Part { layer: Some(layer), bytes, gain_ns: gain(layer as usize, bytes) })
        .collect();
    if model.output > Bytes::ZERO {
        parts.push(Part { layer: None, bytes: model.output, gain_ns: gain(model.layers.len(), model.output) });
    }
    parts
}

/// The first three objects, as they are allocated: context, dense weights, keys and values.
fn ours(context: Bytes, (dense, dense_detail): (Bytes, String), kv: Bytes, kv_detail: String) -> Vec<Entry> {
    let entry = |object, bytes, basis, detail| Entry { object, bytes, basis, detail };
    let mut entries = vec![
        entry(Object::Context, context, Basis::Estimated, "the driver's, for one process".to_owned()),
        entry(Object::DenseWeights, dense, Basis::Planned, dense_detail),
        entry(Object::Kv, kv, Basis::Planned, kv_detail),
    ];
    entries.retain(|entry| entry.bytes > Bytes::ZERO);
    entries
}

/// What the driver's context takes.
fn context(inputs: Inputs<'_>, gpu: &CardReading) -> Bytes {
    inputs.estimated(AccountId::Vram(gpu.index), Object::Context)
}

/// The image encoder's bytes on the card.
fn images(model: &ModelSizes, choice: &Choice) -> Bytes {
    model.image_encoder.filter(|_| choice.images == Images::Card).unwrap_or_default()
}

/// The reserve's objects, and the slack. A reserve that is too small for what comes later is used up in the order of
/// allocation; the plan says by how much it is too small.
fn reserve_entries(kept: &Kept) -> (Vec<Entry>, Bytes) {
    let mut left = kept.reserve;
    let mut entries = Vec::new();
    for (object, bytes) in &kept.parts {
        let bytes = left.min(*bytes);
        left = left.saturating_sub(bytes);
        let basis = if *object == Object::PromptPath { Basis::Estimated } else { Basis::Planned };
        entries.push(Entry { object: *object, bytes, basis, detail: String::new() });
    }
    entries.push(Entry { object: Object::Slack, bytes: left, basis: Basis::Planned, detail: "kept free".to_owned() });
    entries.retain(|entry| entry.bytes > Bytes::ZERO);
    (entries, left)
}
