//! Plans of real shapes, from files that are a header and a hole: header → facts → sizes → plan, on known machines.

use plimsoll::sizes::sizes;
use plimsoll_config::Config;
use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::{AccountId, Object};
use plimsoll_decide::plan::{
    CardReading, Cause, Change, Experts, KvSharing, MachineReading, ModelSizes, Plan, Refusal, Shortage, Shortfall,
    Speculation, Wish, plan,
};
use plimsoll_model::facts::ModelFacts;
use plimsoll_model::file::ModelFile;
use plimsoll_tests::fixture::hollow::Hollow;
use plimsoll_tests::process::{plimsoll, run};
use serde_json::Value;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;
const GPU: AccountId = AccountId::Vram(0);

fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

/// A hollow file, gone with its folder.
fn made(hollow: Hollow) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("{}.gguf", hollow.name()));
    hollow.write(BufWriter::new(File::create(&path).expect("a file"))).expect("a header and a hole");
    (folder, path)
}

/// What the header says; the file is as long as it says, to the byte.
fn read(hollow: Hollow) -> (ModelFacts, ModelSizes) {
    let (_folder, path) = made(hollow);
    let file = ModelFile::open_header(&path).expect("a header");
    let data_bytes = file.file_bytes() - file.parts()[0].data_offset_bytes;
    let last = file.header().tensors.iter().map(|tensor| tensor.offset_bytes + tensor.n_bytes).max();
    assert_eq!(Some(data_bytes), last, "{}: every tensor here is whole multiples of 32 bytes", hollow.name());
    let facts = ModelFacts::from_header(file.header()).expect("a model that this build knows");
    assert_eq!(facts.weight_bytes(), data_bytes, "{}: no tensor is left out or counted twice", hollow.name());
    let sizes = sizes(file.header(), &facts, file.file_bytes());
    (facts, sizes)
}

fn machine(limit_gib: u64, foreign_mib: u64) -> MachineReading {
    MachineReading {
        host_limit: Bytes::from_gib(limit_gib),
        host_foreign: mib(foreign_mib),
        ..MachineReading::default()
    }
}

/// One session of so many tokens.
fn wish(n_ctx: u32, kv_type: KvType) -> Wish {
    Wish { context: Setting::Exactly(Tokens(n_ctx)), kv_type, max_sessions: 1, ..Wish::from(&Config::default()) }
}

