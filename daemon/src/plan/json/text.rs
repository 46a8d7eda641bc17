//! The JSON holds what the text says, read off the text itself: every number of it has to be a figure of the JSON.

#[allow(dead_code, reason = "only some of the models and machines are needed here")]
#[path = "../../../decide/tests/plan/fixtures.rs"]
mod fixtures;

use std::collections::BTreeSet;

use plimsoll_config::config::Setting;
use plimsoll_config::units::{Bytes, Tokens, thousands};
use plimsoll_decide::ledger::{Account, Ledger};
use plimsoll_decide::plan::{CardReading, Cause, GpuProgram, Mode, Plan, Policy, Refusal, Wish, plan};
use plimsoll_decide::render;
use serde_json::Value;

use fixtures::{
    MIB, dense_7b, desktop, falling_profile, machine, mib, program, wish, workstation, workstation_card,
    workstation_model, workstation_wish,
};

type Outcome = Result<Plan, Refusal>;

/// The workstation with a second, smaller card, so much free on the first, and a profile.
fn two_cards(free: Bytes, wish: &Wish) -> Outcome {
    let model = workstation_model();
    let mut first = workstation_card(&model, free);
    first.index = 1;
    first.programs = vec![GpuProgram { program: program(812, "python3", mib(2560)), is_desktop: false }];
    first.programs.extend(desktop());
    let second = CardReading {
        index: 0,
        name: "GTX 1650".to_owned(),
        total: mib(4096),
        free: mib(3000),
        programs: Vec::new(),
        ..first.clone()
    };
    let mut machine = workstation(first);
    machine.gpus.push(second);
    machine.profile = Some(falling_profile(&model));
    plan(&model, &machine, wish)
}

/// A dense model on a machine without a card, with so much memory.
fn host_only(limit_gib: u64, wish: &Wish) -> Outcome {
    plan(&dense_7b(), &machine(limit_gib, 700), wish)
}

/// A dense model on a card, with so many layers asked for.
fn dense_on_card(gpu_layers: Setting<u32>) -> Outcome {
    let mut machine = machine(32, 500);
    machine.gpus = vec![CardReading { free: mib(3000), ..workstation_card(&workstation_model(), Bytes::ZERO) }];
    plan(&dense_7b(), &machine, &Wish { gpu_layers, context: Setting::Exactly(Tokens(4096)), ..wish() })
}

/// A model that reads images, with all knobs left to us and little room.
fn tight(mode: Mode, free: Bytes) -> Outcome {
    let mut model = workstation_model();
    model.image_encoder = Some(mib(400));
    let machine = workstation(workstation_card(&model, free));
    let wish = Wish {
        mode,
        reserve: Setting::Auto,
        context: Setting::Auto,
        draft: Setting::Auto,
        kv_window: Some(Setting::Auto),
        resident_budget: Some(Setting::Auto),
        ..workstation_wish(0)
    };
    plan(&model, &machine, &wish)
}

fn outcomes() -> Vec<(&'static str, Outcome)> {
    let owner = workstation_wish(1728);
    let long = Wish { context: Setting::Exactly(Tokens(8192)), max_sessions: 4, ..wish() };
    vec![
        ("two cards", two_cards(mib(3556), &owner)),
        ("two cards, refused", two_cards(mib(1055), &owner)),
        ("two cards, adapt", two_cards(mib(2200), &Wish { policy: Policy::Adapt, ..owner })),
        ("benchmark", tight(Mode::Benchmark, mib(1700))),
        ("tight", tight(Mode::Stable, mib(1500))),
        ("host", host_only(12, &wish())),
        ("host, refused", host_only(6, &long)),
        ("host, too small for any", host_only(3, &wish())),
        ("layers", dense_on_card(Setting::Auto)),
        ("layers, refused", dense_on_card(Setting::Exactly(32))),
        ("modes", two_cards(mib(3556), &Wish { mode: Mode::Benchmark, ..owner })),
    ]
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Ok(plan) => render::plan_text(plan),
        Err(refusal) => render::refusal_text(refusal),
    }
}

fn ledger(outcome: &Outcome) -> Option<&Ledger> {
    match outcome {
        Ok(plan) => Some(&plan.ledger),
        Err(Refusal::DoesNotFit(shortage)) => Some(&shortage.ledger),
        Err(Refusal::KvTypeImpossible { .. } | Refusal::ModesMixed { .. } | Refusal::OverLearnedCap { .. }) => None,
    }
}

/// The numbers of a text, each as it is written.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || "–−(){}=:;/".contains(c));
    let bare = words.map(|word| word.trim_matches([',', '.', '"']).to_owned());
    bare.filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.'))
}

