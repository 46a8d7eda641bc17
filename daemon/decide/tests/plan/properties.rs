//! Properties of all models, machines and wishes.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::AccountId;
use plimsoll_decide::plan::{
    CardReading, Change, Draft, Experts, GpuProgram, Images, Knobs, KvSharing, LayerSizes, MachineReading, Mode,
    ModelSizes, Plan, Policy, Profile, RankedExpert, Refusal, Speculation, Wish, plan,
};
use plimsoll_decide::render::{plan_text, refusal_text};
use proptest::prelude::*;

use crate::fixtures::{MIB, kv_layer, mib, program};

prop_compose! {
    fn any_layer(dim: u64)(
        heads in 1..9u64,
        window in prop::option::of(1..4096u32),
        dense_mib in 0..400u64,
        expert_mib in prop::option::weighted(0.8, 1..4u64),
    ) -> LayerSizes {
        LayerSizes { dense: mib(dense_mib), kv: kv_layer(heads, dim, window), expert: expert_mib.map(mib) }
    }
}

prop_compose! {
    fn any_experts()(per_layer in 1..300u32, top_k in 1..9u32, loan_slots in 0..64u32) -> Experts {
        Experts { per_layer, top_k: top_k.min(per_layer), loan_slots }
    }
}

prop_compose! {
    fn any_speculation()(arena in 0..200u64, head in 0..200u64, small in prop::option::of(0..100u64)) -> Speculation {
        Speculation {
            verify_arena: mib(arena),
            draft_head: mib(head),
            small_draft_head: small.map(|small| mib(small.min(head))),
        }
    }
}

prop_compose! {
    fn any_model()(
        layers in prop::sample::select(vec![64, 128, 256, 64, 128, 256, 64, 128, 256, 80])
            .prop_flat_map(|dim| prop::collection::vec(any_layer(dim), 0..12)),
        experts in prop::option::of(any_experts()),
        (embedding_mib, output_mib, is_tied) in (0..500u64, 0..500u64, any::<bool>()),
        n_ctx_train in 1..200_000u32,
        (activations_mib, prompt_path_mib) in (0..500u64, 0..1200u64),
        (image_encoder, speculation) in (prop::option::of((0..900u64).prop_map(mib)), prop::option::of(any_speculation())),
    ) -> ModelSizes {
        let of_layers: Bytes = layers.iter().map(|layer| layer.dense).sum();
        let output = if is_tied { mib(embedding_mib) } else { mib(output_mib) };
        let beside = if is_tied { Bytes::ZERO } else { output };
        ModelSizes {
            file_bytes: mib(1),
            dense_weights: [of_layers, mib(embedding_mib), beside].into_iter().sum(),
            token_embedding: mib(embedding_mib),
            output,
            layers,
            experts,
            n_ctx_train: Tokens(n_ctx_train),
            activations: mib(activations_mib),
            prompt_path: mib(prompt_path_mib),
            image_encoder,
            speculation,
        }
    }
}

prop_compose! {
    fn any_gpu(most_mib: u64)(
        index in 0..3u32,
        total_mib in 1..most_mib,
        used_permille in prop_oneof![0..200u64, 0..1000u64],
        context_mib in 0..500u64,
        reserved_mib in prop::option::of(0..200u64),
        // For at most 12 layers and the output, or not for all of them.
        layer_gains_ns in prop_oneof![Just(Vec::new()), prop::collection::vec(0..50_000u64, 1..14)],
        programs in prop::collection::vec((0..4000u64, any::<bool>()), 0..5),
    ) -> CardReading {
        let programs = programs.into_iter().zip(100..).map(|((n_mib, is_desktop), pid)| GpuProgram {
            program: program(pid, "g", mib(n_mib)), is_desktop,
        });
        CardReading {
            index,
            name: "card".to_owned(),
            total: mib(total_mib),
            free: mib(total_mib - total_mib * used_permille / 1000),
            context: mib(context_mib),
            driver_reserved: reserved_mib.map(mib),
            programs: programs.collect(),
            bytes_per_second: Some(Bytes(300_000_000_000)),
            request_start: None,
            layer_gains_ns,
        }
    }
}

