//! Plans and refusals as a person reads them.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::{Account, AccountId, Basis, Bounds, Entry, Ledger, Object};
use plimsoll_decide::plan::{
    Change, Draft, Experts, Images, KvLayer, LayerSizes, MachineReading, Mode, ModelSizes, Note, Refusal, Wish, plan,
};
use plimsoll_decide::render::{change_text, ledger_text, note_text, plan_text, refusal_text, summary};

use crate::fixtures::{GIB, gib, layer, mib, program, wish};

/// A host-only workstation: 62 GiB, 32 of experts, a desktop.
fn workstation() -> (ModelSizes, MachineReading, Wish) {
    let kv = KvLayer { f16: Bytes(1 << 15), q8_0: Some(Bytes(17_408)), q4_0: Some(Bytes(9216)), window: None };
    let model = ModelSizes {
        file_bytes: gib(33),
        dense_weights: mib(430),
        token_embedding: mib(200),
        output: mib(200),
        layers: vec![LayerSizes { expert: Some(Bytes(GIB / 768)), ..layer(mib(30), kv) }],
        experts: Some(Experts { per_layer: 24_576, top_k: 8, loan_slots: 0 }),
        n_ctx_train: Tokens(131_072),
        activations: mib(96),
        prompt_path: Bytes::ZERO,
        image_encoder: None,
        speculation: None,
    };
    let programs = vec![program(812, "python3", mib(2560))];
    let machine =
        MachineReading { host_limit: gib(62), host_foreign: mib(10_342), programs, ..MachineReading::default() };
    let wish = Wish { context: Setting::Exactly(Tokens(131_072)), kv_type: KvType::Q8_0, ..wish() };
    (model, machine, wish)
}

#[test]
fn a_plan_that_fits() {
    let (model, machine, wish) = workstation();
    let plan = plan(&model, &machine, &wish).expect("fits");
    let expect = "\
HOST   62.0 GiB · line 55.0                                       basis
  ████████████████████████▒▒▒▒▒▒▒░░░░░░░░│····  44.9 GiB · 10.1 left
  expert_resident  32.00 GiB   all 24,576 experts                 planned
  kv                2.13 GiB   1 × 131,072 tokens, q8_0           planned
  dense_weights     0.42 GiB                                      planned
  service           0.13 GiB   both processes beside tensors      estimated
  activations       96.0 MiB   work buffers of the largest step   estimated
  foreign          10.10 GiB   other programs                     measured
DISK                                                              basis
  model_file       33.00 GiB   read once, then 0 B/token          measured
ROUGH  weights + kv + 0.2 GiB × sessions + 15 %: 39.96 GiB · ours: host 34.76 GiB
FITS.
";
    assert_eq!(plan_text(&plan), expect);
    assert_eq!(summary(&plan.ledger), "host 34.76 of 55.0 GiB line, 10.10 foreign · vram – · disk 0 B/token");
}

#[test]
fn a_refusal_says_what_is_missing_and_what_would_help() {
    let (model, machine, wish) = workstation();
    let machine = MachineReading { host_limit: Bytes(48 * GIB), ..machine };
    let refusal = plan(&model, &machine, &Wish { max_sessions: 2, ..wish }).expect_err("too much");
    let expect = "\
DOES NOT FIT: host memory is short by 4,863 MiB.
  HOST: 37,774 MiB planned + 10,342 foreign = 48,116; the line is 43,253 of 49,152.
HOST   48.0 GiB · line 42.2                                       basis
  █████████████████████████████████▒▒▒▒▒│▒▒▒▒·  47.0 GiB · short by 4,863 MiB
  expert_resident  32.00 GiB   all 24,576 experts                 planned
  kv                4.25 GiB   2 × 131,072 tokens, q8_0           planned
  dense_weights     0.42 GiB                                      planned
  service           0.13 GiB   both processes beside tensors      estimated
  activations       96.0 MiB   work buffers of the largest step   estimated
  foreign          10.10 GiB   other programs                     measured
DISK                                                              basis
  model_file       33.00 GiB   read once, then 0 B/token          measured
Make room, cheapest first (each line computed alone):
  1  close python3 (pid 812, alice)            frees  2,560 MiB   costs the model nothing
  2  sessions 2 → 1                            frees  2,176 MiB   requests wait for one another
  3  context 131,072 → 32,768                  frees  3,264 MiB   long chats are cut or summarised
  4  kv q8_0 → q4_0                            frees  2,048 MiB   quality; not for long prose
     2 + 3 + 4 together: 799 MiB of host memory are still missing
     1 + 3 together: enough
";
    assert_eq!(refusal_text(&refusal), expect);
}

