//! Properties of all models, machines and wishes.

use plimsoll_config::config::Setting;
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::AccountId;
use plimsoll_decide::plan::{
    CardReading, Change, Draft, ExpertPlacement, Images, Knobs, MachineReading, Mode, ModelSizes, Note, Plan, Refusal,
    Wish, plan,
};
use plimsoll_decide::render::{plan_text, refusal_text};
use proptest::prelude::*;

use crate::cases::any_case;
use crate::fixtures::mib;

/// The machine and the wish after a change was made.
fn made(change: &Change, machine: &MachineReading, wish: &Wish) -> (MachineReading, Wish) {
    let (mut machine, mut wish) = (machine.clone(), *wish);
    match change {
        Change::CloseProgram { program, account: account @ AccountId::Vram(_) } => {
            let AccountId::Vram(index) = account else { unreachable!("matched above") };
            let gpu =
                machine.gpus.iter_mut().find(|gpu| gpu.index == *index).expect("offered for a card that is there");
            gpu.free = gpu.free.saturating_add(program.bytes).min(gpu.total);
        }
        Change::CloseProgram { program, account: _ } => {
            machine.host_foreign = machine.host_foreign.saturating_sub(program.bytes);
        }
        Change::Sessions { to, .. } => wish.max_sessions = *to,
        Change::KvWindow { to, .. } => wish.kv_window = Some(Setting::Exactly(*to)),
        Change::Context { to, .. } => wish.context = Setting::Exactly(*to),
        Change::KvType { to, .. } => wish.kv_type = *to,
        Change::Reserve { to, .. } => wish.reserve = Setting::Exactly(*to),
        Change::GpuLayers { to, .. } => wish.gpu_layers = Setting::Exactly(*to),
        Change::Images { to, .. } => wish.images = Setting::Exactly(*to),
        Change::Draft { to, .. } => wish.draft = Setting::Exactly(*to),
        Change::ResidentBudget { to, .. } => wish.resident_budget = Some(Setting::Exactly(*to)),
    }
    (machine, wish)
}

/// The wish with what the ladder chose written down.
fn as_chosen(knobs: &Knobs, wish: &Wish) -> Wish {
    Wish {
        context: Setting::Exactly(knobs.n_ctx),
        kv_window: knobs.kv_window.map(Setting::Exactly).or(wish.kv_window),
        reserve: match wish.mode {
            Mode::Stable => knobs.reserve.map_or(wish.reserve, Setting::Exactly),
            Mode::Benchmark => wish.reserve,
        },
        images: knobs.images.map_or(wish.images, Setting::Exactly),
        draft: knobs.draft.map_or(wish.draft, Setting::Exactly),
        ..*wish
    }
}

/// The wish with one lever left to the planner again; `reserve` is what the wish had of it.
fn left_to_us(change: &Change, wish: Wish, reserve: Setting<Bytes>) -> Wish {
    match change {
        Change::KvWindow { .. } => Wish { kv_window: Some(Setting::Auto), ..wish },
        Change::Context { .. } => Wish { context: Setting::Auto, ..wish },
        Change::Reserve { .. } => Wish { reserve, ..wish },
        Change::Images { .. } => Wish { images: Setting::Auto, ..wish },
        // A smaller draft head makes an automatic reserve smaller too.
        Change::Draft { .. } => Wish { draft: Setting::Auto, reserve, ..wish },
        Change::ResidentBudget { .. }
        | Change::CloseProgram { .. }
        | Change::Sessions { .. }
        | Change::KvType { .. }
        | Change::GpuLayers { .. } => wish,
    }
}

/// What an account lacks by a refusal; 0 where it fits.
fn short(outcome: &Result<Plan, Refusal>, account: AccountId) -> Bytes {
    match outcome {
        Ok(_) | Err(Refusal::KvTypeImpossible { .. } | Refusal::ModesMixed { .. } | Refusal::OverLearnedCap { .. }) => {
            Bytes::ZERO
        }
        Err(Refusal::DoesNotFit(shortage)) => {
            shortage.shortfalls.iter().filter(|short| short.account == account).map(|short| short.bytes).sum()
        }
    }
}

