//! Plans under learned bounds: nothing over them, nothing written is changed, and each step down ends.

use plimsoll_config::config::Setting;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::lifecycle::death::OomAccount;
use plimsoll_decide::lifecycle::learned::Learned;
use plimsoll_decide::plan::{CapLever, Caps, MachineReading, ModelSizes, Plan, Refusal, Wish, plan};
use plimsoll_decide::render::refusal_text;

use crate::fixtures::{
    dense_7b, fits, gib, machine, mib, wish, workstation, workstation_card, workstation_model, workstation_wish,
};

fn under(caps: Caps, machine: MachineReading) -> MachineReading {
    MachineReading { caps, ..machine }
}

/// The workstation with everything left to the planner.
fn open_wish() -> Wish {
    Wish {
        context: Setting::Auto,
        resident_budget: Some(Setting::Auto),
        reserve: Setting::Auto,
        kv_window: Some(Setting::Auto),
        ..workstation_wish(1728)
    }
}

/// Runs out of an account again and again, and plans under what was learned of it; says where each plan stood.
fn lowered(model: &ModelSizes, machine: &MachineReading, wish: &Wish, account: OomAccount) -> Vec<Caps> {
    let mut learned = Learned::default();
    let mut all: Vec<Caps> = Vec::new();
    loop {
        let plan = fits(model, &under(learned.caps(), machine.clone()), wish);
        let (ours, caps) = (plan.ours(wish), learned.caps());
        for lever in CapLever::ALL {
            if let (Some(stands), Some(cap)) = (ours.get(lever), caps.get(lever)) {
                assert!(stands <= cap, "{lever:?}: {stands} over {cap}");
            }
        }
        assert!(!all.contains(&ours), "the same plan again: {ours:?}");
        all.push(ours);
        assert!(all.len() < 200, "it does not end");
        if learned.lower(account, &ours).is_none() {
            return all;
        }
    }
}

#[test]
fn each_death_makes_the_plan_smaller_until_nothing_is_left_to_lower() {
    let model = workstation_model();
    let machine = workstation(workstation_card(&model, mib(4000)));
    let host = lowered(&model, &machine, &open_wish(), OomAccount::Host);
    assert!(host.len() > 10 && host[0].resident_budget > Some(gib(20)), "{host:?}");
    assert!(host.last().is_some_and(|last| last.resident_budget < Some(mib(64)) && last.n_ctx.is_none()), "{host:?}");
    let vram = lowered(&model, &machine, &open_wish(), OomAccount::Vram);
    assert!(vram.len() > 10 && vram[0].expert_cache > vram[1].expert_cache, "{vram:?}");
    assert!(vram.last().is_some_and(|last| last.kv_window < Some(Tokens(8192))), "{vram:?}");
}

#[test]
fn a_dense_model_gives_layers_back() {
    let mut machine = machine(62, 4000);
    let mut gpu = workstation_card(&workstation_model(), mib(0));
    gpu.free = gib(8);
    machine.gpus = vec![gpu];
    let vram = lowered(&dense_7b(), &machine, &wish(), OomAccount::Vram);
    let layers: Vec<Option<u32>> = vram.iter().map(|ours| ours.gpu_layers).collect();
    assert!(layers[0] > Some(4) && layers[0] > layers[1], "{layers:?}");
    assert!(layers.last() == Some(&None), "at last nothing is on the card: {layers:?}");
}

#[test]
fn without_a_card_or_experts_the_context_is_what_can_be_lowered() {
    let host = lowered(&dense_7b(), &machine(62, 0), &wish(), OomAccount::Host);
    let n_ctx: Vec<Option<u32>> = host.iter().map(|ours| ours.n_ctx.map(|tokens| tokens.0)).collect();
    assert_eq!(n_ctx, [Some(8192), Some(4096), Some(2048), None]);
}

#[test]
fn what_is_written_is_neither_lowered_nor_lowerable() {
    let model = workstation_model();
    let machine = workstation(workstation_card(&model, mib(4000)));
    let written = Wish {
        gpu_layers: Setting::Exactly(48),
        kv_window: Some(Setting::Exactly(Tokens(9000))),
        ..workstation_wish(1728)
    };
    let ours = |plan: &Plan, wish: &Wish| plan.ours(wish);
    let plan_of = |wish: &Wish| fits(&model, &machine, wish);
    let expert_cache = plan_of(&written).knobs.expert_cache;
    assert_eq!(ours(&plan_of(&written), &written), Caps { expert_cache, ..Caps::default() });
    let check = |lever, cap: u64, wish: Wish, words: &str| {
        let capped = under(Caps::default().with(lever, cap), machine.clone());
        let refusal = plan(&model, &capped, &wish).expect_err("a written value is over a bound");
        assert!(matches!(refusal, Refusal::OverLearnedCap { lever: which, .. } if which == lever), "{refusal:?}");
        let text = refusal_text(&refusal);
        assert!(text.contains(words) && text.contains("ran out of memory"), "{text}");
        // At the bound it is as written.
        assert!(!matches!(
            plan(&model, &under(Caps::default().with(lever, u64::MAX), machine.clone()), &wish),
            Err(Refusal::OverLearnedCap { .. })
        ));
    };
    check(
        CapLever::Context,
        65_536,
        written,
        "the context is at most 65,536 tokens now, but 131,072 tokens is written",
    );
    check(
        CapLever::ResidentBudget,
        gib(16).0,
        written,
        "the resident budget is at most 16.00 GiB now, but 32.00 GiB is written",
    );
    check(CapLever::GpuLayers, 40, written, "the gpu layers is at most 40 now, but 48 is written");
    check(CapLever::KvWindow, 8192, written, "the kv window is at most 8,192 tokens now, but 9,000 tokens is written");
}

#[test]
fn a_bound_above_the_plan_changes_nothing_and_the_lower_of_two_counts() {
    let model = workstation_model();
    let machine = workstation(workstation_card(&model, mib(4000)));
    let free = fits(&model, &machine, &open_wish());
    let high = CapLever::ALL.into_iter().fold(Caps::default(), |caps, lever| caps.with(lever, u64::MAX));
    assert_eq!(fits(&model, &under(high, machine), &open_wish()), free);
    let caps = Caps::default().with(CapLever::ExpertCache, 7).with(CapLever::ExpertCache, 9);
    assert_eq!(caps.expert_cache, Some(Bytes(7)));
    assert_eq!(CapLever::ALL.map(CapLever::name).len(), 5);
}