#[test]
fn an_offer_that_is_enough_says_so() {
    let (model, machine, wish) = workstation();
    let machine = MachineReading { host_limit: Bytes(50 * GIB), ..machine };
    let refusal = plan(&model, &machine, &wish).expect_err("too much");
    let text = refusal_text(&refusal);
    assert!(text.starts_with("DOES NOT FIT: host memory is short by 884 MiB.\n"), "{text}");
    assert!(text.contains("frees  2,560 MiB   costs the model nothing: enough alone\n"), "{text}");
    assert!(text.contains("context 131,072 → 65,536                  frees  1,088 MiB"), "{text}");
    assert!(!text.contains("still missing"), "{text}");
}

#[test]
fn a_machine_that_no_change_saves_is_told_so() {
    let (model, machine, wish) = workstation();
    let small = MachineReading { host_limit: Bytes(16 * GIB), ..machine };
    let text = refusal_text(&plan(&model, &small, &wish).expect_err("too much"));
    assert!(text.contains("All of them together are not enough: "), "{text}");
    assert!(
        text.ends_with(" MiB of host memory are still missing; use a smaller model or a machine with more memory.\n"),
        "{text}"
    );

    let alone = MachineReading { programs: Vec::new(), ..small };
    let no_kv = KvLayer { f16: Bytes::ZERO, q8_0: Some(Bytes::ZERO), q4_0: Some(Bytes::ZERO), window: None };
    let no_kv = ModelSizes { layers: vec![LayerSizes { kv: no_kv, ..model.layers[0] }], ..model };
    let text = refusal_text(&plan(&no_kv, &alone, &wish).expect_err("too much"));
    assert!(text.contains("\nNo change helps: ") && !text.contains("Make room"), "{text}");
}

#[test]
fn an_impossible_type_says_what_to_write() {
    let text = refusal_text(&Refusal::KvTypeImpossible { kv_type: KvType::Q4_0 });
    assert!(text.contains("can't be stored as q4_0: use kv.type: f16"), "{text}");
}

#[test]
fn notes_are_sentences() {
    let (n_ctx, n_ctx_train) = (Tokens(40_000), Tokens(32_768));
    let check = |note: Note, expect: &str| assert_eq!(note_text(&note), expect);
    check(
        Note::ContextBeyondTraining { n_ctx, n_ctx_train },
        "the context of 40,000 tokens is longer than the 32,768 that the model was trained for",
    );
    check(
        Note::LineAboveLimit { line: Bytes(99 * GIB), limit: Bytes(62 * GIB) },
        "host.line is 99.00 GiB, but there are only 62.00 GiB: the line is 62.00 GiB",
    );
    let (model, machine, wish) = workstation();
    let model = ModelSizes { n_ctx_train: Tokens(8192), ..model };
    let text = plan_text(&plan(&model, &machine, &wish).expect("fits"));
    assert!(text.ends_with(
        "FITS.\n  note: the context of 131,072 tokens is longer than the 8,192 that the model was trained for\n"
    ));
}

/// The picture alone, for an account of 44 GiB: one character is one GiB.
fn bar(own_gib: u64, foreign_gib: u64, line_gib: u64) -> String {
    let entry =
        |object, gib| Entry { object, bytes: super::fixtures::gib(gib), basis: Basis::Planned, detail: String::new() };
    let account = Account {
        id: AccountId::Host,
        title: String::new(),
        asked_beside: Bytes::ZERO,
        bounds: Some(Bounds { limit: gib(44), line: gib(line_gib) }),
        entries: vec![entry(Object::Kv, own_gib), entry(Object::Foreign, foreign_gib)],
    };
    let text = ledger_text(&Ledger { accounts: vec![account] });
    text.lines().nth(1).expect("the picture is the second line").chars().skip(2).take(44).collect()
}

#[test]
fn the_picture_shows_the_load_and_the_mark() {
    let check = |own, foreign, line, expect: &str| assert_eq!(bar(own, foreign, line), expect);
    check(0, 0, 40, "░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░│···");
    check(20, 10, 40, "████████████████████▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░│···");
    check(20, 22, 40, "████████████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│▒··");
    check(60, 60, 40, "████████████████████████████████████████│███");
    check(0, 5, 44, "▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░│");
    check(5, 0, 0, "│████·······································");
}

#[test]
fn a_machine_without_memory_is_still_drawn() {
    let (model, machine, wish) = workstation();
    let nothing = MachineReading { host_limit: Bytes::ZERO, host_foreign: Bytes::ZERO, ..machine };
    let text = refusal_text(&plan(&model, &nothing, &wish).expect_err("nothing fits"));
    assert!(text.contains("HOST   0.0 GiB · line 0.0"), "{text}");
}