/// How far each lever was moved, the dearest first: of two plans the one with less of the dearest is the better one.
fn sacrifice(plan: &Plan) -> [u64; 6] {
    let mut moved = [0; 6];
    for change in &plan.given_up {
        let (place, by) = match change {
            Change::ResidentBudget { from, to } => (0, from.0 - to.0),
            Change::Draft { .. } => (1, 1),
            Change::Images { .. } => (2, 1),
            Change::Reserve { .. } => (3, 1),
            Change::Context { from, to } => (4, u64::from(from.0 - to.0)),
            Change::KvWindow { from, to } => (5, u64::from(from.0 - to.0)),
            Change::CloseProgram { .. }
            | Change::Sessions { .. }
            | Change::KvType { .. }
            | Change::GpuLayers { .. } => panic!("the ladder has no such lever: {change:?}"),
        };
        moved[place] = by;
    }
    moved
}

/// The time of a token that the layers on the card save.
fn saved_ns(plan: &Plan, model: &ModelSizes, gpu: &CardReading) -> u64 {
    let gain = |place: usize| gpu.layer_gains_ns.get(place).copied().unwrap_or(0);
    let output = if plan.placement.output_on_gpu { gain(model.layers.len()) } else { 0 };
    plan.placement.gpu_layers.iter().map(|layer| gain(*layer as usize)).sum::<u64>() + output
}

/// Whether `b` is at least as good as `a`: first by what the ladder gave up, then by where the experts and layers lie. A
/// longer context takes room from experts, so that the second counts only where the first is the same.
fn is_no_worse(a: &Plan, b: &Plan, model: &ModelSizes, machine: &MachineReading) -> Result<(), TestCaseError> {
    prop_assert!(sacrifice(b) <= sacrifice(a), "{:?} then {:?}", a.given_up, b.given_up);
    if sacrifice(a) != sacrifice(b) {
        return Ok(());
    }
    if let (Some(a_experts), Some(b_experts)) = (a.placement.experts, b.placement.experts) {
        let rank = |experts: ExpertPlacement| (experts.n_file_only, std::cmp::Reverse(experts.n_cached));
        prop_assert!(rank(b_experts) <= rank(a_experts), "{:?} then {:?}", a_experts, b_experts);
    } else if a.placement.gpu == b.placement.gpu
        && let Some(gpu) = machine.gpus.iter().find(|gpu| Some(gpu.index) == a.placement.gpu)
    {
        let (before, after) = (saved_ns(a, model, gpu), saved_ns(b, model, gpu));
        prop_assert!(after >= before, "{before} ns saved by {:?}, then {after} by {:?}", a.placement, b.placement);
    }
    Ok(())
}

