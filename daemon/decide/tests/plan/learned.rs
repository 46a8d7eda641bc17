//! What a start was measured at corrects the estimates of the next plan, and nothing else.

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::reconcile::{Measured, reconcile};
use plimsoll_decide::ledger::{AccountId, Basis, Entry, Object};
use plimsoll_decide::measured::{Experience, Truth};
use plimsoll_decide::plan::{MachineReading, ModelSizes, Plan, Wish};

use crate::fixtures::{
    self, dense_7b, fits, gib, machine, mib, wish, workstation, workstation_card, workstation_model, workstation_wish,
};

const HASH: &str = "sha256:1f";
const GPU: AccountId = AccountId::Vram(0);

/// A start of a plan in which these objects held so much, and the others what was planned.
fn start(truth: &mut Truth, plan: &Plan, held: &[(AccountId, Object, Bytes)]) {
    for account in &plan.ledger.accounts {
        let measured = |entry: &Entry| {
            let found = held.iter().find(|(id, object, _)| (*id, *object) == (account.id, entry.object));
            (entry.object, found.map_or(entry.bytes, |(_, _, bytes)| *bytes))
        };
        let objects: Vec<(Object, Bytes)> = account.entries.iter().map(measured).collect();
        let found = Measured { used: objects.iter().map(|(_, bytes)| *bytes).sum(), objects };
        let estimates = plan.estimates.get(&account.id).map(Vec::as_slice).unwrap_or_default();
        truth.note(HASH, account, estimates, &reconcile(account, &found));
    }
}

fn with(machine: &MachineReading, truth: &Truth, model_hash: &str) -> MachineReading {
    let experience = Experience { model_hash: model_hash.to_owned(), truth: truth.clone() };
    MachineReading { experience: Some(experience), ..machine.clone() }
}

/// The estimates of both accounts, as a plan has them.
fn estimated(plan: &Plan) -> Vec<(AccountId, Object, Bytes)> {
    let accounts = plan.ledger.accounts.iter();
    let entries = accounts.flat_map(|account| account.entries.iter().map(move |entry| (account.id, entry)));
    let estimated = entries.filter(|(_, entry)| entry.basis == Basis::Estimated && entry.object.is_held());
    estimated.map(|(id, entry)| (id, entry.object, entry.bytes)).collect()
}

/// The same before corrections.
fn uncorrected(plan: &Plan) -> Vec<(AccountId, Object, Bytes)> {
    let mut found: Vec<_> = plan
        .estimates
        .iter()
        .flat_map(|(id, estimates)| estimates.iter().map(|estimate| (*id, estimate.object, estimate.bytes)))
        .collect();
    found.sort_unstable();
    found
}

fn sorted(mut entries: Vec<(AccountId, Object, Bytes)>) -> Vec<(AccountId, Object, Bytes)> {
    entries.sort_unstable();
    entries
}

fn workstation_case() -> (ModelSizes, MachineReading, Wish) {
    let model = workstation_model();
    let machine = workstation(workstation_card(&model, mib(3607)));
    (model, machine, workstation_wish(1728))
}

#[test]
fn a_plan_keeps_what_it_estimated() {
    let (model, machine, wish) = workstation_case();
    let plan = fits(&model, &machine, &wish);
    let expect = [
        (AccountId::Host, Object::Activations, mib(96)),
        (AccountId::Host, Object::Staging, limits::STAGING_ESTIMATE),
        (AccountId::Host, Object::Service, limits::SERVICE_ESTIMATE),
        (GPU, Object::Context, mib(287)),
        (GPU, Object::PromptPath, mib(226)),
    ];
    assert_eq!(uncorrected(&plan), sorted(expect.to_vec()));
    assert_eq!(sorted(estimated(&plan)), uncorrected(&plan), "nothing was learned yet");
    // What the plan does not have is not there.
    let dense = fits(&dense_7b(), &fixtures::machine(64, 500), &fixtures::wish());
    let objects: Vec<Object> = uncorrected(&dense).iter().map(|(_, object, _)| *object).collect();
    assert_eq!(objects, [Object::Activations, Object::Service]);
}

