//! A plan or a refusal as JSON: the same figures as the text, for programs. Bytes end in `_bytes`; what does not exist is absent.

mod note;

use plimsoll_decide::ledger::{Account, AccountId, Ledger};
use plimsoll_decide::plan::{
    Adapt, Cause, Change, Combination, DiskVerdict, Forecast, Knobs, Offer, Placement, Plan, Refusal, Shortage,
    Shortfall, TokensPerSecond,
};
use plimsoll_decide::render;
use serde_json::{Map, Value, json};

/// The plan or refusal.
pub(crate) fn to_json(outcome: &Result<Plan, Refusal>) -> Value {
    match outcome {
        Ok(plan) => fits(plan),
        Err(Refusal::DoesNotFit(shortage)) => does_not_fit(shortage),
        Err(refusal @ Refusal::KvTypeImpossible { kv_type }) => {
            impossible(refusal, &json!({"rule": "kv_type_impossible", "kv_type": kv_type.name()}))
        }
        Err(refusal @ Refusal::ModesMixed { reserve }) => {
            impossible(refusal, &json!({"rule": "modes_mixed", "reserve_bytes": reserve.0}))
        }
        Err(refusal @ Refusal::OverLearnedCap { lever, written, cap }) => {
            // In bytes, tokens or layers: what the lever counts.
            let lever = lever.name();
            impossible(refusal, &json!({"rule": "over_learned_cap", "lever": lever, "written": written, "cap": cap}))
        }
    }
}

fn impossible(refusal: &Refusal, cause: &Value) -> Value {
    json!({"verdict": "impossible", "reason": render::refusal_text(refusal).trim_end(), "cause": cause})
}

fn fits(plan: &Plan) -> Value {
    object([
        ("verdict", Some("fits".into())),
        ("mode", Some(plan.mode.name().into())),
        ("knobs", Some(knobs(&plan.knobs))),
        ("placement", Some(placement(&plan.placement))),
        ("accounts", Some(accounts(&plan.ledger))),
        ("forecast", Some(forecast(&plan.forecast))),
        ("given_up", Some(plan.given_up.iter().map(given_up).collect())),
        ("notes", Some(plan.notes.iter().map(render::note_text).collect())),
        ("note_figures", Some(plan.notes.iter().map(note::figures).collect())),
        ("rough_rule_bytes", Some(plan.rough_rule.0.into())),
        ("reaction_margin_bytes", plan.reaction_margin.map(|margin| margin.0.into())),
    ])
}

fn does_not_fit(shortage: &Shortage) -> Value {
    object([
        ("verdict", Some("does_not_fit".into())),
        ("knobs", Some(knobs(&shortage.knobs))),
        ("accounts", Some(accounts(&shortage.ledger))),
        ("shortfalls", Some(shortfalls(&shortage.shortfalls))),
        ("offers", Some(shortage.offers.iter().map(offer).collect())),
        ("combinations", Some(shortage.combinations.iter().map(combination).collect())),
        ("short_with_all", Some(shortfalls(&shortage.short_with_all))),
        ("adapt", shortage.adapt.map(adapt)),
    ])
}

/// An object of the keys that have a value.
fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let there = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(there.collect::<Map<String, Value>>())
}

/// The account, and of a card which one: `{"account": "vram", "gpu": 1}`.
fn named(id: AccountId, mut value: Value) -> Value {
    value["account"] = id.name().into();
    match id {
        AccountId::Vram(index) => value["gpu"] = index.into(),
        AccountId::Host | AccountId::Disk => {}
    }
    value
}

fn knobs(knobs: &Knobs) -> Value {
    object([
        ("n_ctx", Some(knobs.n_ctx.0.into())),
        ("kv_type", Some(knobs.kv_type.name().into())),
        ("max_sessions", Some(knobs.max_sessions.into())),
        ("kv_window_tokens", knobs.kv_window.map(|window| window.0.into())),
        ("resident_budget_bytes", knobs.resident_budget.map(|budget| budget.0.into())),
        ("reserve_bytes", knobs.reserve.map(|reserve| reserve.0.into())),
        ("expert_cache_bytes", knobs.expert_cache.map(|cache| cache.0.into())),
        ("images", knobs.images.map(|images| images.name().into())),
        ("draft", knobs.draft.map(|draft| draft.name().into())),
    ])
}

