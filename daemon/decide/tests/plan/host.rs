//! Machines without a card: the host account alone.

use plimsoll_config::config::{Config, KvType, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis, Tokens};
use plimsoll_decide::ledger::{AccountId, Object, host_line};
use plimsoll_decide::plan::{
    Cause, Change, Experts, LayerSizes, MachineReading, ModelSizes, Note, Plan, Reaction, Refusal, Shortfall, Wish,
    plan,
};

use crate::fixtures::{GIB, MIB, dense_7b, fits, gib, kv_layer, layer, listed, machine, mib, program, shortage, wish};

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
    model.layers = [Some(512), None].map(|window| layer(mib(1), kv_layer(1, 256, window))).to_vec();
    assert_eq!(model.kv_bytes(KvType::F16, Tokens(100)), Some(Bytes(2 * 1024 * 100)));
    assert_eq!(model.kv_bytes(KvType::F16, Tokens(2048)), Some(Bytes(1024 * (512 + 2048))));
}

#[test]
fn auto_takes_the_largest_step_that_fits() {
    let check = |limit_gib: u64, foreign_mib: u64, n_ctx: u32, given_up: &[Change]| {
        let plan = fits(&dense_7b(), &machine(limit_gib, foreign_mib), &wish());
        assert_eq!(plan.knobs.n_ctx, Tokens(n_ctx), "{limit_gib} GiB, {foreign_mib} MiB foreign");
        assert_eq!((plan.given_up.as_slice(), plan.notes.as_slice()), (given_up, &[][..]));
    };
    let reduced = |to| Change::Context { from: Tokens(8192), to: Tokens(to) };
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
    let knobs = (fits.knobs.n_ctx, fits.knobs.kv_type, fits.knobs.max_sessions);
    assert_eq!(knobs, (Tokens(16_384), KvType::F16, 2));
    assert_eq!((fits.knobs.reserve, fits.knobs.kv_window, fits.knobs.expert_cache), (None, None, None));
    assert_eq!((fits.notes, fits.given_up), (vec![], vec![]));
    let refused = shortage(&dense_7b(), &machine(16, 0), &wish);
    assert_eq!(refused.knobs, fits.knobs);

    let long = Wish { context: Setting::Exactly(Tokens(40_000)), max_sessions: 1, ..wish };
    let note = Note::ContextBeyondTraining { n_ctx: Tokens(40_000), n_ctx_train: Tokens(32_768) };
    assert_eq!(plan(&dense_7b(), &machine(64, 0), &long).expect("fits").notes, [note]);

    let line = Wish { host_line: Setting::Exactly(Bytes(99 * GIB)), ..self::wish() };
    let note = Note::LineAboveLimit { line: Bytes(99 * GIB), limit: Bytes(64 * GIB) };
    assert_eq!(plan(&dense_7b(), &machine(64, 0), &line).expect("fits").notes, [note]);
    let all = Wish { host_line: Setting::Exactly(Bytes(64 * GIB)), ..line };
    assert_eq!(plan(&dense_7b(), &machine(64, 0), &all).expect("fits").notes, []);
}

/// 20 GiB of experts beside the 7B's dense weights.
fn moe_20g() -> ModelSizes {
    let layer = |layer: LayerSizes| LayerSizes { expert: Some(mib(10)), ..layer };
    let layers = dense_7b().layers.into_iter().map(layer).collect();
    ModelSizes { layers, experts: Some(Experts { per_layer: 64, top_k: 4, loan_slots: 32 }), ..dense_7b() }
}

#[test]
fn there_are_no_ghosts() {
    let objects = |plan: &Plan| -> Vec<Object> {
        let host = plan.ledger.account(AccountId::Host).expect("every machine has memory");
        host.entries.iter().map(|entry| entry.object).collect()
    };
    let dense = plan(&dense_7b(), &machine(64, 500), &wish()).expect("fits");
    assert!(dense.ledger.account(AccountId::Vram(0)).is_none());
    assert!(!objects(&dense).contains(&Object::ExpertResident));
    assert_eq!(dense.placement.experts, None);
    let moe = fits(&moe_20g(), &machine(64, 500), &wish());
    use Object::{Activations, DenseWeights, ExpertResident, Foreign, Kv, Service, Staging};
    assert_eq!(objects(&moe), [ExpertResident, DenseWeights, Kv, Activations, Service, Foreign]);
    // Bytes move between tiers only where experts are read on demand.
    let on_demand = fits(&moe_20g(), &machine(64, 500), &Wish { resident_budget: Some(Setting::Auto), ..wish() });
    assert_eq!(objects(&on_demand), [ExpertResident, DenseWeights, Kv, Staging, Activations, Service, Foreign]);
}