/// The same machine with more memory, and with more of each of its cards free, one after the other.
fn grown(machine: &MachineReading, by_mib: u64) -> Vec<MachineReading> {
    let host = MachineReading { host_limit: machine.host_limit.saturating_add(mib(by_mib)), ..machine.clone() };
    let card = |index: usize| {
        let mut machine = machine.clone();
        let gpu = &mut machine.gpus[index];
        gpu.total = gpu.total.saturating_add(mib(by_mib));
        gpu.free = gpu.free.saturating_add(mib(by_mib));
        machine
    };
    (0..machine.gpus.len()).map(card).chain([host]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn a_plan_is_under_every_line_and_keeps_what_was_written((model, machine, wish) in any_case()) {
        let Ok(plan) = plan(&model, &machine, &wish) else { return Ok(()) };
        for account in &plan.ledger.accounts {
            let Some(bounds) = account.bounds else { continue };
            prop_assert!(bounds.line <= bounds.limit);
            // A card that we leave alone may be over its line by what others hold.
            let is_ours = matches!(account.id, AccountId::Host) || account.own() > Bytes::ZERO;
            if is_ours {
                prop_assert!(account.used() <= bounds.line, "{}", plan_text(&plan));
                prop_assert_eq!(account.shortfall(), Bytes::ZERO);
            }
            let gpu = machine.gpus.iter().find(|gpu| account.id == AccountId::Vram(gpu.index));
            if let Some(gpu) = gpu {
                prop_assert_eq!(account.foreign(), gpu.total.saturating_sub(gpu.free));
            }
            if is_ours && gpu.is_some() && account.used().saturating_add(limits::VRAM_LINE_FREE) > bounds.limit {
                // The line of a request's start is left only where that is told, or measured for; or
                // where an earlier start has shown that a request finds it all the same.
                let is_told = |note: &Note| {
                    matches!(note, Note::SlackLow { .. } | Note::ReserveTooSmall { .. } | Note::UnderLine { .. })
                };
                let was_seen = gpu.is_some_and(|gpu| gpu.request_start.is_some());
                prop_assert!(
                    plan.mode == Mode::Benchmark || was_seen || plan.notes.iter().any(is_told),
                    "{}", plan_text(&plan)
                );
            }
        }
        let knobs = &plan.knobs;
        prop_assert_eq!((knobs.kv_type, knobs.max_sessions), (wish.kv_type, wish.max_sessions));
        match wish.context {
            Setting::Exactly(n_ctx) => prop_assert_eq!(knobs.n_ctx, n_ctx),
            Setting::Auto => prop_assert!(knobs.n_ctx <= model.n_ctx_train && knobs.n_ctx <= limits::AUTO_CONTEXT_CAP),
        }
        if let (Setting::Exactly(reserve), Some(taken)) = (wish.reserve, knobs.reserve) {
            prop_assert_eq!(taken, reserve);
        }
        if let (Some(Setting::Exactly(budget)), Some(taken)) = (wish.resident_budget, knobs.resident_budget) {
            prop_assert!(taken == budget || plan.placement.experts.is_some_and(|experts| experts.n_file_only == 0));
        }
        if let Setting::Exactly(asked) = wish.gpu_layers {
            let is_kept = plan.placement.gpu_layers.len() == model.layers.len().min(asked as usize);
            let is_told = plan.notes.iter().any(|note| matches!(note, Note::LayersDiffer { .. }));
            prop_assert_eq!(is_told, !is_kept, "{:?} {:?}", plan.placement, plan.notes);
            let can_be_kept = !machine.gpus.is_empty() && (plan.placement.experts.is_none() || asked == 0);
            prop_assert!(is_kept || !can_be_kept, "{:?}", plan.placement);
        }
        if wish.images == Setting::Exactly(Images::Card) && model.image_encoder.is_some() {
            let is_told = plan.notes.contains(&Note::ImagesOnCpu);
            prop_assert_eq!(is_told, plan.placement.gpu.is_none());
        }
        if let Some(experts) = plan.placement.experts {
            prop_assert_eq!(experts.n_cached + experts.n_resident + experts.n_file_only, model.n_experts());
            let bytes = [experts.cached, experts.resident, experts.file_only].into_iter().sum::<Bytes>();
            prop_assert_eq!(bytes, model.expert_bytes(), "each expert has one place");
        }
    }
    #[test]
    fn there_is_no_ghost((model, machine, wish) in any_case()) {
        let Ok(plan) = plan(&model, &machine, &wish) else { return Ok(()) };
        let has = |name| plan.ledger.accounts.iter().flat_map(|account| &account.entries).any(|e| e.object.name() == name);
        let is_moe = model.n_experts() > 0;
        let of_cards = plan.ledger.accounts.iter().filter(|account| matches!(account.id, AccountId::Vram(_)));
        prop_assert!(of_cards.flat_map(|account| &account.entries).all(|entry| entry.bytes > Bytes::ZERO || entry.object.name() == "expert_cache"));
        prop_assert!(is_moe || !(has("expert_resident") || has("expert_cache") || has("staging")));
        prop_assert!(model.speculation.is_some() || !(has("verify_arena") || has("draft_head")));
        prop_assert!(!machine.gpus.is_empty() || !(has("context") || has("slack") || has("expert_cache")));
        prop_assert_eq!(has("file_tier_reads"), plan.forecast.file_tier.is_some());
    }
    #[test]
    fn auto_leaves_no_larger_step_unused((model, machine, wish) in any_case()) {
        let wish = Wish { context: Setting::Auto, ..wish };
        let Ok(chosen) = plan(&model, &machine, &wish) else { return Ok(()) };
        let next = Tokens(chosen.knobs.n_ctx.0 * 2).min(model.n_ctx_train).min(limits::AUTO_CONTEXT_CAP);
        // The cheaper lever is at its end before this one moves.
        let window = wish.kv_window.and(chosen.knobs.kv_window);
        if next > chosen.knobs.n_ctx {
            let as_chosen = Wish {
                context: Setting::Exactly(next),
                kv_window: window.map(Setting::Exactly).or(wish.kv_window),
                reserve: if chosen.given_up.iter().any(|c| matches!(c, Change::Reserve { .. })) { return Ok(()) } else { wish.reserve },
                draft: if chosen.knobs.draft == Some(Draft::Full) { Setting::Exactly(Draft::Full) } else { wish.draft },
                ..wish
            };
            let larger = plan(&model, &machine, &as_chosen);
            let gave_up = |plan: &Plan| plan.given_up.iter().any(|c| !matches!(c, Change::Context { .. }));
            prop_assert!(larger.as_ref().map_or(true, gave_up), "{:?} fits too", next);
        }
    }

    #[test]
    fn a_plan_never_gets_worse_when_a_limit_grows(
        (model, machine, wish) in any_case(), by_mib in 1..4000u64,
    ) {
        let Ok(before) = plan(&model, &machine, &wish) else { return Ok(()) };
        for machine in grown(&machine, by_mib) {
            match plan(&model, &machine, &wish) {
                Ok(after) => is_no_worse(&before, &after, &model, &machine)?,
                Err(refusal) => prop_assert!(false, "it fitted before:\n{}", refusal_text(&refusal)),
            }
        }
    }

    #[test]
    fn nothing_is_given_up_in_vain((model, machine, wish) in any_case()) {
        let Ok(chosen) = plan(&model, &machine, &wish) else { return Ok(()) };
        if chosen.placement.gpu.is_none() && !machine.gpus.is_empty() {
            return Ok(()); // the knobs of a card that is not in use are not told
        }
        // With all others written as they were chosen, each lever goes as far again.
        let lever = |change: &Change| std::mem::discriminant(change);
        for change in &chosen.given_up {
            let alone = left_to_us(change, as_chosen(&chosen.knobs, &wish), wish.reserve);
            let Ok(again) = plan(&model, &machine, &alone) else {
                prop_assert!(false, "it fitted before");
                continue;
            };
            prop_assert!(again.given_up.iter().any(|other| lever(other) == lever(change)), "{change:?} of {:?}", chosen.given_up);
            prop_assert_eq!(again.knobs, chosen.knobs, "{:?}", change);
        }
    }

    #[test]
    fn an_offer_frees_what_it_says((model, machine, wish) in any_case()) {
        let outcome = plan(&model, &machine, &wish);
        let Err(Refusal::DoesNotFit(shortage)) = &outcome else { return Ok(()) };
        let pinned = as_chosen(&shortage.knobs, &wish);
        // The knobs of a card that is not in use are not told.
        let is_told = machine.gpus.is_empty() || model.n_experts() > 0;
        for offer in &shortage.offers {
            prop_assert!(offer.frees > Bytes::ZERO && !offer.change.price().is_empty());
            let (then_machine, then_wish) = made(&offer.change, &machine, &wish);
            prop_assert_eq!(plan(&model, &then_machine, &then_wish).is_ok(), offer.is_enough, "{:?}", offer);
            // A smaller draft head makes an automatic reserve smaller too.
            let is_draft = matches!(offer.change, Change::Draft { .. });
            let reserve = if is_draft { wish.reserve } else { pinned.reserve };
            let (then_machine, then_wish) = made(&offer.change, &machine, &Wish { reserve, ..pinned });
            let then = plan(&model, &then_machine, &then_wish);
            let (before, after) = (short(&outcome, offer.account), short(&then, offer.account));
            if is_told {
                prop_assert_eq!(after, before.saturating_sub(offer.frees), "{:?}", offer);
            }
        }
        for combination in &shortage.combinations {
            let (mut machine, mut wish) = (machine.clone(), wish);
            for at in &combination.offers {
                (machine, wish) = made(&shortage.offers[*at].change, &machine, &wish);
            }
            let left = match plan(&model, &machine, &wish) {
                Err(Refusal::DoesNotFit(shortage)) => shortage.shortfalls,
                Ok(_) | Err(_) => Vec::new(),
            };
            prop_assert_eq!(&left, &combination.short, "{:?} of {:?}", combination, shortage.offers);
        }
    }

    #[test]
    fn a_refusal_names_every_shortfall((model, machine, wish) in any_case()) {
        let Err(Refusal::DoesNotFit(shortage)) = plan(&model, &machine, &wish) else { return Ok(()) };
        prop_assert!(!shortage.shortfalls.is_empty());
        for account in shortage.ledger.accounts.iter().filter(|account| account.own() > Bytes::ZERO) {
            let named: Bytes =
                shortage.shortfalls.iter().filter(|short| short.account == account.id).map(|short| short.bytes).sum();
            prop_assert_eq!(named, account.shortfall(), "{:?}", account.id);
        }
        for combination in &shortage.combinations {
            prop_assert!(combination.offers.len() > 1 && combination.offers.is_sorted());
        }
        if let Some(enough) = shortage.combinations.iter().find(|combination| combination.short.is_empty()) {
            prop_assert!(shortage.short_with_all.is_empty() || enough.offers.len() < shortage.offers.len());
        }
        prop_assert!(refusal_text(&Refusal::DoesNotFit(shortage)).starts_with("DOES NOT FIT: "));
    }
}
