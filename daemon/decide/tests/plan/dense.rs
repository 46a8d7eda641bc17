//! Dense models on a card: layers by time saved per byte.

use plimsoll_config::config::Setting;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::{AccountId, Object};
use plimsoll_decide::plan::{CardReading, Cause, Change, MachineReading, ModelSizes, Note, Plan, Wish};
use plimsoll_decide::render::{plan_text, refusal_text};

use crate::fixtures::{dense_7b, fits, gib, listed, machine, mib, shortage, wish};

const GPU: AccountId = AccountId::Vram(0);

/// A card of 8 GiB with so much of it free.
fn card(free_mib: u64) -> CardReading {
    CardReading {
        index: 0,
        name: "card".to_owned(),
        total: gib(8),
        free: mib(free_mib),
        context: mib(300),
        driver_reserved: None,
        programs: Vec::new(),
        bytes_per_second: Some(Bytes(200_000_000_000)),
        request_start: None,
        layer_gains_ns: Vec::new(),
    }
}

fn with_card(gpu: CardReading) -> MachineReading {
    MachineReading { gpus: vec![gpu], host_bytes_per_second: Some(Bytes(20_000_000_000)), ..machine(32, 500) }
}

fn wish_4k() -> Wish {
    Wish { context: Setting::Exactly(Tokens(4096)), ..wish() }
}

fn objects(plan: &Plan, id: AccountId, object: Object) -> Option<Bytes> {
    plan.ledger.account(id).expect("it is there").object(object)
}

/// Each layer is 120 MiB and 64 of keys and values; context and reserve take 300 + 640 (100 + 512, up to the next 64).
#[test]
fn as_many_layers_as_fit_exactly() {
    let check = |free_mib, n_layers: u64, output| {
        let plan = fits(&dense_7b(), &with_card(card(free_mib)), &wish_4k());
        assert_eq!((plan.placement.gpu_layers.len() as u64, plan.placement.output_on_gpu), (n_layers, output));
        assert_eq!(plan.placement.gpu_layers, (0..n_layers as u32).collect::<Vec<_>>());
        let moved = n_layers * 120 + if output { 128 } else { 0 };
        assert_eq!(objects(&plan, AccountId::Host, Object::DenseWeights), Some(mib(4096 - moved)));
        let host_kv = objects(&plan, AccountId::Host, Object::Kv).unwrap_or_default();
        assert_eq!(host_kv, mib((32 - n_layers) * 64), "one place for each layer's");
        plan
    };
    check(940 + 10 * 184, 10, false);
    check(940 + 10 * 184 - 1, 9, true); // 183 are left: the output's 128 fit
    let all = check(940 + 32 * 184 + 128, 32, true);
    assert_eq!(objects(&all, AccountId::Host, Object::Kv), None, "no ghost of it");
    assert_eq!(objects(&all, GPU, Object::DenseWeights), Some(mib(32 * 120 + 128)));
    assert_eq!(objects(&all, AccountId::Host, Object::Staging), None);
}

#[test]
fn a_card_too_small_for_a_layer_is_left_alone() {
    for free_mib in [0, 939, 940 + 127] {
        let plan = fits(&dense_7b(), &with_card(card(free_mib)), &wish_4k());
        assert_eq!((plan.placement.gpu, plan.knobs.reserve), (None, None), "{free_mib} MiB free");
        assert_eq!(plan.notes, [Note::CardUnused { index: 0 }]);
        assert_eq!(objects(&plan, GPU, Object::Context), None);
    }
}

#[test]
fn measured_gains_decide() {
    // The last layers save most; the output matrix nothing.
    let gains: Vec<u64> = (0..32).map(|layer| 1000 + layer).chain([0]).collect();
    let gpu = CardReading { layer_gains_ns: gains, ..card(940 + 3 * 184) };
    let plan = fits(&dense_7b(), &with_card(gpu), &wish_4k());
    assert_eq!((plan.placement.gpu_layers, plan.placement.output_on_gpu), (vec![29, 30, 31], false));
    // Half the bytes for a little less time are worth more.
    let mut model = dense_7b();
    model.layers[5].dense = mib(28);
    let gains = vec![1000; 33];
    let gpu = CardReading { layer_gains_ns: gains, ..card(940 + 92 + 184) };
    let plan = fits(&model, &with_card(gpu), &wish_4k());
    assert_eq!(plan.placement.gpu_layers, [5], "then the output's 128 save as much as a layer's 184");
    assert!(plan.placement.output_on_gpu);
}

