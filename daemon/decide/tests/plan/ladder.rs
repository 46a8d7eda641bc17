//! What the planner gives up by itself, and takes back where a dearer lever makes a cheaper one superfluous.

use plimsoll_config::config::Setting;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::plan::{Change, Draft, Images, MachineReading, ModelSizes, Plan, Wish};

use crate::fixtures::{fits, mib, shortage, workstation, workstation_card, workstation_model, workstation_wish};

/// The workstation whose start test is short by so many MiB with everything at its best: 960 of reserve, 86 of draft head and
/// 826.9 of floor are asked for.
fn short_by(n_mib: u64, image_encoder: Option<Bytes>) -> (ModelSizes, MachineReading) {
    let model = ModelSizes { image_encoder, ..workstation_model() };
    let images = image_encoder.unwrap_or_default();
    let free = Bytes(mib(960 + 86).0 + model.cache_floor().1.0 + images.0 - mib(n_mib).0);
    let machine = workstation(workstation_card(&model, free));
    (model, machine)
}

fn given_up(model: &ModelSizes, machine: &MachineReading, wish: &Wish) -> Vec<Change> {
    fits(model, machine, wish).given_up
}

/// The context frees 32 MiB at most, a smaller reserve 256, a smaller vocabulary 86 and 128 of the reserve.
#[test]
fn a_cheap_lever_is_taken_back_where_a_dear_one_is_enough() {
    let wish = Wish { context: Setting::Auto, reserve: Setting::Auto, draft: Setting::Auto, ..workstation_wish(0) };
    let kv = |n_ctx| workstation_model().kv_bytes(wish.kv_type, Tokens(n_ctx)).expect("whole blocks");
    let saved = |n_ctx| kv(8192).saturating_sub(kv(n_ctx)).mib_rounded_down();
    assert_eq!([saved(4096), saved(1024)], [18, 32]);
    // The card was sized for 131,072 tokens; 8,192 leave 558 MiB of that.
    let at = |n_mib: u64| {
        let (model, machine) = short_by(n_mib + 558, None);
        given_up(&model, &machine, &wish)
    };
    let context = |to| Change::Context { from: Tokens(8192), to: Tokens(to) };
    let reserve = || Change::Reserve { from: mib(960), to: mib(704) };
    assert_eq!(at(18), [context(4096)]);
    assert_eq!(at(32), [context(1024)]);
    assert_eq!(at(34), [reserve()], "the context is as it was");
    assert_eq!(at(255), [reserve()]);
    assert_eq!(at(270), [context(4096), reserve()], "as far as is needed");
    assert_eq!(at(288), [context(1024), reserve()]);
    let smaller = Change::Reserve { from: mib(960), to: mib(576) };
    assert_eq!(at(300), [smaller, Change::Draft { from: Draft::Full, to: Draft::Small }]);
}

/// Images on the CPU helped the card, but not enough, and took the host memory of experts. With the smaller vocabulary they
/// are read on the card again, and then the experts have their memory back too.
#[test]
fn images_that_are_back_on_the_card_give_host_memory_back() {
    let (model, machine) = short_by(60, Some(mib(50)));
    let wish = Wish {
        reserve: Setting::Exactly(mib(960)),
        draft: Setting::Auto,
        resident_budget: Some(Setting::Auto),
        ..workstation_wish(0)
    };
    let roomy = fits(&model, &machine, &Wish { draft: Setting::Exactly(Draft::Small), ..wish });
    assert_eq!(roomy.given_up, []);
    // The host line is where this plan has 20 MiB left beside the least budget.
    let host = |plan: &Plan| plan.ledger.accounts[0].used();
    let budget = roomy.knobs.resident_budget.expect("it has experts");
    let line = Bytes(host(&roomy).0 - budget.0 + model.token_cycle().0 + mib(20).0);
    let wish = Wish { host_line: Setting::Exactly(line), ..wish };
    let draft = Change::Draft { from: Draft::Full, to: Draft::Small };
    assert_eq!(given_up(&model, &machine, &wish), [draft]);
    // With images where the user wants them the experts can't be back.
    let on_cpu = Wish { images: Setting::Exactly(Images::Cpu), ..wish };
    let changes = given_up(&model, &machine, &on_cpu);
    assert!(matches!(changes[..], [Change::Draft { .. }, Change::ResidentBudget { .. }]), "{changes:?}");
}

/// A refusal shows the end of the ladder: nothing is taken back where nothing fits.
#[test]
fn a_refusal_has_every_lever_at_its_end() {
    let wish = Wish { context: Setting::Auto, reserve: Setting::Auto, draft: Setting::Auto, ..workstation_wish(0) };
    let (model, machine) = short_by(1500, None);
    let knobs = shortage(&model, &machine, &wish).knobs;
    assert_eq!((knobs.n_ctx, knobs.reserve, knobs.draft), (Tokens(1024), Some(mib(576)), Some(Draft::Small)));
}