fn fits(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Plan {
    plan(model, machine, wish).unwrap_or_else(|refusal| panic!("does not fit: {refusal:?}"))
}

fn shortage(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Shortage {
    match plan(model, machine, wish) {
        Err(Refusal::DoesNotFit(shortage)) => *shortage,
        other => panic!("not a shortage: {other:?}"),
    }
}

fn object(plan: &Plan, account: AccountId, object: Object) -> Option<Bytes> {
    plan.ledger.account(account).expect("it is there").object(object)
}

fn kv(model: &ModelSizes, n_ctx: u32) -> [Option<u64>; 3] {
    KvType::ALL.map(|kv_type| model.kv_bytes(kv_type, Tokens(n_ctx)).map(|bytes| bytes.0))
}

/// The published file with this mix has so many hundredths of a GB; its metadata differ by less than a hundredth.
fn check_published(sizes: &ModelSizes, hundredths: u64) {
    let off_bytes = sizes.file_bytes.0.abs_diff(hundredths * 10_000_000);
    assert!(off_bytes < 10_000_000, "{} bytes for {hundredths} hundredths of a GB", sizes.file_bytes.0);
}

#[test]
fn llama_2_7b_is_what_is_known_of_it() {
    let (facts, sizes) = read(Hollow::Llama2_7b);
    assert_eq!((facts.n_layers, facts.n_vocab, facts.n_parameters), (32, 32_000, 6_738_415_616));
    assert_eq!(facts.file_type_name(), Some("Q4_K_M"));
    assert_eq!((sizes.dense_weights.0, sizes.expert_bytes()), (4_080_263_168, Bytes::ZERO));
    check_published(&sizes, 408);
    // 2.0 GiB, often misquoted as 2.7.
    assert_eq!(kv(&sizes, 4096), [Some(2 * GIB), Some(2 * GIB / 64 * 34), Some(2 * GIB / 64 * 18)]);

    // 3.80 + 2.00 GiB and what both processes hold, of 7.
    let plan = fits(&sizes, &machine(8, 400), &wish(4096, KvType::F16));
    assert_eq!(object(&plan, AccountId::Host, Object::DenseWeights), Some(Bytes(4_080_263_168)));
    assert_eq!(object(&plan, AccountId::Host, Object::Kv), Some(Bytes(2 * GIB)));
    assert_eq!((plan.placement.gpu, plan.placement.experts), (None, None));
    // One GiB less is missing to the byte, and coarser keys and values are enough.
    let refused = shortage(&sizes, &machine(7, 400), &wish(4096, KvType::F16));
    let own = refused.ledger.account(AccountId::Host).expect("every machine has memory").used();
    assert_eq!(refused.shortfalls[0].bytes, own.saturating_sub(Bytes::from_gib(6)));
    let coarser = Change::KvType { from: KvType::F16, to: KvType::Q8_0 };
    assert!(refused.offers.iter().any(|offer| offer.change == coarser && offer.is_enough), "{:?}", refused.offers);

    // On a card of 8 GiB with a desktop all of it but the table of embeddings moves.
    let machine = MachineReading { gpus: vec![card(8192, mib(7400))], ..machine(8, 400) };
    let plan = fits(&sizes, &machine, &wish(4096, KvType::F16));
    assert_eq!((plan.placement.gpu_layers.len(), plan.placement.output_on_gpu), (32, true));
    let host = object(&plan, AccountId::Host, Object::DenseWeights);
    assert_eq!(host, Some(Bytes(73_728_000 + 4 * 4096)), "token_embd and output_norm");
}

#[test]
fn gemma_3_12b_looks_back_1024_tokens_in_five_layers_of_six() {
    let (facts, sizes) = read(Hollow::Gemma3_12b);
    assert_eq!((facts.n_layers, facts.n_vocab, facts.tied_head), (48, 262_208, true));
    assert_eq!(facts.layers.iter().filter(|layer| layer.window == Some(1024)).count(), 40);
    assert_eq!((sizes.dense_weights.0, sizes.output), (7_294_226_304, sizes.token_embedding));
    check_published(&sizes, 730);
    // 8 KiB a token and layer as f16: 8 layers of all tokens, 40 of a window.
    let f16 = |full: u64, windowed: u64| 8192 * (8 * full + 40 * windowed);
    for (n_ctx, windowed) in [(512, 512), (1024, 1024), (1025, 1024), (32_768, 1024), (131_072, 1024)] {
        assert_eq!(kv(&sizes, n_ctx)[0], Some(f16(u64::from(n_ctx), windowed)), "{n_ctx}");
    }
    assert_eq!(kv(&sizes, 32_768)[0], Some(2 * GIB + 320 * (1 << 20)));
    let plan = fits(&sizes, &machine(16, 1000), &wish(32_768, KvType::F16));
    assert_eq!(object(&plan, AccountId::Host, Object::Kv), Some(mib(2368)));
    // Without windows it would be 12 GiB, and be refused.
    let mut blind = sizes.clone();
    blind.layers.iter_mut().for_each(|layer| layer.kv.window = None);
    assert_eq!(kv(&blind, 32_768)[0], Some(12 * GIB));
    shortage(&blind, &machine(16, 1000), &wish(32_768, KvType::F16));
    // A context that is cut from 2,048 to 1,024 frees what 8 layers had of it alone.
    let offers = shortage(&sizes, &machine(8, 0), &wish(2048, KvType::F16)).offers;
    let shorter = Change::Context { from: Tokens(2048), to: Tokens(1024) };
    assert!(offers.iter().any(|offer| offer.change == shorter && offer.frees == mib(64)), "{offers:?}");
}

#[test]
fn qwen3_30b_a3b_is_what_is_known_of_it() {
    let (facts, sizes) = read(Hollow::Qwen3Moe30b);
    assert_eq!((facts.n_layers, facts.n_vocab, facts.n_parameters), (48, 151_936, 30_532_122_624));
    assert_eq!((sizes.n_experts(), sizes.largest_expert()), (48 * 128, Bytes(3_059_712)));
    // Half of the layers have a larger down matrix: 24 × 128 × (2,654,208 + 3,059,712).
    assert_eq!(sizes.expert_bytes(), Bytes(17_553_162_240));
    assert_eq!(sizes.token_cycle(), Bytes(17_553_162_240 / 16)); // 8 of 128
    assert_eq!(sizes.dense_weights, Bytes(997_554_176));
    check_published(&sizes, 1856);
    // 48 layers × 4 heads × 128 × 2 × 2 bytes = 96 KiB a token.
    assert_eq!(kv(&sizes, 32_768), [Some(3 * GIB), Some(3 * GIB / 64 * 34), Some(3 * GIB / 64 * 18)]);

    let plan = fits(&sizes, &machine(24, 900), &wish(8192, KvType::F16));
    assert_eq!(object(&plan, AccountId::Host, Object::ExpertResident), Some(Bytes(17_553_162_240)));
    assert_eq!(object(&plan, AccountId::Host, Object::Kv), Some(mib(768)));
    let refused = shortage(&sizes, &machine(16, 900), &wish(8192, KvType::F16));
    let used = refused.ledger.account(AccountId::Host).expect("every machine has memory").used();
    let line = Bytes(16 * GIB - 16 * GIB * 12 / 100);
    assert_eq!(refused.shortfalls[0].bytes, used.saturating_sub(line));
    assert!(used > Bytes(17_553_162_240 + 997_554_176 + 768 * (1 << 20) + 900 * (1 << 20)));
    // Read on demand it fits there, and says what a token would read: 3.5 GiB of experts in the file.
    let on_demand = Wish { resident_budget: Some(Setting::Auto), ..wish(8192, KvType::F16) };
    let experts = fits(&sizes, &machine(16, 900), &on_demand).placement.experts.expect("it has some");
    assert_eq!(experts.n_resident + experts.n_file_only, 6144);
    assert!((3 * GIB..6 * GIB).contains(&experts.file_only.0), "{experts:?}");
}

/// A card of so many MiB.
fn card(total_mib: u64, free: Bytes) -> CardReading {
    CardReading {
        index: 0,
        name: "card".to_owned(),
        total: mib(total_mib),
        free,
        context: mib(287),
        driver_reserved: None,
        programs: Vec::new(),
        bytes_per_second: None,
        request_start: None,
        layer_gains_ns: Vec::new(),
    }
}

/// The model of the workstation, with what a build with cards and speculation adds to the header's sizes.
fn workstation_model() -> ModelSizes {
    let (_, sizes) = read(Hollow::Workstation);
    let speculation = Speculation { verify_arena: mib(74), draft_head: mib(86), small_draft_head: None };
    let experts = sizes.experts.map(|experts| Experts { loan_slots: 262, ..experts });
    ModelSizes { experts, prompt_path: mib(226), speculation: Some(speculation), ..sizes }
}

fn workstation_wish(reserve_mib: u64) -> Wish {
    Wish {
        max_sessions: 4,
        kv_sharing: KvSharing::Shared,
        resident_budget: Some(Setting::Exactly(Bytes::from_gib(32))),
        reserve: Setting::Exactly(mib(reserve_mib)),
        ..wish(131_072, KvType::Q8_0)
    }
}

/// 62 GiB of memory, 10.1 of them foreign, and a card with this much free.
fn workstation(free: Bytes) -> MachineReading {
    MachineReading { gpus: vec![card(12_282, free)], ..machine(62, 10_342) }
}

/// What is free of the card so that `tenths` of a MiB are left beside weights, keys and values, and context.
fn free_beside(model: &ModelSizes, tenths: u64) -> Bytes {
    let dense: Bytes = model.layers.iter().map(|layer| layer.dense).chain([model.output]).sum();
    let kv = model.kv_bytes(KvType::Q8_0, Tokens(131_072)).expect("whole blocks");
    [dense, kv, mib(287), Bytes(mib(tenths).0 / 10)].into_iter().sum()
}

#[test]
fn the_workstation_s_model_has_the_sums_of_the_notes() {
    let (facts, sizes) = read(Hollow::Workstation);
    assert_eq!((facts.n_layers, sizes.n_experts()), (48, 24_384));
    assert_eq!((sizes.expert_bytes().gib_text(2).as_str(), sizes.expert_bytes().0), ("46.84", 50_289_561_600));
    let average = sizes.expert_bytes().0 / sizes.n_experts();
    assert_eq!((average * 100 + (1 << 19)) >> 20, 197, "hundredths of a MiB");
    assert_eq!(sizes.largest_expert(), Bytes(2_657_280));
    assert!(sizes.largest_expert().0 <= 254 * (1 << 20) / 100);
    assert_eq!(kv(&sizes, 131_072), [Some(1120 << 20), Some(595 << 20), Some(315 << 20)]);
    assert_eq!(sizes.token_cycle(), Bytes(50_289_561_600 / 508 * 10));
    let (n_slots, floor) = workstation_model().cache_floor();
    assert_eq!((n_slots, floor.mib_rounded_up()), (326, 827));
}

#[test]
fn the_workstation_s_starts_come_out_as_they_were() {
    let model = workstation_model();
    let n_cached = |free, reserve_mib| {
        let plan = fits(&model, &workstation(free), &workstation_wish(reserve_mib));
        assert_eq!(plan.placement.gpu_layers.len(), 48);
        assert_eq!(object(&plan, GPU, Object::Kv), Some(mib(595)));
        let host = plan.ledger.account(AccountId::Host).expect("every machine has memory");
        assert_eq!(host.object(Object::ExpertResident), Some(Bytes::from_gib(32)));
        assert!(host.used() >= Bytes::from_gib(42) && host.used() <= Bytes::from_gib(46), "{}", host.used());
        plan.placement.experts.expect("it has some").n_cached
    };
    // Two clean starts, which differed by about 45 MiB.
    assert_eq!(n_cached(free_beside(&model, 35_563), 1500), 1045);
    assert_eq!(n_cached(free_beside(&model, 36_073), 1728), 955);
    // The card with nothing but its desktop of 2,367 MiB: within the healthy interval.
    let clean = n_cached(mib(12_282 - 2367), 1728);
    assert!((955..=1045).contains(&clean), "{clean}");

    // 5 GiB of somebody's: 826.2 − (1,054.7 − 1,728 − 86). The notes have 1,587, of blobs of 2.54 in place of 2.53 MiB.
    let refused = shortage(&model, &workstation(free_beside(&model, 10_547)), &workstation_wish(1728));
    let [Shortfall { account: GPU, bytes, cause: Cause::UnderFloor { n_slots: 326, .. } }] = refused.shortfalls[..]
    else {
        panic!("{:?}", refused.shortfalls)
    };
    assert_eq!(bytes.mib_rounded_up(), 1586);
}

#[test]
fn without_a_card_the_workstation_refuses_what_the_kernel_would_kill() {
    let (_, sizes) = read(Hollow::Workstation);
    let wish = wish(131_072, KvType::Q8_0);
    let refused = shortage(&sizes, &machine(62, 10_342), &wish);
    let host = refused.ledger.account(AccountId::Host).expect("every machine has memory");
    assert_eq!(host.object(Object::ExpertResident), Some(sizes.expert_bytes()));
    assert_eq!(host.object(Object::DenseWeights), Some(sizes.dense_weights));
    assert_eq!(host.object(Object::Kv), Some(mib(595)));
    assert_eq!(refused.shortfalls[0].bytes, host.used().saturating_sub(Bytes::from_gib(55)));
    assert!(host.used() > Bytes::from_gib(62), "all of it and the others are more than there is");
    // With a budget of 32 GiB it fits; the rest stays in the file.
    let budget = Wish { resident_budget: Some(Setting::Exactly(Bytes::from_gib(32))), ..wish };
    let experts = fits(&sizes, &machine(62, 10_342), &budget).placement.experts.expect("it has some");
    assert_eq!(experts.n_cached, 0);
    assert_eq!(experts.file_only.gib_text(1), "14.8");
}

/// `plimsoll plan --json` on the machine that runs this test: every figure but those of the machine is known.
#[test]
fn the_command_plans_a_file_without_its_weights() {
    for hollow in Hollow::ALL {
        let (folder, path) = made(hollow);
        let (_, sizes) = read(hollow);
        let config = folder.path().join("small.yaml");
        let text = "host:\n  line: 1GiB\ncontext:\n  tokens: 4096\nworker:\n  max_sessions: 1\n";
        std::fs::write(&config, text).expect("a file");
        let arguments = ["plan", "--json", "--config", &config.to_string_lossy(), "--model", &path.to_string_lossy()];
        let output = run(&plimsoll(), arguments);
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&json["verdict"], &json["file_cut"]), (&"does_not_fit".into(), &Value::Null), "{json}");
        let object = |account: usize, name: &str| {
            let objects = json["accounts"][account]["objects"].as_array().expect("objects");
            objects.iter().find(|object| object["object"] == name).and_then(|object| object["bytes"].as_u64())
        };
        assert_eq!(object(0, "dense_weights"), Some(sizes.dense_weights.0), "{}", hollow.name());
        let experts = Some(sizes.expert_bytes().0).filter(|bytes| *bytes > 0);
        assert_eq!(object(0, "expert_resident"), experts);
        assert_eq!(object(0, "kv"), kv(&sizes, 4096)[0]);
        assert_eq!(object(1, "model_file"), Some(sizes.file_bytes.0));
        let [used, line] = ["used_bytes", "line_bytes"].map(|name| json["accounts"][0][name].as_u64().expect("bytes"));
        assert_eq!(json["shortfalls"][0]["bytes"], used - line);
    }
}