prop_compose! {
    /// Machines of about the size that a model needs: the others say yes or no at once.
    fn any_machine(model: &ModelSizes)(
        limit_mib in 0..(model.dense_weights.0 + model.expert_bytes().0) * 3 / 2 / MIB + 6000,
        foreign_mib in prop_oneof![0..200u64, 0..3000u64],
        programs in prop::collection::vec(0..5000u64, 0..6),
        gpu in prop::option::of(any_gpu(model.dense_weights.0 / MIB + 8000)),
        profile in prop::option::of(prop::collection::vec((0..14u32, 0..1000u32), 0..500)),
    ) -> MachineReading {
        let programs = programs.into_iter().zip(1..).map(|(n_mib, pid)| program(pid, "p", mib(n_mib)));
        let ranked = |ranked: Vec<(u32, u32)>| Profile {
            ranked: ranked.into_iter().map(|(layer, uses)| RankedExpert { layer, uses }).collect(),
        };
        MachineReading {
            host_limit: mib(limit_mib),
            host_foreign: mib(foreign_mib),
            programs: programs.collect(),
            host_bytes_per_second: Some(Bytes(20_000_000_000)),
            gpus: gpu.into_iter().collect(),
            profile: profile.map(ranked),
            ..MachineReading::default()
        }
    }
}

fn setting<T: Clone + std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Setting<T>> {
    prop::option::of(value).prop_map(|value| value.map_or(Setting::Auto, Setting::Exactly))
}

prop_compose! {
    fn any_wish()(
        context in setting((64..200_000u32).prop_map(Tokens)),
        kv_type in prop::sample::select(KvType::ALL.to_vec()),
        max_sessions in 1..8u32,
        host_line in prop_oneof![3 => Just(Setting::Auto), 1 => (256..20_000u64).prop_map(|n| Setting::Exactly(mib(n)))],
        kv_sharing in prop::sample::select(vec![KvSharing::Each, KvSharing::Shared]),
        (kv_window, resident_budget) in (
            prop::option::of(setting((64..200_000u32).prop_map(Tokens))),
            prop::option::of(setting((0..6_000u64).prop_map(mib))),
        ),
        reserve in setting((0..3000u64).prop_map(mib)),
        gpu_layers in prop_oneof![3 => Just(Setting::Auto), 1 => (0..14u32).prop_map(Setting::Exactly)],
        (images, draft) in (
            setting(prop::sample::select(vec![Images::Card, Images::Cpu])),
            setting(prop::sample::select(vec![Draft::Full, Draft::Small])),
        ),
        (is_benchmark, policy) in (
            any::<bool>(), prop::sample::select(vec![Policy::Strict, Policy::Wait, Policy::Adapt]),
        ),
    ) -> Wish {
        let mode = if is_benchmark && reserve == Setting::Auto { Mode::Benchmark } else { Mode::Stable };
        Wish {
            context, kv_type, max_sessions, host_line, kv_sharing, kv_window, resident_budget, reserve, gpu_layers,
            images, draft,
            mode, policy,
        }
    }
}

prop_compose! {
    /// A wish that leaves to the planner what can be left to it.
    fn open_wish()(
        wish in any_wish(),
        (has_window, has_file_tier) in (any::<bool>(), any::<bool>()),
    ) -> Wish {
        Wish {
            context: Setting::Auto,
            host_line: Setting::Auto,
            kv_window: has_window.then_some(Setting::Auto),
            resident_budget: has_file_tier.then_some(Setting::Auto),
            reserve: Setting::Auto,
            gpu_layers: Setting::Auto,
            images: Setting::Auto,
            draft: Setting::Auto,
            ..wish
        }
    }
}