/// The ways in which a text may write a number of this key.
fn writings(key: &str, number: &Value) -> Vec<String> {
    let count = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
    let mut all: Vec<String> = count.map(|n| vec![n.to_string(), thousands(n)]).unwrap_or_default();
    if let Some(n) = count {
        let mib = [Bytes(n).mib_rounded_up(), Bytes(n).mib_rounded_down(), (n + MIB / 2) / MIB];
        all.extend(mib.into_iter().filter(|n| *n > 0).flat_map(|n| [thousands(n), n.to_string()]));
        all.extend([Bytes(n).gib_text(1), Bytes(n).gib_text(2)]);
        all.extend(numbers(&Bytes(n).to_string()));
    }
    if let (Some(n), "uses_permille") = (count, key) {
        all.push(format!("{}.{}", n / 10, n % 10));
    }
    if let Some(rate) = number.as_f64().filter(|_| count.is_none()) {
        all.extend([0.5, -0.5].map(|half| format!("{:.0}", rate + half / 1e6)));
        all.extend([format!("{rate:.1}"), format!("{rate:.2}")]);
    }
    all
}

/// Every writing of every number in the JSON. Of what is only words an object's detail and the names of things count.
fn written(json: &Value, key: &str, all: &mut BTreeSet<String>) {
    match json {
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) => all.extend(writings(key, json)),
        Value::String(words) if ["detail", "title", "name"].contains(&key) => all.extend(numbers(words)),
        Value::String(_) => {}
        Value::Array(items) => items.iter().for_each(|item| written(item, key, all)),
        Value::Object(members) => members.iter().for_each(|(key, value)| written(value, key, all)),
    }
}

/// Sums that the text shows in MiB beside their parts, and the places of a list.
fn sums(outcome: &Outcome) -> Vec<String> {
    let of = |account: &Account| {
        let free = account.bounds.map(|bounds| bounds.limit.saturating_sub(bounds.line).mib_rounded_down());
        [free.unwrap_or_default(), account.used().mib_rounded_up() - account.foreign().mib_rounded_up()]
    };
    let mut all: Vec<u64> =
        ledger(outcome).into_iter().flat_map(|ledger| ledger.accounts.iter().flat_map(of)).collect();
    if let Err(Refusal::DoesNotFit(shortage)) = outcome {
        all.extend(1..=shortage.offers.len() as u64);
        all.extend(shortage.shortfalls.iter().filter_map(|short| match short.cause {
            Cause::UnderFloor { free_bytes, reserve, draft_head, .. } => {
                let free = (free_bytes + i128::from(MIB) / 2).div_euclid(i128::from(MIB)) as i64;
                let rest = free - reserve.mib_rounded_up() as i64 - draft_head.mib_rounded_up() as i64;
                Some(rest.unsigned_abs())
            }
            Cause::OverLine | Cause::GpuLayers { .. } => None,
        }));
    }
    all.into_iter().map(thousands).collect()
}

#[test]
fn every_number_of_the_text_is_in_the_json() {
    for (name, outcome) in outcomes() {
        let (text, json) = (text(&outcome), super::to_json(&outcome));
        // 0.2 GiB a session and 15 % are the rough rule itself, 512 MiB the line of a card and the benchmark's reserve.
        let mut known: BTreeSet<String> = ["0.2", "15", "512"].map(str::to_owned).into();
        written(&json, "", &mut known);
        known.extend(sums(&outcome));
        let missing: Vec<String> = numbers(&text).filter(|number| !known.contains(number)).collect();
        assert!(numbers(&text).count() > 0 && missing.is_empty(), "{name}: {missing:?} of\n{text}\n{json:#}");
    }
}

#[test]
fn what_was_given_up_has_the_price_of_the_text() {
    let mut n_seen = 0;
    for (name, outcome) in outcomes() {
        let (text, json) = (text(&outcome), super::to_json(&outcome));
        for change in json["given_up"].as_array().into_iter().flatten() {
            let price = change["price"].as_str().expect("each has a price");
            assert!(text.contains(&format!("({price})")), "{name}: {change} of\n{text}");
            n_seen += 1;
        }
    }
    assert!(n_seen > 0, "none of the outcomes gave anything up");
}

#[test]
fn each_account_that_is_short_adds_up() {
    for (name, outcome) in outcomes() {
        let json = super::to_json(&outcome);
        for account in json["accounts"].as_array().into_iter().flatten() {
            let of = |key: &str| account[key].as_u64().unwrap_or_default();
            let Some(line) = account["line_bytes"].as_u64() else { continue };
            let demand = of("used_bytes") + of("asked_beside_bytes");
            assert_eq!(of("headroom_bytes"), line.saturating_sub(demand), "{name}: {account:#}");
            let same = |short: &&Value| ["account", "gpu"].iter().all(|key| short[*key] == account[*key]);
            if let Some(short) = json["shortfalls"].as_array().into_iter().flatten().find(same)
                && short["cause"]["rule"] != "gpu_layers"
            {
                assert_eq!(short["bytes"].as_u64(), Some(demand - line), "{name}: {account:#}\n{short:#}");
            }
        }
    }
}
