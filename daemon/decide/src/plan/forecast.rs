//! What a plan promises: what a token reads of the file, and how many tokens a second to expect.
//!
//! The time of a token is that of its slowest tier, bytes ÷ measured bandwidth; of that, 55 % was reached in practice. A
//! tier that was not measured is not guessed: then there is no figure.

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Tokens};

use super::load::{Inputs, Load};
use super::placement::Uses;
use super::{DiskVerdict, FileTier, Forecast, Speed, TokensPerSecond};

/// Bytes that a token reads, by tier.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    card: Bytes,
    host: Bytes,
    file: Bytes,
}

pub(super) fn forecast(inputs: Inputs<'_>, load: &Load) -> Forecast {
    let n_ctx = load.choice.n_ctx;
    let at = |n_ctx, uses| rate(inputs, &traffic(inputs, load, n_ctx, uses));
    let speed = match (at(n_ctx, Uses::Profiled), at(Tokens(0), Uses::Profiled)) {
        (Some(full_context), Some(empty_context)) => {
            let uniform = at(n_ctx, Uses::Uniform).filter(|_| inputs.row.has_profile());
            let if_profile_is_wrong = uniform.filter(|wrong| *wrong < full_context);
            Some(Speed { full_context, empty_context, if_profile_is_wrong })
        }
        (None, _) | (_, None) => None,
    };
    Forecast { file_tier: file_tier(inputs, load), speed }
}

fn file_tier(inputs: Inputs<'_>, load: &Load) -> Option<FileTier> {
    let experts = load.placement.experts.filter(|experts| experts.n_file_only > 0)?;
    let (from, to) = (experts.n_cached + experts.n_resident, inputs.row.len());
    let traffic = traffic(inputs, load, load.choice.n_ctx, Uses::Profiled);
    let file_ns = time_ns(traffic.file, inputs.machine.disk.as_ref().map(|disk| disk.bytes_per_second));
    let others_ns = slowest_ns(inputs, &Traffic { file: Bytes::ZERO, ..traffic });
    let verdict = match (file_ns, others_ns) {
        (Some(file_ns), Some(others_ns)) if file_ns <= others_ns => DiskVerdict::KeepsUp,
        (Some(_), Some(_)) => DiskVerdict::SetsThePace,
        (None, _) | (_, None) => DiskVerdict::Unmeasured,
    };
    Some(FileTier {
        uses_permille: inputs.row.uses_permille(from, to),
        reads_per_token: traffic.file,
        reads_without_profile: inputs.row.bytes_per_token(from, to, Uses::Uniform),
        verdict,
    })
}

/// What one token reads when its session holds `n_ctx` tokens.
fn traffic(inputs: Inputs<'_>, load: &Load, n_ctx: Tokens, uses: Uses) -> Traffic {
    let (model, choice) = (inputs.model, &load.choice);
    let mut traffic = Traffic { card: Bytes::ZERO, host: Bytes::ZERO, file: Bytes::ZERO };
    let kv_of = |layer: usize, n_tokens: u32| {
        model.layers[layer].kv.bytes(choice.kv_type, u64::from(n_tokens), 1).unwrap_or_default()
    };
    for (place, layer) in model.layers.iter().enumerate() {
        let kv = kv_of(place, n_ctx.0);
        if load.placement.gpu_layers.contains(&(place as u32)) {
            let on_card = choice.kv_window.map_or(kv, |window| kv_of(place, n_ctx.0.min(window.0)));
            traffic.card = [traffic.card, layer.dense, on_card].into_iter().sum();
            traffic.host = traffic.host.saturating_add(kv.saturating_sub(on_card));
        } else {
            traffic.host = [traffic.host, layer.dense, kv].into_iter().sum();
        }
    }
    let output = if load.placement.output_on_gpu { &mut traffic.card } else { &mut traffic.host };
    *output = output.saturating_add(model.output);
    if let Some(experts) = load.placement.experts {
        let in_file = experts.n_cached + experts.n_resident;
        let used = |from, to| inputs.row.bytes_per_token(from, to, uses);
        traffic.card = traffic.card.saturating_add(used(0, experts.n_cached));
        traffic.host = traffic.host.saturating_add(used(experts.n_cached, in_file));
        traffic.file = used(in_file, inputs.row.len());
    }
    traffic
}

/// The time that bytes take; `None` if there are some, and the tier was not measured.
fn time_ns(bytes: Bytes, per_second: Option<Bytes>) -> Option<u128> {
    match (bytes, per_second.filter(|per_second| *per_second > Bytes::ZERO)) {
        (Bytes::ZERO, _) => Some(0),
        (_, None) => None,
        (bytes, Some(per_second)) => Some(u128::from(bytes.0) * 1_000_000_000 / u128::from(per_second.0)),
    }
}

/// The time of the slowest tier.
fn slowest_ns(inputs: Inputs<'_>, traffic: &Traffic) -> Option<u128> {
    let machine = inputs.machine;
    let card = time_ns(traffic.card, inputs.gpu().and_then(|gpu| gpu.bytes_per_second))?;
    let host = time_ns(traffic.host, machine.host_bytes_per_second)?;
    let file = time_ns(traffic.file, machine.disk.as_ref().map(|disk| disk.bytes_per_second))?;
    Some(card.max(host).max(file))
}

fn rate(inputs: Inputs<'_>, traffic: &Traffic) -> Option<TokensPerSecond> {
    let token_ns = slowest_ns(inputs, traffic).filter(|token_ns| *token_ns > 0)?;
    let hundredths = u128::from(limits::ROOFLINE_PERCENT) * 1_000_000_000 / token_ns;
    Some(TokensPerSecond { hundredths: u64::try_from(hundredths).unwrap_or(u64::MAX) })
}