#[test]
fn every_change_is_said_as_a_user_would_make_it() {
    let check = |change: Change, expect: &str| {
        assert_eq!(change_text(&change), expect);
        assert!(!change.price().is_empty());
    };
    let close = |account| Change::CloseProgram { program: program(812, "python3", mib(1)), account };
    check(close(AccountId::Vram(0)), "close python3 (pid 812, alice)");
    check(Change::Sessions { from: 4, to: 2 }, "sessions 4 → 2");
    check(Change::KvWindow { from: Tokens(65_536), to: Tokens(8192) }, "kv window 65,536 → 8,192");
    check(Change::Context { from: Tokens(65_536), to: Tokens(8192) }, "context 65,536 → 8,192");
    check(Change::KvType { from: KvType::F16, to: KvType::Q8_0 }, "kv f16 → q8_0");
    check(Change::Reserve { from: mib(1728), to: mib(642) }, "reserve 1,728 → 642");
    check(Change::GpuLayers { from: 32, to: 20 }, "gpu layers 32 → 20");
    check(Change::Images { from: Images::Card, to: Images::Cpu }, "images card → cpu");
    check(Change::Draft { from: Draft::Full, to: Draft::Small }, "draft vocabulary full → en");
    check(Change::ResidentBudget { from: gib(32), to: gib(24) }, "resident budget 32.00 GiB → 24.00 GiB");
}

#[test]
fn notes_about_a_card_are_sentences() {
    let check = |note: Note, expect: &str| assert_eq!(note_text(&note), expect);
    check(
        Note::SlackLow { reserve: mib(300), slack: mib(5) },
        "LOW: the reserve of 300 MiB leaves only 5 MiB free beside what is allocated later",
    );
    check(
        Note::ReserveTooSmall { reserve: mib(300), needed: mib(386) },
        "the reserve of 300 MiB is less than the 386 MiB that are allocated later",
    );
    check(
        Note::ReserveSuggested { reserve: mib(1500), suggested: mib(1728), lowest_free: mib(292) },
        "with a reserve of 1,500 MiB a request began with only 292 MiB free: 1,728 would keep 512 free",
    );
    check(
        Note::CacheUnderFloor { n_experts: 146, n_slots: 326 },
        "DIRTY: 146 experts on the card, under the floor of 326: slow until there is room",
    );
    check(
        Note::CardUnused { index: 1 },
        "GPU 1 is not used: no layer of the model fits beside context and reserve, or none was asked for",
    );
    check(
        Note::LineWithinMargin { gap: gib(7), margin: gib(12) },
        "the host line is 7.00 GiB under the limit, but 12.00 GiB can vanish before memory is given back: lower host.line",
    );
}

#[test]
fn mixed_modes_are_told_apart() {
    let text = refusal_text(&Refusal::ModesMixed { reserve: mib(1728) });
    assert!(
        text.contains("512 MiB, but 1,728 MiB are written: remove the reserve, or use the profile stable."),
        "{text}"
    );
}

/// A file tier that nobody has measured, on a machine where the context had to give.
#[test]
fn what_was_given_up_and_what_is_not_known_is_said() {
    let (model, machine, wish) = workstation();
    let machine =
        MachineReading { host_bytes_per_second: Some(mib(20)), host_limit: gib(12), host_foreign: Bytes(0), ..machine };
    let budget = Some(Setting::Exactly(gib(10)));
    let line = Setting::Exactly(Bytes(10 * GIB + 990 * (GIB / 1024)));
    let wish = Wish { context: Setting::Auto, resident_budget: budget, host_line: line, ..wish };
    let text = plan_text(&plan(&model, &machine, &wish).expect("fits"));
    assert!(text.contains("  gave up: context 8,192 → 4,096 (long chats are cut or summarised)\n"), "{text}");
    let expect =
        "  22.00 GiB of experts only in the file · no profile yet · 7.3 MiB a token · the disk is not measured yet\n";
    assert!(text.contains(expect), "{text}");
    assert!(!text.contains("SPEED"), "{text}");
    // Everything in memory needs no disk: a speed, even a very slow one.
    let all = Wish { resident_budget: None, host_line: Setting::Auto, ..wish };
    let text = plan_text(&plan(&model, &MachineReading { host_limit: gib(62), ..machine }, &all).expect("fits"));
    assert!(text.contains("\nSPEED  0.02–0.04 tok/s expected\n"), "{text}");
}

#[test]
fn a_reserve_that_we_lowered_is_not_called_the_users() {
    let (model, machine, wish) = workstation();
    let mut plan = plan(&model, &machine, &wish).expect("fits");
    plan.given_up = vec![Change::Reserve { from: mib(960), to: mib(704) }];
    assert!(plan_text(&plan).contains("  gave up: reserve 960 → 704 (less room for other programs)\n"));
    assert_eq!([Mode::Stable, Mode::Benchmark].map(Mode::name), ["stable", "benchmark"]);
}
