//! The ledger and the plan: figures of known machines, and properties of all of them.

use plimsoll_config::config::{Config, KvType, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::{AccountKind, Object, host_line};
use plimsoll_decide::plan::{
    Change, Experts, Knobs, KvLayer, MachineReading, ModelSizes, Note, Plan, Program, Refusal, Shortage, Wish, plan,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A layer of so many KV heads × dimensions, as each type stores a token of it: keys and values.
fn kv_layer(n_kv_heads: u64, head_dim: u64, window: Option<u32>) -> KvLayer {
    let n_elements = 2 * n_kv_heads * head_dim;
    let blocks = |block_bytes: u64| head_dim.is_multiple_of(32).then(|| Bytes(n_elements / 32 * block_bytes));
    KvLayer { f16: Bytes(2 * n_elements), q8_0: blocks(34), q4_0: blocks(18), window: window.map(Tokens) }
}

/// 32 layers without shared KV heads, as a 7-billion-parameter model of the first kind has them.
fn dense_7b() -> ModelSizes {
    ModelSizes {
        file_bytes: Bytes(4 * GIB),
        dense_weights: Bytes(4 * GIB),
        experts: None,
        n_ctx_train: Tokens(32_768),
        kv_layers: vec![kv_layer(32, 128, None); 32],
        activations: Bytes(200 * MIB),
    }
}

fn machine(limit_gib: u64, foreign_mib: u64) -> MachineReading {
    MachineReading { host_limit: Bytes(limit_gib * GIB), host_foreign: Bytes(foreign_mib * MIB), programs: Vec::new() }
}

fn wish() -> Wish {
    Wish { context: Setting::Auto, kv_type: KvType::F16, max_sessions: 1, host_line: Setting::Auto }
}

fn shortage(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Shortage {
    match plan(model, machine, wish) {
        Err(Refusal::DoesNotFit(shortage)) => *shortage,
        other => panic!("not a shortage: {other:?}"),
    }
}

#[test]
fn the_host_line_is_that_of_the_design() {
    let check = |limit_gib: u64, expect: &str| {
        let line = host_line(Bytes(limit_gib * GIB), Setting::Auto);
        assert_eq!(line.gib_text(1), expect, "of {limit_gib} GiB");
    };
    check(8, "7.0");
    check(16, "14.1");
    check(24, "21.1");
    check(62, "55.0");
    check(512, "505.0");
    assert_eq!(host_line(Bytes(100 * MIB), Setting::Auto), Bytes::ZERO);
    assert_eq!(host_line(Bytes(u64::MAX), Setting::Auto), Bytes(u64::MAX - 7 * GIB));
    assert_eq!(host_line(Bytes(8 * GIB), Setting::Exactly(Bytes(3 * GIB))), Bytes(3 * GIB));
    assert_eq!(host_line(Bytes(8 * GIB), Setting::Exactly(Bytes(9 * GIB))), Bytes(8 * GIB));
}

#[test]
fn kv_bytes_follow_the_known_formula() {
    // 4,096 tokens of a 7B without shared heads at f16 are 2.0 GiB, often misquoted as 2.7.
    let model = dense_7b();
    let check = |kv_type, n_ctx, expect| assert_eq!(model.kv_bytes(kv_type, Tokens(n_ctx)), Some(Bytes(expect)));
    check(KvType::F16, 4096, 2 * GIB);
    check(KvType::Q8_0, 4096, 2 * GIB / 64 * 34);
    check(KvType::Q4_0, 4096, 2 * GIB / 64 * 18);
    check(KvType::F16, 0, 0);
}

#[test]
fn a_window_bounds_its_layers_alone() {
    let mut model = dense_7b();
    model.kv_layers = vec![kv_layer(1, 256, Some(512)), kv_layer(1, 256, None)];
    assert_eq!(model.kv_bytes(KvType::F16, Tokens(100)), Some(Bytes(2 * 1024 * 100)));
    assert_eq!(model.kv_bytes(KvType::F16, Tokens(2048)), Some(Bytes(1024 * (512 + 2048))));
}

#[test]
fn auto_takes_the_largest_step_that_fits() {
    let check = |limit_gib: u64, foreign_mib: u64, n_ctx: u32, notes: &[Note]| {
        let plan = plan(&dense_7b(), &machine(limit_gib, foreign_mib), &wish()).expect("fits");
        assert_eq!(plan.knobs.n_ctx, Tokens(n_ctx), "{limit_gib} GiB, {foreign_mib} MiB foreign");
        assert_eq!(plan.notes, notes);
    };
    let reduced = |n_ctx| Note::ContextReduced { n_ctx: Tokens(n_ctx), wanted: Tokens(8192) };
    check(16, 1000, 8192, &[]); // 4 + 4 + 0.2 + 0.125 + 1 of 14.08
    check(8, 400, 4096, &[reduced(4096)]); // 4 + 2 + 0.2 + 0.125 + 0.4 of 7
    check(8, 1500, 2048, &[reduced(2048)]);
    check(8, 2000, 1024, &[reduced(1024)]);
}

#[test]
fn auto_never_goes_past_what_the_model_was_trained_for() {
    let model = ModelSizes { n_ctx_train: Tokens(3000), ..dense_7b() };
    assert_eq!(plan(&model, &machine(64, 0), &wish()).expect("fits").knobs.n_ctx, Tokens(3000));
    // From there it goes down by powers of two, and never under the floor.
    assert_eq!(plan(&model, &machine(8, 1500), &wish()).expect("fits").knobs.n_ctx, Tokens(2048));
    let tiny = ModelSizes { n_ctx_train: Tokens(512), ..dense_7b() };
    assert_eq!(plan(&tiny, &machine(8, 0), &wish()).expect("fits").knobs.n_ctx, Tokens(512));
}

#[test]
fn what_was_written_is_kept_or_refused_but_never_changed() {
    let wish = Wish { context: Setting::Exactly(Tokens(16_384)), max_sessions: 2, ..wish() };
    let fits = plan(&dense_7b(), &machine(64, 0), &wish).expect("fits");
    assert_eq!(fits.knobs, Knobs { n_ctx: Tokens(16_384), kv_type: KvType::F16, max_sessions: 2 });
    assert_eq!(fits.notes, []);
    let refused = shortage(&dense_7b(), &machine(16, 0), &wish);
    assert_eq!(refused.knobs, fits.knobs);

    let long = Wish { context: Setting::Exactly(Tokens(40_000)), max_sessions: 1, ..wish };
    let note = Note::ContextBeyondTraining { n_ctx: Tokens(40_000), n_ctx_train: Tokens(32_768) };
    assert_eq!(plan(&dense_7b(), &machine(64, 0), &long).expect("fits").notes, [note]);

    let line = Wish { host_line: Setting::Exactly(Bytes(99 * GIB)), ..self::wish() };
    let note = Note::LineAboveLimit { line: Bytes(99 * GIB), limit: Bytes(64 * GIB) };
    assert_eq!(plan(&dense_7b(), &machine(64, 0), &line).expect("fits").notes, [note]);
}

#[test]
fn there_are_no_ghosts() {
    let objects = |plan: &Plan| -> Vec<Object> {
        let host = plan.ledger.account(AccountKind::Host).expect("every machine has memory");
        host.entries.iter().map(|entry| entry.object).collect()
    };
    let dense = plan(&dense_7b(), &machine(64, 500), &wish()).expect("fits");
    assert!(dense.ledger.account(AccountKind::Vram).is_none());
    assert!(!objects(&dense).contains(&Object::ExpertResident));
    let experts = Some(Experts { bytes: Bytes(20 * GIB), n_experts: 24_576 });
    let moe = plan(&ModelSizes { experts, ..dense_7b() }, &machine(64, 500), &wish()).expect("fits");
    use Object::{Activations, DenseWeights, ExpertResident, Foreign, Kv, Service};
    assert_eq!(objects(&moe), [ExpertResident, DenseWeights, Kv, Activations, Service, Foreign]);
}

#[test]
fn accounts_add_up() {
    let plan = plan(&dense_7b(), &machine(64, 500), &wish()).expect("fits");
    let host = plan.ledger.account(AccountKind::Host).expect("every machine has memory");
    assert_eq!(host.own(), Bytes(8 * GIB + 200 * MIB + limits::SERVICE_ESTIMATE.0));
    assert_eq!(host.foreign(), Bytes(500 * MIB));
    assert_eq!(host.used(), Bytes(host.own().0 + host.foreign().0));
    assert_eq!(host.headroom(), Some(Bytes(57 * GIB - host.used().0)));
    assert_eq!(host.shortfall(), Bytes::ZERO);
    let disk = plan.ledger.account(AccountKind::Disk).expect("the model has a file");
    assert_eq!((disk.headroom(), disk.shortfall(), disk.used()), (None, Bytes::ZERO, Bytes(4 * GIB)));
}

#[test]
fn a_type_that_heads_are_not_made_for_is_refused_and_not_offered() {
    let mut model = dense_7b();
    model.kv_layers = vec![kv_layer(32, 80, None); 32];
    let wish = Wish { kv_type: KvType::Q8_0, ..wish() };
    assert_eq!(plan(&model, &machine(64, 0), &wish), Err(Refusal::KvTypeImpossible { kv_type: KvType::Q8_0 }));
    let shortage = shortage(&model, &machine(4, 0), &self::wish());
    assert_eq!(shortage.offers, []);
}

#[test]
fn offers_come_in_order_of_price_and_say_when_one_is_enough() {
    let program = |pid, name: &str, mib| Program {
        pid,
        name: name.to_owned(),
        user: "alice".to_owned(),
        bytes: Bytes(mib * MIB),
    };
    let programs = vec![
        program(1, "small", 60), // under what is worth closing
        program(2, "browser", 900),
        program(3, "python3", 2560),
        program(4, "d", 300),
        program(5, "e", 200), // the fourth
    ];
    let machine = MachineReading { programs, ..machine(16, 4000) };
    let wish = Wish { context: Setting::Exactly(Tokens(8192)), max_sessions: 2, ..wish() };
    // 4 + 8 + 0.2 + 0.125 + 3.9 GiB against 14.08: 2.15 GiB are missing.
    let shortage = shortage(&dense_7b(), &machine, &wish);
    assert_eq!(shortage.account, AccountKind::Host);
    assert_eq!(shortage.shortfall.mib_rounded_up(), 2199); // 16,616 less the line of 14,417.92
    let close = |at: usize| Change::CloseProgram(machine.programs[at].clone());
    let expect = [
        (close(2), 2560, true),
        (close(1), 900, false),
        (close(3), 300, false),
        (Change::Sessions { from: 2, to: 1 }, 4096, true),
        (Change::Context { from: Tokens(8192), to: Tokens(4096) }, 4096, true),
        (Change::KvType { from: KvType::F16, to: KvType::Q8_0 }, 3840, true),
        (Change::KvType { from: KvType::F16, to: KvType::Q4_0 }, 5888, true),
    ];
    let found: Vec<_> =
        shortage.offers.iter().map(|o| (o.change.clone(), o.frees.mib_rounded_down(), o.is_enough)).collect();
    assert_eq!(found, expect);
    assert_eq!(shortage.short_with_all, Bytes::ZERO);
}

#[test]
fn a_model_that_no_change_saves_is_told_so() {
    let shortage = shortage(&dense_7b(), &machine(4, 0), &wish());
    // 4 + 0.5 + 0.2 + 0.125 against 3: the context is at its floor, so only coarser keys and values are left.
    assert_eq!(shortage.knobs.n_ctx, limits::AUTO_CONTEXT_FLOOR);
    let changes: Vec<&Change> = shortage.offers.iter().map(|offer| &offer.change).collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    let freed = Bytes(512 * MIB / 64 * 46);
    assert_eq!(shortage.short_with_all, shortage.shortfall.saturating_sub(freed));
}

#[test]
fn the_wish_is_the_configuration() {
    let mut config = Config::default();
    config.context.tokens = Setting::Exactly(Tokens(4096));
    config.host.line = Setting::Exactly(Bytes(5));
    config.kv.kv_type = KvType::Q4_0;
    config.worker.max_sessions = 7;
    let expect = Wish {
        context: Setting::Exactly(Tokens(4096)),
        kv_type: KvType::Q4_0,
        max_sessions: 7,
        host_line: Setting::Exactly(Bytes(5)),
    };
    assert_eq!(Wish::from(&config), expect);
}

#[test]
fn absurd_sizes_do_not_fit_anywhere() {
    let mut model = dense_7b();
    model.dense_weights = Bytes(u64::MAX);
    model.kv_layers[0].f16 = Bytes(u64::MAX);
    let shortage = shortage(&model, &machine(64, 0), &wish());
    assert!(shortage.shortfall > Bytes(1 << 60));
}

prop_compose! {
    fn any_model()(
        dense_mib in 0..20_000u64,
        experts_mib in prop::option::of(0..40_000u64),
        n_ctx_train in 1..200_000u32,
        layers in prop::collection::vec((1..9u64, prop::sample::select(vec![64, 80, 128, 256]), prop::option::of(1..4096u32)), 0..6),
        activations_mib in 0..500u64,
    ) -> ModelSizes {
        ModelSizes {
            file_bytes: Bytes((dense_mib + experts_mib.unwrap_or(0)) * MIB),
            dense_weights: Bytes(dense_mib * MIB),
            experts: experts_mib.map(|mib| Experts { bytes: Bytes(mib * MIB), n_experts: 64 }),
            n_ctx_train: Tokens(n_ctx_train),
            kv_layers: layers.into_iter().map(|(heads, dim, window)| kv_layer(heads, dim, window)).collect(),
            activations: Bytes(activations_mib * MIB),
        }
    }
}

prop_compose! {
    fn any_machine()(
        limit_mib in 0..70_000u64,
        foreign_mib in 0..20_000u64,
        programs in prop::collection::vec(0..5000u64, 0..6),
    ) -> MachineReading {
        let programs = programs.into_iter().zip(1..).map(|(mib, pid)| Program {
            pid, name: "p".to_owned(), user: "u".to_owned(), bytes: Bytes(mib * MIB),
        });
        MachineReading { host_limit: Bytes(limit_mib * MIB), host_foreign: Bytes(foreign_mib * MIB), programs: programs.collect() }
    }
}

prop_compose! {
    fn any_wish()(
        context in prop::option::of(64..200_000u32),
        kv_type in prop::sample::select(KvType::ALL.to_vec()),
        max_sessions in 1..8u32,
        line_mib in prop::option::of(256..70_000u64),
    ) -> Wish {
        Wish {
            context: context.map_or(Setting::Auto, |tokens| Setting::Exactly(Tokens(tokens))),
            kv_type,
            max_sessions,
            host_line: line_mib.map_or(Setting::Auto, |mib| Setting::Exactly(Bytes(mib * MIB))),
        }
    }
}

/// The wish after an offer was taken, and the machine after it.
fn taken(change: &Change, knobs: &Knobs, machine: &MachineReading, wish: &Wish) -> (MachineReading, Wish) {
    let (mut machine, mut wish) = (machine.clone(), *wish);
    wish.context = Setting::Exactly(knobs.n_ctx);
    match change {
        Change::CloseProgram(program) => machine.host_foreign = machine.host_foreign.saturating_sub(program.bytes),
        Change::Sessions { to, .. } => wish.max_sessions = *to,
        Change::Context { to, .. } => wish.context = Setting::Exactly(*to),
        Change::KvType { to, .. } => wish.kv_type = *to,
    }
    (machine, wish)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_plan_is_under_every_line_and_keeps_what_was_written(
        model in any_model(), machine in any_machine(), wish in any_wish(),
    ) {
        let Ok(plan) = plan(&model, &machine, &wish) else { return Ok(()) };
        for account in &plan.ledger.accounts {
            prop_assert_eq!(account.shortfall(), Bytes::ZERO);
            if let Some(bounds) = account.bounds {
                prop_assert!(account.used() <= bounds.line && bounds.line <= bounds.limit);
            }
        }
        prop_assert_eq!(plan.knobs.kv_type, wish.kv_type);
        prop_assert_eq!(plan.knobs.max_sessions, wish.max_sessions);
        match wish.context {
            Setting::Exactly(n_ctx) => prop_assert_eq!(plan.knobs.n_ctx, n_ctx),
            Setting::Auto => prop_assert!(plan.knobs.n_ctx <= model.n_ctx_train && plan.knobs.n_ctx <= limits::AUTO_CONTEXT_CAP),
        }
    }

    #[test]
    fn auto_leaves_no_larger_step_unused(model in any_model(), machine in any_machine(), wish in any_wish()) {
        let wish = Wish { context: Setting::Auto, ..wish };
        let Ok(chosen) = plan(&model, &machine, &wish) else { return Ok(()) };
        let next = Tokens(chosen.knobs.n_ctx.0 * 2).min(model.n_ctx_train).min(limits::AUTO_CONTEXT_CAP);
        if next > chosen.knobs.n_ctx {
            let larger = Wish { context: Setting::Exactly(next), ..wish };
            prop_assert!(plan(&model, &machine, &larger).is_err(), "{:?} fits too", next);
        }
    }

    #[test]
    fn an_offer_frees_what_it_says(model in any_model(), machine in any_machine(), wish in any_wish()) {
        let Err(Refusal::DoesNotFit(shortage)) = plan(&model, &machine, &wish) else { return Ok(()) };
        prop_assert!(shortage.shortfall > Bytes::ZERO);
        prop_assert!(shortage.offers.len() <= limits::MAX_PROGRAM_OFFERS + 4);
        prop_assert!(shortage.short_with_all <= shortage.shortfall);
        let used = shortage.ledger.account(shortage.account).expect("it is over its line").used();
        for offer in &shortage.offers {
            prop_assert!(offer.frees > Bytes::ZERO);
            prop_assert!(!offer.change.price().is_empty());
            if matches!(&offer.change, Change::CloseProgram(program) if program.bytes > machine.host_foreign) {
                continue; // shared bytes: more than what is foreign can't come back
            }
            let (machine, wish) = taken(&offer.change, &shortage.knobs, &machine, &wish);
            let ledger = match plan(&model, &machine, &wish) {
                Ok(plan) => { prop_assert!(offer.is_enough); plan.ledger }
                Err(Refusal::DoesNotFit(again)) => { prop_assert!(!offer.is_enough); again.ledger }
                Err(Refusal::KvTypeImpossible { .. }) => return Err(TestCaseError::fail("offered what is impossible")),
            };
            let then = ledger.account(shortage.account).expect("still there").used();
            prop_assert_eq!(used.saturating_sub(then), offer.frees);
        }
    }
}
