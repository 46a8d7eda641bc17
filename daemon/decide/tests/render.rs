//! Plans and refusals as a person reads them.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::{Account, AccountKind, Basis, Bounds, Entry, Ledger, Object};
use plimsoll_decide::plan::{Experts, KvLayer, MachineReading, ModelSizes, Note, Program, Refusal, Wish, plan};
use plimsoll_decide::render::{ledger_text, note_text, plan_text, refusal_text, summary};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The workstation of the documents: 62 GiB, 32 of experts, a desktop.
fn workstation() -> (ModelSizes, MachineReading, Wish) {
    let model = ModelSizes {
        file_bytes: Bytes(33 * GIB),
        dense_weights: Bytes(430 * MIB),
        experts: Some(Experts { bytes: Bytes(32 * GIB), n_experts: 24_576 }),
        n_ctx_train: Tokens(131_072),
        kv_layers: vec![KvLayer {
            f16: Bytes(1 << 15),
            q8_0: Some(Bytes(17_408)),
            q4_0: Some(Bytes(9216)),
            window: None,
        }],
        activations: Bytes(96 * MIB),
    };
    let programs =
        vec![Program { pid: 812, name: "python3".to_owned(), user: "alice".to_owned(), bytes: Bytes(2560 * MIB) }];
    let machine = MachineReading { host_limit: Bytes(62 * GIB), host_foreign: Bytes(10_342 * MIB), programs };
    let wish = Wish {
        context: Setting::Exactly(Tokens(131_072)),
        kv_type: KvType::Q8_0,
        max_sessions: 1,
        host_line: Setting::Auto,
    };
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
  3  context 131,072 → 1,024                   frees  4,318 MiB   long chats are cut or summarised
  4  kv q8_0 → q4_0                            frees  2,048 MiB   quality; not for long prose
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
    assert!(text.ends_with(" MiB are still missing; use a smaller model or a machine with more memory.\n"), "{text}");

    let alone = MachineReading { programs: Vec::new(), ..small };
    let no_kv = ModelSizes { kv_layers: Vec::new(), ..model };
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
        Note::ContextReduced { n_ctx: Tokens(2048), wanted: Tokens(8192) },
        "context 2,048 in place of 8,192 tokens: more does not fit under the line",
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
    let entry = |object, gib| Entry { object, bytes: Bytes(gib * GIB), basis: Basis::Planned, detail: String::new() };
    let account = Account {
        kind: AccountKind::Host,
        bounds: Some(Bounds { limit: Bytes(44 * GIB), line: Bytes(line_gib * GIB) }),
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
fn words_are_those_of_the_vocabulary() {
    use Object::{Activations, DenseWeights, ExpertResident, Foreign, Kv, ModelFile, Service};
    let objects = [DenseWeights, ExpertResident, Kv, Activations, Service, Foreign, ModelFile].map(Object::name);
    let expect = ["dense_weights", "expert_resident", "kv", "activations", "service", "foreign", "model_file"];
    assert_eq!(objects, expect);
    assert_eq!(AccountKind::ALL.map(AccountKind::name), ["host", "vram", "disk"]);
    assert_eq!(
        [Basis::Planned, Basis::Measured, Basis::Estimated].map(Basis::name),
        ["planned", "measured", "estimated"]
    );
}