#[test]
fn accounts_add_up() {
    let plan = plan(&dense_7b(), &machine(64, 500), &wish()).expect("fits");
    let host = plan.ledger.account(AccountId::Host).expect("every machine has memory");
    assert_eq!(host.own(), Bytes(8 * GIB + 200 * MIB + limits::SERVICE_ESTIMATE.0));
    assert_eq!(host.foreign(), Bytes(500 * MIB));
    assert_eq!(host.used(), Bytes(host.own().0 + host.foreign().0));
    assert_eq!(host.headroom(), Some(Bytes(57 * GIB - host.used().0)));
    assert_eq!(host.shortfall(), Bytes::ZERO);
    let disk = plan.ledger.account(AccountId::Disk).expect("the model has a file");
    assert_eq!((disk.headroom(), disk.shortfall(), disk.used()), (None, Bytes::ZERO, Bytes(4 * GIB)));
}

#[test]
fn a_type_that_heads_are_not_made_for_is_refused_and_not_offered() {
    let mut model = dense_7b();
    model.layers = vec![layer(mib(120), kv_layer(32, 80, None)); 32];
    let wish = Wish { kv_type: KvType::Q8_0, ..wish() };
    assert_eq!(plan(&model, &machine(64, 0), &wish), Err(Refusal::KvTypeImpossible { kv_type: KvType::Q8_0 }));
    let shortage = shortage(&model, &machine(4, 0), &self::wish());
    assert_eq!(shortage.offers, []);
}

#[test]
fn offers_come_in_order_of_price_and_say_when_one_is_enough() {
    let programs = vec![
        program(1, "small", mib(60)), // under what is worth closing
        program(2, "browser", mib(900)),
        program(3, "python3", mib(2560)),
        program(4, "d", mib(300)),
        program(5, "e", mib(200)), // the fourth
    ];
    let machine = MachineReading { programs, ..machine(16, 4000) };
    let wish = Wish { context: Setting::Exactly(Tokens(8192)), max_sessions: 2, ..wish() };
    // 4 + 8 + 0.2 + 0.125 + 3.9 GiB against 14.08: 2.15 GiB are missing.
    let shortage = shortage(&dense_7b(), &machine, &wish);
    let short: Vec<_> =
        shortage.shortfalls.iter().map(|short| (short.account, short.bytes.mib_rounded_up(), short.cause)).collect();
    assert_eq!(short, [(AccountId::Host, 2199, Cause::OverLine)]); // 16,616 less the line of 14,417.92
    let close = |at: usize| Change::CloseProgram { program: machine.programs[at].clone(), account: AccountId::Host };
    let expect = [
        (close(2), 2560, true),
        (close(1), 900, false),
        (close(3), 300, false),
        (Change::Sessions { from: 2, to: 1 }, 4096, true),
        (Change::Context { from: Tokens(8192), to: Tokens(4096) }, 4096, true),
        (Change::KvType { from: KvType::F16, to: KvType::Q8_0 }, 3840, true),
        (Change::KvType { from: KvType::F16, to: KvType::Q4_0 }, 5888, true),
    ];
    assert_eq!(listed(&shortage.offers), expect);
    assert_eq!((shortage.short_with_all, shortage.combinations, shortage.adapt), (vec![], vec![], None));
}

#[test]
fn a_model_that_no_change_saves_is_told_so() {
    let shortage = shortage(&dense_7b(), &machine(4, 0), &wish());
    // 4 + 0.5 + 0.2 + 0.125 against 3: the context is at its floor, so only coarser keys and values are left.
    assert_eq!(shortage.knobs.n_ctx, limits::AUTO_CONTEXT_FLOOR);
    let changes: Vec<&Change> = shortage.offers.iter().map(|offer| &offer.change).collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    let freed = Bytes(512 * MIB / 64 * 46);
    let short = |shortfalls: &[Shortfall]| shortfalls.iter().map(|short| short.bytes).sum::<Bytes>();
    assert_eq!(short(&shortage.short_with_all), short(&shortage.shortfalls).saturating_sub(freed));
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
        ..wish()
    };
    assert_eq!(Wish::from(&config), expect);
}

#[test]
fn absurd_sizes_do_not_fit_anywhere() {
    let mut model = dense_7b();
    model.dense_weights = Bytes(u64::MAX);
    model.layers[0].kv.f16 = Bytes(u64::MAX);
    let shortage = shortage(&model, &machine(64, 0), &wish());
    assert!(shortage.shortfalls[0].bytes > Bytes(1 << 60));
}

