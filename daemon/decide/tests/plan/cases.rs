//! Models, machines and wishes of every kind, for the properties.

use plimsoll_config::config::{KvType, Setting};
use plimsoll_config::units::{Bytes, Tokens};
use plimsoll_decide::ledger::AccountId;
use plimsoll_decide::plan::{
    CardReading, Draft, Experts, GpuProgram, Images, KvSharing, LayerSizes, MachineReading, Mode, ModelSizes, Policy,
    Profile, RankedExpert, RequestStart, Speculation, Wish, plan,
};
use proptest::prelude::*;

use crate::fixtures::{MIB, kv_layer, mib, program};

prop_compose! {
    pub(crate) fn any_layer(dim: u64)(
        heads in 1..9u64,
        window in prop::option::of(1..4096u32),
        dense_mib in 0..400u64,
        expert_mib in prop::option::weighted(0.8, 1..4u64),
    ) -> LayerSizes {
        LayerSizes { dense: mib(dense_mib), kv: kv_layer(heads, dim, window), expert: expert_mib.map(mib) }
    }
}

prop_compose! {
    pub(crate) fn any_experts()(per_layer in 1..300u32, top_k in 1..9u32, loan_slots in 0..64u32) -> Experts {
        Experts { per_layer, top_k: top_k.min(per_layer), loan_slots }
    }
}

prop_compose! {
    pub(crate) fn any_speculation()(arena in 0..200u64, head in 0..200u64, small in prop::option::of(0..100u64)) -> Speculation {
        Speculation {
            verify_arena: mib(arena),
            draft_head: mib(head),
            small_draft_head: small.map(|small| mib(small.min(head))),
        }
    }
}

prop_compose! {
    pub(crate) fn any_model()(
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
    pub(crate) fn any_gpu(most_mib: u64)(
        index in 0..3u32,
        total_mib in 1..most_mib,
        used_permille in prop_oneof![0..200u64, 0..1000u64],
        context_mib in 0..500u64,
        reserved_mib in prop::option::of(0..200u64),
        // For at most 12 layers and the output, or not for all of them.
        layer_gains_ns in prop_oneof![Just(Vec::new()), prop::collection::vec(0..50_000u64, 1..14)],
        programs in prop::collection::vec((0..4000u64, any::<bool>()), 0..5),
        request_start in prop::option::weighted(0.3, (0..3000u64, 0..800u64).prop_map(|(reserve, free)| RequestStart {
            reserve: mib(reserve), lowest_free: mib(free),
        })),
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
            request_start,
            layer_gains_ns,
        }
    }
}

prop_compose! {
    /// Machines of about the size that a model needs: the others say yes or no at once.
    pub(crate) fn any_machine(model: &ModelSizes)(
        limit_mib in 0..(model.dense_weights.0 + model.expert_bytes().0) * 3 / 2 / MIB + 6000,
        foreign_mib in prop_oneof![0..200u64, 0..3000u64],
        programs in prop::collection::vec(0..5000u64, 0..6),
        mut gpus in prop::collection::vec(any_gpu(model.dense_weights.0 / MIB + 8000), 0..3),
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
            gpus: { gpus.iter_mut().zip(0..).for_each(|(gpu, index)| gpu.index = index); gpus },
            profile: profile.map(ranked),
            ..MachineReading::default()
        }
    }
}

pub(crate) fn setting<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Setting<T>> {
    prop::option::of(value).prop_map(|value| value.map_or(Setting::Auto, Setting::Exactly))
}

prop_compose! {
    pub(crate) fn any_wish()(
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
    pub(crate) fn open_wish()(
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
pub(crate) fn at_the_edge(
    model: &ModelSizes,
    machine: MachineReading,
    wish: &Wish,
    host: u64,
    card: u64,
) -> MachineReading {
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
pub(crate) fn any_case() -> impl Strategy<Value = (ModelSizes, MachineReading, Wish)> {
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