/// A machine that has a little more or less than what the best plan takes of it, where the ladder is at work.
fn at_the_edge(model: &ModelSizes, machine: MachineReading, wish: &Wish, host: u64, card: u64) -> MachineReading {
    let mut huge = MachineReading { host_limit: mib(1 << 20), host_foreign: Bytes::ZERO, ..machine.clone() };
    for gpu in &mut huge.gpus {
        (gpu.total, gpu.free) = (mib(1 << 20), mib(1 << 20));
    }
    let Ok(best) = plan(model, &huge, wish) else { return machine };
    let own = |id| best.ledger.account(id).map_or(Bytes::ZERO, |account| account.own());
    // The line is 1 GiB or 12 % under the limit; a card's cache needs its floor, not all experts.
    let host_limit = Bytes(own(AccountId::Host).0 + own(AccountId::Host).0 / 7).saturating_add(mib(500 + host));
    let mut machine = MachineReading { host_limit, host_foreign: Bytes::ZERO, ..machine };
    for gpu in &mut machine.gpus {
        let cached = best.placement.experts.map_or(Bytes::ZERO, |experts| experts.cached);
        let needed = own(AccountId::Vram(gpu.index)).saturating_sub(cached).saturating_add(model.cache_floor().1);
        let reserve_and_cards_own = mib(card);
        gpu.free = needed.saturating_add(reserve_and_cards_own);
        gpu.total = gpu.free.saturating_add(mib(100));
    }
    machine
}

/// Half of the cases are wild, half are where a little more or less decides.
fn any_case() -> impl Strategy<Value = (ModelSizes, MachineReading, Wish)> {
    // Boxed: what makes a model and a machine is more than a thread's stack holds several times over.
    let wild = any_model().boxed().prop_flat_map(|model| {
        let machine = any_machine(&model).boxed();
        (Just(model), machine, any_wish())
    });
    let edge = any_model()
        .boxed()
        .prop_flat_map(|model| {
            let machine = any_machine(&model).boxed();
            (Just(model), machine, open_wish(), 0..1500u64, 0..1000u64)
        })
        .prop_map(|(model, machine, wish, host, card)| {
            let machine = at_the_edge(&model, machine, &wish, host, card);
            (model, machine, wish)
        });
    prop_oneof![wild.boxed(), edge.boxed()]
}

/// The machine and the wish after a change was made.
fn made(change: &Change, machine: &MachineReading, wish: &Wish) -> (MachineReading, Wish) {
    let (mut machine, mut wish) = (machine.clone(), *wish);
    match change {
        Change::CloseProgram { program, account: AccountId::Vram(_) } => {
            let gpu = &mut machine.gpus[0];
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
        prop_assert!(b_experts.n_file_only <= a_experts.n_file_only, "{:?} then {:?}", a_experts, b_experts);
        prop_assert!(b_experts.n_cached >= a_experts.n_cached, "{:?} then {:?}", a_experts, b_experts);
    } else if let Some(gpu) = machine.gpus.first() {
        let (before, after) = (saved_ns(a, model, gpu), saved_ns(b, model, gpu));
        prop_assert!(after >= before, "{before} ns saved by {:?}, then {after} by {:?}", a.placement, b.placement);
    }
    Ok(())
}

/// The same machine with more memory, and the same with more of its card free.
fn grown(machine: &MachineReading, by_mib: u64) -> [MachineReading; 2] {
    let host = MachineReading { host_limit: machine.host_limit.saturating_add(mib(by_mib)), ..machine.clone() };
    let mut card = machine.clone();
    for gpu in &mut card.gpus {
        gpu.total = gpu.total.saturating_add(mib(by_mib));
        gpu.free = gpu.free.saturating_add(mib(by_mib));
    }
    [host, card]
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
            if let (AccountId::Vram(_), Some(gpu)) = (account.id, machine.gpus.first()) {
                prop_assert_eq!(account.foreign(), gpu.total.saturating_sub(gpu.free));
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
        if let (Setting::Exactly(n_layers), Some(_), None) = (wish.gpu_layers, machine.gpus.first(), plan.placement.experts) {
            prop_assert_eq!(plan.placement.gpu_layers.len(), model.layers.len().min(n_layers as usize));
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