fn placement(placement: &Placement) -> Value {
    let experts = placement.experts.map(|experts| {
        json!({
            "n_cached": experts.n_cached, "cached_bytes": experts.cached.0,
            "n_resident": experts.n_resident, "resident_bytes": experts.resident.0,
            "n_file_only": experts.n_file_only, "file_only_bytes": experts.file_only.0,
        })
    });
    object([
        ("gpu", placement.gpu.map(Value::from)),
        ("gpu_layers", Some(placement.gpu_layers.as_slice().into())),
        ("output_on_gpu", Some(placement.output_on_gpu.into())),
        ("experts", experts),
    ])
}

fn accounts(ledger: &Ledger) -> Value {
    ledger.accounts.iter().map(account).collect()
}

fn account(account: &Account) -> Value {
    let objects = account.entries.iter().map(|entry| {
        json!({
            "object": entry.object.name(), "bytes": entry.bytes.0, "basis": entry.basis.name(), "detail": entry.detail,
        })
    });
    let value = object([
        ("title", Some(account.title.as_str()).filter(|title| !title.is_empty()).map(Value::from)),
        ("limit_bytes", account.bounds.map(|bounds| bounds.limit.0.into())),
        ("line_bytes", account.bounds.map(|bounds| bounds.line.0.into())),
        ("used_bytes", Some(account.used().0.into())),
        ("own_bytes", Some(account.own().0.into())),
        ("foreign_bytes", Some(account.foreign().0.into())),
        ("asked_beside_bytes", Some(account.asked_beside.0).filter(|bytes| *bytes > 0).map(Value::from)),
        ("headroom_bytes", account.headroom().map(|headroom| headroom.0.into())),
        ("objects", Some(objects.collect())),
    ]);
    named(account.id, value)
}

fn forecast(forecast: &Forecast) -> Value {
    let file_tier = forecast.file_tier.map(|tier| {
        let verdict = match tier.verdict {
            DiskVerdict::KeepsUp => "keeps_up",
            DiskVerdict::SetsThePace => "sets_the_pace",
            DiskVerdict::Unmeasured => "unmeasured",
        };
        object([
            ("uses_permille", tier.uses_permille.map(Value::from)),
            ("reads_per_token_bytes", Some(tier.reads_per_token.0.into())),
            ("reads_without_profile_bytes", Some(tier.reads_without_profile.0.into())),
            ("verdict", Some(verdict.into())),
        ])
    });
    let speed = forecast.speed.map(|speed| {
        object([
            ("empty_context", Some(tokens_per_second(speed.empty_context))),
            ("full_context", Some(tokens_per_second(speed.full_context))),
            ("if_profile_is_wrong", speed.if_profile_is_wrong.map(tokens_per_second)),
        ])
    });
    object([("file_tier", file_tier), ("tokens_per_second", speed)])
}

fn tokens_per_second(speed: TokensPerSecond) -> Value {
    (speed.hundredths as f64 / 100.0).into()
}

fn shortfalls(shortfalls: &[Shortfall]) -> Value {
    shortfalls.iter().map(shortfall).collect()
}

fn shortfall(short: &Shortfall) -> Value {
    let cause = match short.cause {
        Cause::OverLine => json!({"rule": "over_line"}),
        Cause::UnderFloor { free_bytes, reserve, is_reserve_written, draft_head, n_fit, n_slots, floor } => json!({
            "rule": "expert_cache_under_floor",
            // It is a difference of sizes of real cards.
            "free_bytes": i64::try_from(free_bytes).unwrap_or(i64::MIN),
            "reserve_bytes": reserve.0, "is_reserve_written": is_reserve_written, "draft_head_bytes": draft_head.0,
            "n_fit": n_fit, "n_slots": n_slots, "floor_bytes": floor.0,
        }),
        Cause::GpuLayers { n_layers, needed, free } => json!({
            "rule": "gpu_layers", "n_layers": n_layers, "needed_bytes": needed.0, "free_bytes": free.0,
        }),
    };
    named(short.account, json!({"bytes": short.bytes.0, "cause": cause}))
}

fn offer(offer: &Offer) -> Value {
    let value = json!({
        "text": render::offer_text(offer), "change": change(&offer.change), "frees_bytes": offer.frees.0,
        "is_enough": offer.is_enough,
    });
    named(offer.account, value)
}