#[test]
fn the_line_is_never_closer_than_memory_can_vanish() {
    let reaction = |growth_mib| Reaction {
        growth_per_second: mib(growth_mib),
        sample: Millis(200),
        decide: Millis(1),
        hand_over: Millis(50),
        give_back: Millis(149),
    };
    let with = |growth_mib| MachineReading { reaction: Some(reaction(growth_mib)), ..machine(62, 0) };
    let line = |machine: &MachineReading, wish: &Wish| {
        let plan = fits(&dense_7b(), machine, wish);
        let host = plan.ledger.account(AccountId::Host).and_then(|host| host.bounds).expect("it has a line");
        (host.line, plan.reaction_margin, plan.notes)
    };
    // 0.4 s at 10 GiB a second are less than the 7 GiB over the line, at 30 more.
    assert_eq!(line(&with(10 * 1024), &wish()), (gib(55), Some(gib(4)), vec![]));
    assert_eq!(line(&with(30 * 1024), &wish()), (gib(50), Some(gib(12)), vec![]));
    assert_eq!(line(&machine(62, 0), &wish()), (gib(55), None, vec![]));
    // A line that was written stays, and the plan says what it risks.
    let written = Wish { host_line: Setting::Exactly(gib(55)), ..wish() };
    let note = Note::LineWithinMargin { gap: gib(7), margin: gib(12) };
    assert_eq!(line(&with(30 * 1024), &written), (gib(55), Some(gib(12)), vec![note]));
    assert_eq!(reaction(u64::MAX >> 20).margin(), Bytes(((u64::MAX >> 20 << 20) as u128 * 400 / 1000) as u64));
}

#[test]
fn the_usual_rough_table_is_shown_beside_ours() {
    let plan = fits(&dense_7b(), &machine(64, 0), &Wish { context: Setting::Exactly(Tokens(4096)), ..wish() });
    // (4 + 2 + 0.2) × 1.15, within what whole percents of a byte lose.
    assert_eq!(plan.rough_rule.gib_text(2), "7.13");
    let moe = moe_20g();
    assert_eq!(moe.rough_rule(Bytes::ZERO, 0).gib_text(1), "27.6");
    assert_eq!(moe.token_cycle(), mib(32 * 4 * 10));
    assert_eq!(moe.cache_floor(), (96, mib(960)));
    assert_eq!(
        (dense_7b().token_cycle(), dense_7b().cache_floor(), dense_7b().n_experts()),
        (Bytes::ZERO, (0, Bytes::ZERO), 0)
    );
}

#[test]
fn the_resident_budget_is_what_the_line_leaves() {
    let auto = Wish { resident_budget: Some(Setting::Auto), ..wish() };
    let placed = |limit_gib| {
        let plan = fits(&moe_20g(), &machine(limit_gib, 0), &auto);
        let experts = plan.placement.experts.expect("it has some");
        let host = plan.ledger.account(AccountId::Host).expect("every machine has memory");
        (experts.n_resident, experts.n_file_only, host.headroom().unwrap_or_default() > Bytes::ZERO)
    };
    assert_eq!(placed(64), (2048, 0, true));
    let (n_resident, n_file_only, has_headroom) = placed(24);
    assert_eq!((n_resident + n_file_only, has_headroom), (2048, false));
    assert_eq!(n_resident, (24 * 1024 * 88 / 100 - (8192 + 200 + 128 + 256)) / 10);
}

#[test]
fn a_resident_pool_under_the_token_cycle_is_the_last_thing_that_is_given_up() {
    let auto = Wish { resident_budget: Some(Setting::Auto), ..wish() };
    // 4 GiB + 0.6 and the context's 0.5 at least; the cycle of 1.25 GiB fits under 7 GiB, not under 5.5.
    let given_up = |line_mib| {
        let line = Setting::Exactly(mib(line_mib));
        fits(&moe_20g(), &machine(8, 0), &Wish { host_line: line, ..auto }).given_up
    };
    let context = |to| Change::Context { from: Tokens(8192), to: Tokens(to) };
    assert_eq!(given_up(7 * 1024), [context(2048)]);
    let pool = Change::ResidentBudget { from: mib(1280), to: mib(5600 - 4096 - 512 - 200 - 128 - 256) };
    assert_eq!(given_up(5600), [context(1024), pool]);
}

#[test]
fn an_explicit_budget_is_kept_and_offered_smaller() {
    let explicit = Wish { resident_budget: Some(Setting::Exactly(gib(18))), ..wish() };
    let refused = shortage(&moe_20g(), &machine(24, 0), &explicit);
    let Some(last) = refused.offers.last() else { panic!("nothing is offered") };
    // 18 + 4 + 0.5 + 0.57 against 21.12: 1.96 GiB are missing.
    let change = Change::ResidentBudget { from: gib(18), to: gib(16) };
    assert_eq!((&last.change, last.frees, last.is_enough), (&change, gib(2), true));
    assert_eq!(refused.knobs.resident_budget, Some(gib(18)));
    // More than there is to hold is no demand.
    let plan = fits(&moe_20g(), &machine(64, 0), &Wish { resident_budget: Some(Setting::Exactly(gib(30))), ..wish() });
    assert_eq!(plan.knobs.resident_budget, Some(gib(20)));
}