#[test]
fn the_second_plan_has_what_the_first_start_showed() {
    let (model, machine, wish) = workstation_case();
    let first = fits(&model, &machine, &wish);
    let held = [
        (AccountId::Host, Object::Activations, mib(120)),
        (AccountId::Host, Object::Service, mib(160)),
        (GPU, Object::Context, mib(310)),
        (GPU, Object::PromptPath, mib(300)),
        // Of what is computed an error is a mistake, and of others nothing is ours to learn.
        (AccountId::Host, Object::DenseWeights, mib(2000)),
        (AccountId::Host, Object::Foreign, gib(20)),
        (GPU, Object::ExpertCache, mib(3000)),
    ];
    let mut truth = Truth::default();
    start(&mut truth, &first, &held);
    let second = fits(&model, &with(&machine, &truth, HASH), &wish);
    let expect = [
        (AccountId::Host, Object::Activations, mib(120)),
        (AccountId::Host, Object::Staging, limits::STAGING_ESTIMATE),
        (AccountId::Host, Object::Service, mib(160)),
        (GPU, Object::Context, mib(310)),
        (GPU, Object::PromptPath, mib(300)),
    ];
    assert_eq!(sorted(estimated(&second)), sorted(expect.to_vec()));
    assert_eq!(uncorrected(&second), uncorrected(&first));
    let others = |plan: &Plan| -> Vec<Entry> {
        let entries = plan.ledger.accounts.iter().flat_map(|account| account.entries.clone());
        // The cache is what the card's objects leave, the slack what the reserve's leave.
        let follows = |object| matches!(object, Object::ExpertCache | Object::Slack);
        let kept = entries.filter(|entry| entry.basis != Basis::Estimated && !follows(entry.object));
        kept.map(|entry| Entry { detail: String::new(), ..entry }).collect()
    };
    assert_eq!(others(&first), others(&second), "planned and measured figures stay");
    // 23 MiB less for the cache: 23 of context; the reserve was written.
    let cached = |plan: &Plan| plan.knobs.expert_cache.expect("there is a card");
    let lost = cached(&first).saturating_sub(cached(&second));
    assert!(lost > mib(20) && lost < mib(26), "{lost}");
    // A reserve that is left to us takes the larger prompt path in: 74 + 86 + 300 + 512 up to the next 64.
    let auto = Wish { reserve: Setting::Auto, ..wish };
    assert_eq!(fits(&model, &with(&machine, &truth, HASH), &auto).knobs.reserve, Some(mib(1024)));
    assert_eq!(fits(&model, &machine, &auto).knobs.reserve, Some(mib(960)));
    // Another model's starts teach nothing.
    assert_eq!(fits(&model, &with(&machine, &truth, "sha256:2e"), &wish), first);
}

#[test]
fn a_plan_never_learns_from_its_own_corrections() {
    let (model, machine, wish) = workstation_case();
    let mut truth = Truth::default();
    let mut plans = Vec::new();
    for _ in 0..2 * limits::MAX_MEASURED_STARTS {
        let plan = fits(&model, &with(&machine, &truth, HASH), &wish);
        start(&mut truth, &plan, &[(AccountId::Host, Object::Service, mib(192)), (GPU, Object::Context, mib(300))]);
        plans.push(plan);
    }
    assert!(plans[1..].iter().all(|plan| plan == &plans[1]), "the second plan and all later ones are the same");
    assert_ne!(plans[0], plans[1]);
}

/// A card too small by what the driver's context really takes.
#[test]
fn a_corrected_context_counts_for_dense_layers_too() {
    let mut gpu = workstation_card(&workstation_model(), Bytes::ZERO);
    (gpu.free, gpu.total) = (mib(940 - 13 + 2 * 184), gib(8)); // 287 + 640 of reserve, two layers
    let machine = MachineReading { gpus: vec![gpu], ..machine(64, 500) };
    let wish = Wish { context: Setting::Exactly(Tokens(4096)), ..wish() };
    let first = fits(&dense_7b(), &machine, &wish);
    assert_eq!(first.placement.gpu_layers, [0, 1]);
    let mut truth = Truth::default();
    start(&mut truth, &first, &[(GPU, Object::Context, mib(288))]);
    let second = fits(&dense_7b(), &with(&machine, &truth, HASH), &wish);
    assert_eq!(second.placement.gpu_layers, [0]);
}