/// A change that the planner made by itself: its price is another than where the user is asked for it.
fn given_up(made: &Change) -> Value {
    let mut value = change(made);
    value["price"] = render::given_up_price(made).into();
    value
}

/// One change: what, from where, to where, and its price.
fn change(change: &Change) -> Value {
    let step = |what: &str, from: Value, to: Value| json!({"what": what, "from": from, "to": to});
    let mut value = match change {
        Change::CloseProgram { program, account } => {
            let program = json!({"what": "close_program", "pid": program.pid, "name": program.name, "user": program.user,
                "bytes": program.bytes.0});
            named(*account, program)
        }
        Change::Sessions { from, to } => step("max_sessions", (*from).into(), (*to).into()),
        Change::KvWindow { from, to } => step("kv_window_tokens", from.0.into(), to.0.into()),
        Change::Context { from, to } => step("n_ctx", from.0.into(), to.0.into()),
        Change::KvType { from, to } => step("kv_type", from.name().into(), to.name().into()),
        Change::Reserve { from, to } => step("reserve_bytes", from.0.into(), to.0.into()),
        Change::GpuLayers { from, to } => step("gpu_layers", (*from).into(), (*to).into()),
        Change::Images { from, to } => step("images", from.name().into(), to.name().into()),
        Change::Draft { from, to } => step("draft", from.name().into(), to.name().into()),
        Change::ResidentBudget { from, to } => step("resident_budget_bytes", from.0.into(), to.0.into()),
    };
    value["price"] = change.price().into();
    value
}

fn combination(combination: &Combination) -> Value {
    json!({"offers": combination.offers, "short": shortfalls(&combination.short)})
}

