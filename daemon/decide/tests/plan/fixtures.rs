//! Models and machines that several tests use.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::plan::{
    CardReading, Change, DiskReading, Draft, Experts, GpuProgram, KvLayer, KvSharing, LayerSizes, MachineReading, Mode,
    ModelSizes, Offer, Plan, Policy, Profile, Program, RankedExpert, Refusal, Shortage, Speculation, Wish, plan,
};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn mib(n: u64) -> Bytes {
    Bytes(n * MIB)
}

pub(crate) fn gib(n: u64) -> Bytes {
    Bytes(n * GIB)
}

/// A layer of so many KV heads × dimensions, as each type stores a token of it: keys and values.
pub(crate) fn kv_layer(n_kv_heads: u64, head_dim: u64, window: Option<u32>) -> KvLayer {
    let n_elements = 2 * n_kv_heads * head_dim;
    let blocks = |block_bytes: u64| head_dim.is_multiple_of(32).then(|| Bytes(n_elements / 32 * block_bytes));
    KvLayer { f16: Bytes(2 * n_elements), q8_0: blocks(34), q4_0: blocks(18), window: window.map(Tokens) }
}

/// A layer of a dense model.
pub(crate) fn layer(dense: Bytes, kv: KvLayer) -> LayerSizes {
    LayerSizes { dense, kv, expert: None }
}

/// 32 layers without shared KV heads, as a 7-billion-parameter model of the first kind has them: 4 GiB.
pub(crate) fn dense_7b() -> ModelSizes {
    ModelSizes {
        file_bytes: gib(4),
        dense_weights: gib(4),
        token_embedding: mib(128),
        output: mib(128),
        layers: vec![layer(mib(120), kv_layer(32, 128, None)); 32],
        experts: None,
        n_ctx_train: Tokens(32_768),
        activations: mib(200),
        prompt_path: mib(100),
        image_encoder: None,
        speculation: None,
    }
}

/// A machine without a card.
pub(crate) fn machine(limit_gib: u64, foreign_mib: u64) -> MachineReading {
    MachineReading { host_limit: gib(limit_gib), host_foreign: mib(foreign_mib), ..MachineReading::default() }
}

/// What today's configuration without a line in it says.
pub(crate) fn wish() -> Wish {
    Wish { max_sessions: 1, ..Wish::from(&plimsoll_config::config::Config::default()) }
}

pub(crate) fn program(pid: u32, name: &str, bytes: Bytes) -> Program {
    Program { pid, name: name.to_owned(), user: "alice".to_owned(), bytes }
}

