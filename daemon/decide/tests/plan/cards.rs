//! What was written about a card is kept or told; and of several cards the one with the best plan is used.

use plimsoll_config::config::Setting;
use plimsoll_config::units::Bytes;
use plimsoll_decide::calibration::{Figures, History, Speed};
use plimsoll_decide::plan::{CardReading, Images, MachineReading, Note, RequestStart, Wish, plan};
use plimsoll_decide::render::{history_text, note_text, plan_text};

use crate::fixtures::{
    dense_7b, fits, gib, machine, mib, wish, workstation, workstation_card, workstation_model, workstation_wish,
};

/// With a resident budget that holds what the card would.
fn roomy() -> Wish {
    Wish { resident_budget: Some(Setting::Auto), context: Setting::Auto, ..workstation_wish(1728) }
}

#[test]
fn layers_of_a_model_with_experts_are_on_the_card_together_or_not_at_all() {
    let model = workstation_model();
    let machine = workstation(workstation_card(&model, mib(3600)));
    let with = |gpu_layers| fits(&model, &machine, &Wish { gpu_layers, ..roomy() });
    assert_eq!((with(Setting::Auto).placement.gpu_layers.len(), with(Setting::Auto).notes), (48, vec![]));
    assert_eq!((with(Setting::Exactly(48)).placement.gpu_layers.len(), with(Setting::Exactly(48)).notes), (48, vec![]));
    let none = with(Setting::Exactly(0));
    assert_eq!((none.placement.gpu, none.placement.gpu_layers.len()), (None, 0));
    assert_eq!(none.notes, [Note::CardUnused { index: 0 }]);
    let some = with(Setting::Exactly(10));
    let note = Note::LayersDiffer { asked: 10, placed: 48, has_experts: true };
    assert_eq!((some.placement.gpu_layers.len(), some.notes.as_slice()), (48, &[note][..]));
    assert_eq!(
        note_text(&note),
        "gpu_layers is 10, but 48 are on the card: a model with experts has all of its dense weights there or none"
    );
    assert!(plan_text(&some).contains(&note_text(&note)), "{}", plan_text(&some));
}

#[test]
fn what_needs_a_card_is_told_where_there_is_none() {
    let wish = Wish { gpu_layers: Setting::Exactly(20), images: Setting::Exactly(Images::Card), ..wish() };
    let model = plimsoll_decide::plan::ModelSizes { image_encoder: Some(mib(300)), ..dense_7b() };
    let plan = fits(&model, &machine(32, 500), &wish);
    let layers = Note::LayersDiffer { asked: 20, placed: 0, has_experts: false };
    assert_eq!(plan.notes, [layers, Note::ImagesOnCpu]);
    assert!(note_text(&layers).contains("no card that can be read"), "{}", note_text(&layers));
    assert!(note_text(&Note::ImagesOnCpu).contains("on the CPU"));
    let nothing_asked = Wish { gpu_layers: Setting::Exactly(0), images: Setting::Auto, ..wish };
    assert_eq!(fits(&model, &machine(32, 500), &nothing_asked).notes, []);
}

#[test]
fn a_layer_that_saves_no_time_stays_on_the_cpu() {
    let gpu = CardReading {
        index: 0,
        name: "card".to_owned(),
        total: gib(8),
        free: gib(7),
        context: mib(300),
        driver_reserved: None,
        programs: Vec::new(),
        bytes_per_second: Some(Bytes(200_000_000_000)),
        request_start: None,
        layer_gains_ns: [vec![0; 30], vec![900, 800], vec![0]].concat(),
    };
    let machine = MachineReading { gpus: vec![gpu], ..machine(32, 500) };
    let plan = fits(&dense_7b(), &machine, &wish());
    assert_eq!((plan.placement.gpu_layers.as_slice(), plan.placement.output_on_gpu), (&[30, 31][..], false));
}

/// Two cards with equal free bytes: one has a larger context and began a request short.
#[test]
fn the_card_with_the_best_plan_is_used_and_more_room_on_another_one_is_no_harm() {
    let model = workstation_model();
    let good = workstation_card(&model, mib(3600));
    let bad = CardReading {
        index: 1,
        context: mib(2000),
        request_start: Some(RequestStart { reserve: mib(3000), lowest_free: mib(100) }),
        ..good.clone()
    };
    let wish = Wish { reserve: Setting::Auto, ..workstation_wish(0) };
    for more in [0, 1, 500, 900] {
        let grown = CardReading { free: Bytes(bad.free.0 + mib(more).0), ..bad.clone() };
        let machine = MachineReading { gpus: vec![grown, good.clone()], ..workstation(good.clone()) };
        assert_eq!(fits(&model, &machine, &wish).placement.gpu, Some(0), "{more} MiB more on the other one");
    }
}

/// Eleven clean starts are known: what they gave stands beside the plan, and beside the refusal of a full card.
#[test]
fn what_clean_starts_gave_stands_beside_the_verdict() {
    let figures = |n_slots, tok_s| Figures { cache: None, n_slots: Some(n_slots), speed: Some(Speed(tok_s * 1000)) };
    let healthy = (0..11).map(|n| figures(955 + 9 * n, 39 + u64::from(n) * 4 / 10)).collect();
    let history = History { healthy, strays: Vec::new() };
    let interval = "955–1045 experts, 39–43 tok/s (11 clean starts)";
    let model = workstation_model();
    let plan_of = |free| plan(&model, &workstation(workstation_card(&model, free)), &workstation_wish(1728));
    let beside = |free| history_text(&plan_of(free), &history);
    assert_eq!(beside(mib(3600)), Some(format!("Healthy interval on this machine: {interval}.")));
    let dirty = "The card looks dirty, not the configuration: clean starts of this configuration give";
    assert_eq!(beside(mib(1055)), Some(format!("{dirty} {interval}.")));
    assert_eq!(history_text(&plan_of(mib(3600)), &History::default()), None);
    // A host that is short is no reason to suspect the card.
    let host = MachineReading { host_limit: gib(20), ..workstation(workstation_card(&model, mib(3600))) };
    let refused = plan(&model, &host, &workstation_wish(1728));
    assert!(refused.is_err() && history_text(&refused, &history).is_none());
}

/// 1,500 left 292 MiB free at a request's start: 1,728 is suggested, and what the ladder may take of it stays above 1,500.
#[test]
fn a_reserve_that_was_too_small_is_not_tried_again() {
    let model = workstation_model();
    let mut card = workstation_card(&model, mib(1728 + 86 + 827 - 60)); // 60 MiB short of the floor
    card.request_start = Some(RequestStart { reserve: mib(1500), lowest_free: mib(292) });
    let wish = Wish { reserve: Setting::Auto, ..workstation_wish(0) };
    let plan = fits(&model, &workstation(card), &wish);
    assert_eq!(plan.knobs.reserve, Some(mib(1536)), "{}", plan_text(&plan));
}