fn adapt(adapt: Adapt) -> Value {
    match adapt {
        Adapt::Starts { n_experts } => json!({"starts": true, "n_experts": n_experts}),
        Adapt::StillShort { account, bytes } => named(account, json!({"starts": false, "bytes": bytes.0})),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_config::Config;
    use plimsoll_config::config::Setting;
    use plimsoll_config::units::{Bytes, Millis, Tokens};
    use plimsoll_decide::plan::{
        CardReading, DiskReading, Experts, GpuProgram, KvLayer, LayerSizes, MachineReading, ModelSizes, Program,
        Reaction, Wish, plan,
    };

    use super::*;

    fn mib(n: u64) -> Bytes {
        Bytes::from_mib(n)
    }

    /// 8 layers of 64 experts of 16 MiB: 8 GiB of them.
    fn model() -> ModelSizes {
        let kv = KvLayer { f16: Bytes(2048), q8_0: Some(Bytes(1088)), q4_0: Some(Bytes(576)), window: None };
        ModelSizes {
            file_bytes: mib(9_000),
            dense_weights: mib(900),
            token_embedding: mib(100),
            output: mib(100),
            layers: vec![LayerSizes { dense: mib(100), kv, expert: Some(mib(16)) }; 8],
            experts: Some(Experts { per_layer: 64, top_k: 4, loan_slots: 8 }),
            n_ctx_train: Tokens(32_768),
            activations: mib(64),
            prompt_path: mib(128),
            image_encoder: Some(mib(300)),
            speculation: None,
        }
    }

    fn card(index: u32, free: Bytes) -> CardReading {
        let game = Program { pid: 77, name: "game".to_owned(), user: "alice".to_owned(), bytes: mib(1_500) };
        CardReading {
            index,
            name: format!("card {index}"),
            total: mib(8_192),
            free,
            context: mib(300),
            driver_reserved: Some(mib(100)),
            programs: vec![GpuProgram { program: game, is_desktop: false }],
            bytes_per_second: Some(Bytes(200_000_000_000)),
            request_start: None,
            layer_gains_ns: Vec::new(),
        }
    }

    fn machine(free: Bytes) -> MachineReading {
        MachineReading {
            host_limit: mib(8_192),
            host_foreign: mib(1_000),
            host_bytes_per_second: Some(Bytes(20_000_000_000)),
            disk: Some(DiskReading { title: "nvme0n1".to_owned(), bytes_per_second: Bytes(3_000_000_000) }),
            gpus: vec![card(0, mib(200)), card(1, free)],
            reaction: Some(Reaction {
                growth_per_second: mib(1_024),
                sample: Millis(200),
                decide: Millis(1),
                hand_over: Millis(50),
                give_back: Millis(100),
            }),
            ..MachineReading::default()
        }
    }

    fn wish() -> Wish {
        Wish { resident_budget: Some(Setting::Auto), kv_window: Some(Setting::Auto), ..Wish::from(&Config::default()) }
    }

    /// Every number, and every string, anywhere inside.
    fn leaves(value: &Value, numbers: &mut BTreeSet<u64>, words: &mut BTreeSet<String>) {
        match value {
            Value::Number(n) => numbers.extend(n.as_u64()),
            Value::String(text) => drop(words.insert(text.clone())),
            Value::Array(items) => items.iter().for_each(|item| leaves(item, numbers, words)),
            Value::Object(map) => map.values().for_each(|item| leaves(item, numbers, words)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    #[test]
    fn a_plan_says_all_that_its_text_says() {
        let plan = plan(&model(), &machine(mib(4_000)), &wish()).expect("it fits");
        let json = to_json(&Ok(plan.clone()));
        let (mut numbers, mut words) = (BTreeSet::new(), BTreeSet::new());
        leaves(&json, &mut numbers, &mut words);
        let knobs = &plan.knobs;
        let of_knobs = [knobs.resident_budget, knobs.reserve, knobs.expert_cache].map(|knob| knob.expect("it exists"));
        let of_accounts = plan.ledger.accounts.iter().flat_map(|account| {
            let objects = account.entries.iter().map(|entry| entry.bytes);
            objects.chain(account.bounds.map(|bounds| bounds.line)).chain(account.headroom()).chain([account.used()])
        });
        let margin = plan.reaction_margin.expect("it was measured");
        for bytes in of_accounts.chain(of_knobs).chain([plan.rough_rule, margin]) {
            assert!(numbers.contains(&bytes.0), "{bytes} is not in {json:#}");
        }
        let tier = plan.forecast.file_tier.expect("8 GiB of experts do not fit");
        assert_eq!(json["forecast"]["file_tier"]["reads_per_token_bytes"], tier.reads_per_token.0);
        let speed = plan.forecast.speed.expect("all tiers were measured");
        let expect = speed.full_context.hundredths as f64 / 100.0;
        assert_eq!(json["forecast"]["tokens_per_second"]["full_context"], expect);
        assert_eq!((&json["mode"], &json["placement"]["gpu"]), (&"stable".into(), &1.into()));
        assert_eq!(json["placement"]["gpu_layers"].as_array().map(Vec::len), Some(8));
        assert_eq!(json["knobs"]["kv_window_tokens"], knobs.kv_window.expect("it exists").0);
        let cards: Vec<_> = json["accounts"].as_array().expect("a list").iter().map(|a| &a["gpu"]).collect();
        assert_eq!(cards, [&Value::Null, &0.into(), &1.into(), &Value::Null]);
        assert!(words.contains("card 1") && !json["knobs"].as_object().expect("an object").contains_key("draft"));
    }

    #[test]
    fn a_refusal_says_what_is_short_where_and_what_would_help() {
        let mut wish = wish();
        wish.context = Setting::Exactly(Tokens(32_768));
        let Err(Refusal::DoesNotFit(shortage)) = plan(&model(), &machine(mib(1_000)), &wish) else {
            panic!("1,000 MiB are free for 900 of weights and a reserve")
        };
        let json = to_json(&Err(Refusal::DoesNotFit(shortage.clone())));
        let short = &json["shortfalls"][0];
        assert_eq!((&short["account"], &short["gpu"]), (&"vram".into(), &1.into()), "{json:#}");
        assert_eq!(short["bytes"], shortage.shortfalls[0].bytes.0);
        assert_eq!(short["cause"]["rule"], "expert_cache_under_floor");
        let offers = json["offers"].as_array().expect("a list");
        assert_eq!(offers.len(), shortage.offers.len());
        let close = offers.iter().find(|offer| offer["change"]["what"] == "close_program").expect("somebody holds it");
        assert_eq!((&close["change"]["pid"], &close["gpu"]), (&77.into(), &1.into()));
        assert!(offers.iter().all(|offer| offer["change"]["price"].is_string()), "{json:#}");
        assert_eq!(json["combinations"].as_array().map(Vec::len), Some(shortage.combinations.len()));
        assert_eq!(json["adapt"].is_object(), shortage.adapt.is_some());
    }
}

#[cfg(test)]
mod text;