#[test]
fn a_tied_output_is_a_copy() {
    let model = ModelSizes { dense_weights: mib(128 + 32 * 120), ..dense_7b() };
    let plan = fits(&model, &with_card(card(7400)), &wish_4k());
    assert!(plan.placement.output_on_gpu);
    assert_eq!(objects(&plan, AccountId::Host, Object::DenseWeights), Some(mib(128)));
}

#[test]
fn layers_that_were_asked_for_are_kept_or_refused() {
    let asked =
        |n_layers| Wish { gpu_layers: Setting::Exactly(n_layers), reserve: Setting::Exactly(mib(640)), ..wish_4k() };
    let machine = with_card(card(940 + 10 * 184));
    let plan = fits(&dense_7b(), &machine, &asked(4));
    assert_eq!((plan.placement.gpu_layers.len(), plan.placement.output_on_gpu), (4, false));
    assert_eq!(fits(&dense_7b(), &machine, &asked(0)).notes, [Note::CardUnused { index: 0 }]);

    let refused = shortage(&dense_7b(), &machine, &asked(12));
    let cause = Cause::GpuLayers { n_layers: 12, needed: mib(940 + 12 * 184), free: mib(940 + 10 * 184) };
    assert_eq!((refused.shortfalls[0].bytes, refused.shortfalls[0].cause), (mib(2 * 184), cause));
    assert_eq!(refused.ledger.account(GPU).map(|card| card.shortfall()), Some(mib(2 * 184)), "the table says the same");
    let found = listed(&refused.offers);
    assert_eq!(found[0], (Change::Context { from: Tokens(4096), to: Tokens(2048) }, 384, true));
    assert_eq!(found.last(), Some(&(Change::GpuLayers { from: 12, to: 10 }, 368, true)));
    let text = refusal_text(&plimsoll_decide::plan::Refusal::DoesNotFit(Box::new(refused)));
    let expect = "DOES NOT FIT: 12 layers need 3,148 MiB of GPU 0 with context and reserve, but 2,780 are free; short by 368 MiB.\n";
    assert!(text.starts_with(expect), "{text}");
}

/// 20 layers in 0.9 s ÷ … : the slower tier sets the pace, more layers on the card make it faster.
#[test]
fn more_layers_are_faster() {
    let speed = |free_mib| {
        let plan = fits(&dense_7b(), &with_card(card(free_mib)), &wish_4k());
        plan.forecast.speed.expect("both tiers were measured").full_context.hundredths
    };
    let speeds = [speed(0), speed(2000), speed(4000), speed(7400)];
    assert!(speeds.is_sorted() && speeds[0] * 5 < speeds[3], "{speeds:?}");
    // 32 × 184 + 128 MiB at 20 GB/s: 3.16 tokens a second, and 55 % of it.
    assert_eq!(speeds[0], 174);
    let text = plan_text(&fits(&dense_7b(), &with_card(card(0)), &wish_4k()));
    assert!(text.contains("\nSPEED  1.7–2.6 tok/s expected\n"), "{text}");
}

#[test]
fn keys_and_values_in_two_tiers_are_held_whole_by_the_host() {
    let wish = Wish { kv_window: Some(Setting::Exactly(Tokens(1024))), ..wish_4k() };
    let plan = fits(&dense_7b(), &with_card(card(7400)), &wish);
    assert_eq!(plan.placement.gpu_layers.len(), 32);
    assert_eq!(objects(&plan, AccountId::Host, Object::Kv), Some(gib(2)));
    assert_eq!(objects(&plan, GPU, Object::Kv), Some(mib(512)));
    assert_eq!(plan.knobs.kv_window, Some(Tokens(1024)));
}