pub(crate) fn shortage(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Shortage {
    match plan(model, machine, wish) {
        Err(Refusal::DoesNotFit(shortage)) => *shortage,
        other => panic!("not a shortage: {other:?}"),
    }
}

pub(crate) fn fits(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Plan {
    plan(model, machine, wish).unwrap_or_else(|refusal| panic!("does not fit: {refusal:?}"))
}

/// (change, MiB freed, enough alone) of every offer.
pub(crate) fn listed(offers: &[Offer]) -> Vec<(Change, u64, bool)> {
    offers.iter().map(|offer| (offer.change.clone(), offer.frees.mib_rounded_down(), offer.is_enough)).collect()
}

// ---- the 12 GiB workstation -------------------------------------------------------------------------------------------

/// Experts of a layer; 48 layers of them are 46.84 GiB.
pub(crate) const EXPERTS_PER_LAYER: u32 = 508;

/// 2.54 MiB, in five layers of 48; with the others 1.97 MiB on average.
pub(crate) const LARGE_EXPERT: Bytes = Bytes(2_659_713);
const SMALL_EXPERT: Bytes = Bytes(1_993_061);

/// The model of the workstation: 46.84 GiB of experts, 5.29 GiB of dense weights for the card and 0.42 beside them,
/// 131,072 tokens of keys and values in 595 MiB as q8_0.
pub(crate) fn workstation_model() -> ModelSizes {
    // 4,760 bytes a token in all layers, and 2,520 as q4_0.
    let kv = |place: u64| KvLayer {
        f16: Bytes(187),
        q8_0: Some(Bytes(if place < 8 { 100 } else { 99 })),
        q4_0: Some(Bytes(52 + place % 2)),
        window: None,
    };
    let layer = |place: u64| LayerSizes {
        dense: mib(100),
        kv: kv(place),
        expert: Some(if place.is_multiple_of(10) { LARGE_EXPERT } else { SMALL_EXPERT }),
    };
    ModelSizes {
        file_bytes: Bytes(52 * GIB + GIB / 2),
        dense_weights: mib(48 * 100 + 617 + 430),
        token_embedding: mib(430),
        output: mib(617),
        layers: (0..48).map(layer).collect(),
        experts: Some(Experts { per_layer: EXPERTS_PER_LAYER, top_k: 10, loan_slots: 262 }),
        n_ctx_train: Tokens(262_144),
        activations: mib(96),
        prompt_path: mib(226),
        image_encoder: None,
        speculation: Some(Speculation {
            verify_arena: mib(74),
            draft_head: mib(86),
            small_draft_head: Some(Bytes::ZERO), // it reads rows of the model's own head
        }),
    }
}

/// The card, with so many bytes free beside the model's dense weights, its keys and values and the driver's context, and a
/// desktop on it.
pub(crate) fn workstation_card(model: &ModelSizes, free: Bytes) -> CardReading {
    let dense: Bytes = model.layers.iter().map(|layer| layer.dense).chain([model.output]).sum();
    let kv = model.kv_bytes(KvType::Q8_0, Tokens(131_072)).expect("whole blocks");
    let context = mib(287);
    CardReading {
        index: 0,
        name: "RTX 4070".to_owned(),
        total: mib(12_282),
        free: [free, dense, kv, context].into_iter().sum(),
        context,
        driver_reserved: None,
        programs: desktop(),
        bytes_per_second: Some(Bytes(504_000_000_000)),
        request_start: None,
        layer_gains_ns: Vec::new(),
    }
}

/// The desktop of the stored baseline: 2,367 MiB.
pub(crate) fn desktop() -> Vec<GpuProgram> {
    let programs = [
        ("gnome-shell", 587),
        ("chat", 573),
        ("chromium", 430),
        ("nautilus", 139),
        ("resources", 73),
        ("ptyxis", 71),
        ("chromium", 4),
    ];
    (1000..)
        .zip(programs)
        .map(|(pid, (name, n_mib))| GpuProgram { program: program(pid, name, mib(n_mib)), is_desktop: true })
        .collect()
}

/// The workstation with 62 GiB of memory, 10.1 of them foreign, and one card.
pub(crate) fn workstation(gpu: CardReading) -> MachineReading {
    MachineReading {
        host_limit: gib(62),
        host_foreign: mib(10_342),
        host_bytes_per_second: Some(Bytes(60_000_000_000)),
        disk: Some(DiskReading {
            title: "/models on nvme0n1 · 3.1 GB/s direct (measured)".to_owned(),
            bytes_per_second: Bytes(3_100_000_000),
        }),
        gpus: vec![gpu],
        ..MachineReading::default()
    }
}

/// What its owner wrote: everything but the reserve.
pub(crate) fn workstation_wish(reserve_mib: u64) -> Wish {
    Wish {
        context: Setting::Exactly(Tokens(131_072)),
        kv_type: KvType::Q8_0,
        max_sessions: 4,
        host_line: Setting::Auto,
        kv_sharing: KvSharing::Shared,
        kv_window: None,
        resident_budget: Some(Setting::Exactly(gib(32))),
        reserve: Setting::Exactly(mib(reserve_mib)),
        gpu_layers: Setting::Auto,
        images: Setting::Auto,
        draft: Setting::Exactly(Draft::Full),
        mode: Mode::Stable,
        policy: Policy::Wait,
    }
}

/// A profile in which use falls by half each 72 places of a layer, the same in all layers.
pub(crate) fn falling_profile(model: &ModelSizes) -> Profile {
    let layers: Vec<u32> = model.expert_layers().map(|(place, _)| place as u32).collect();
    let per_layer = model.experts.map_or(0, |experts| experts.per_layer);
    let uses = |rank: u32| 1_000_000 >> (rank / 72).min(20);
    let ranked = (0..per_layer)
        .flat_map(|rank| layers.iter().map(move |layer| RankedExpert { layer: *layer, uses: uses(rank) }));
    Profile { ranked: ranked.collect() }
}
