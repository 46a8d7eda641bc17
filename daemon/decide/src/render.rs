//! Plans and refusals as text. Every figure comes from the plain structs of [`crate::plan`] and [`crate::ledger`]; what is
//! shown here is in them, for those who want JSON.

mod account;

use std::fmt::Write;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, thousands};

use crate::calibration::History;
use crate::ledger::{Account, AccountId, Ledger, Object};
use crate::plan::{
    Adapt, CapLever, Cause, Change, Combination, DiskVerdict, FileTier, Mode, Note, Offer, Plan, Refusal, Shortage,
    Shortfall, Speed, TokensPerSecond,
};

const MIB: i128 = 1 << 20;

/// A plan that fits: accounts with their objects, what to expect, then the verdict.
pub fn plan_text(plan: &Plan) -> String {
    let mut text = ledger_text(&plan.ledger);
    if let (Some(tier), Some(experts)) = (&plan.forecast.file_tier, &plan.placement.experts) {
        let _ = writeln!(text, "  {}", file_tier_text(tier, experts.file_only));
    }
    if let Some(speed) = &plan.forecast.speed {
        let _ = writeln!(text, "SPEED  {}", speed_text(speed));
    }
    let _ = writeln!(text, "{}", rough_text(plan));
    text.push_str(match plan.mode {
        Mode::Stable => "FITS.\n",
        Mode::Benchmark => "FITS, as a benchmark: its figures are not those of daily use.\n",
    });
    for change in &plan.given_up {
        let _ = writeln!(text, "  gave up: {} ({})", change_text(change), given_up_price(change));
    }
    for note in &plan.notes {
        let _ = writeln!(text, "  note: {}", note_text(note));
    }
    text
}

/// A refusal: what is missing, and the list of changes that make room.
pub fn refusal_text(refusal: &Refusal) -> String {
    match refusal {
        Refusal::KvTypeImpossible { kv_type } => format!(
            "DOES NOT FIT: this model's heads are not made of whole blocks of 32, so its keys and values can't be stored as \
             {kv_type}: use kv.type: f16.\n"
        ),
        Refusal::ModesMixed { reserve } => format!(
            "DOES NOT FIT: a benchmark has the same reserve on every machine, 512 MiB, but {} MiB are written: remove the \
             reserve, or use the profile stable.\n",
            thousands(reserve.mib_rounded_down())
        ),
        Refusal::OverLearnedCap { lever, written, cap } => {
            let figure = |n| match lever {
                CapLever::ResidentBudget | CapLever::ExpertCache => Bytes(n).to_string(),
                CapLever::Context | CapLever::KvWindow => format!("{} tokens", thousands(n)),
                CapLever::GpuLayers => thousands(n),
            };
            format!(
                "DOES NOT FIT: a worker with more than that ran out of memory, so the {} is at most {} now, but {} is written, and \
                 what is written is not changed silently: write {} or auto.\n",
                lever.name(),
                figure(*cap),
                figure(*written),
                figure(*cap)
            )
        }
        Refusal::DoesNotFit(shortage) => shortage_text(shortage),
    }
}

/// What clean starts of the same model, knobs and card have given: beside a plan what to expect, beside a refusal of the
/// card the evidence that the card is the cause and not the configuration.
pub fn history_text(outcome: &Result<Plan, Refusal>, history: &History) -> Option<String> {
    let words = history.words()?;
    match outcome {
        Ok(_) => Some(format!("Healthy interval on this machine: {words}.")),
        Err(Refusal::DoesNotFit(shortage)) => {
            let is_card = |short: &Shortfall| matches!(short.account, AccountId::Vram(_));
            shortage.shortfalls.iter().any(is_card).then(|| {
                format!("The card looks dirty, not the configuration: clean starts of this configuration give {words}.")
            })
        }
        Err(Refusal::KvTypeImpossible { .. } | Refusal::ModesMixed { .. } | Refusal::OverLearnedCap { .. }) => None,
    }
}

/// One line: `host 0.21 of 21.1 GiB line, 0.90 foreign · vram – · disk 0 B/token`. An account that the machine lacks is a
/// dash.
pub fn summary(ledger: &Ledger) -> String {
    let of_account = |account: &Account| match account.bounds {
        None => {
            let reads = account.object(Object::FileTierReads).unwrap_or_default();
            format!("{} {reads}/token", account.id.name())
        }
        Some(bounds) => format!(
            "{} {} of {} GiB line, {} foreign",
            account.id.name(),
            account.own().gib_text(2),
            bounds.line.gib_text(1),
            account.foreign().gib_text(2),
        ),
    };
    let mut parts: Vec<String> = ledger.accounts.iter().map(of_account).collect();
    if !ledger.accounts.iter().any(|account| matches!(account.id, AccountId::Vram(_))) {
        parts.insert(1.min(parts.len()), "vram –".to_owned());
    }
    parts.join(" · ")
}

/// All accounts.
pub fn ledger_text(ledger: &Ledger) -> String {
    ledger.accounts.iter().map(account::account_text).collect()
}

fn file_tier_text(tier: &FileTier, file_only: Bytes) -> String {
    let uses = tier.uses_permille.map_or_else(
        || "no profile yet".to_owned(),
        |permille| format!("about {}.{} % of expert uses", permille / 10, permille % 10),
    );
    let without = match tier.uses_permille {
        None => String::new(),
        Some(_) => format!(", {} without a profile", tier.reads_without_profile),
    };
    let verdict = match tier.verdict {
        DiskVerdict::KeepsUp => "the disk keeps up",
        DiskVerdict::SetsThePace => "the disk sets the pace",
        DiskVerdict::Unmeasured => "the disk is not measured yet",
    };
    format!("{file_only} of experts only in the file · {uses} · {} a token{without} · {verdict}", tier.reads_per_token)
}

fn speed_text(speed: &Speed) -> String {
    let wrong = speed
        .if_profile_is_wrong
        .map_or_else(String::new, |rate| format!(" · {} if the profile is wrong", rate_text(rate)));
    let (from, to) = (rate_text(speed.full_context), rate_text(speed.empty_context));
    let range = if from == to { from } else { format!("{from}–{to}") };
    format!("{range} tok/s expected{wrong}")
}

/// Three digits: `41`, `3.2`, `0.29`.
fn rate_text(rate: TokensPerSecond) -> String {
    match rate.hundredths {
        n if n >= 1000 => thousands((n + 50) / 100),
        n if n >= 100 => format!("{}.{}", (n + 5) / 100, (n + 5) % 100 / 10),
        n => format!("0.{n:02}"),
    }
}

/// The usual rule beside ours, whose accounts stay apart.
fn rough_text(plan: &Plan) -> String {
    let own = plan.ledger.accounts.iter().filter(|account| account.bounds.is_some() && account.own() > Bytes::ZERO);
    let ours: Vec<String> = own.map(|account| format!("{} {}", account.id.name(), account.own())).collect();
    let rough = plan.rough_rule;
    format!("ROUGH  weights + kv + 0.2 GiB × sessions + 15 %: {rough} · ours: {}", ours.join(", "))
}

fn shortage_text(shortage: &Shortage) -> String {
    let mut text = String::new();
    for short in &shortage.shortfalls {
        text.push_str(&shortfall_text(short, &shortage.ledger));
    }
    text.push_str(&ledger_text(&shortage.ledger));
    if !shortage.offers.is_empty() {
        text.push_str("Make room, cheapest first (each line computed alone):\n");
    }
    for (i, offer) in shortage.offers.iter().enumerate() {
        let _ = writeln!(text, "{:>3}  {}", i + 1, offer_text(offer));
    }
    for combination in &shortage.combinations {
        let _ = writeln!(text, "     {}", combination_text(combination));
    }
    match shortage.adapt {
        Some(Adapt::Starts { n_experts }) => {
            let n = thousands(n_experts);
            let _ =
                writeln!(text, "With the policy adapt it would start now, with {n} experts on the card, marked dirty.");
        }
        Some(Adapt::StillShort { account, bytes }) => {
            let rest = thousands(bytes.mib_rounded_up());
            let _ = writeln!(text, "The policy adapt can't do it either: {account} is short by {rest} MiB for it.");
        }
        None => {}
    }
    if !shortage.short_with_all.is_empty() {
        let all = if shortage.offers.is_empty() { "No change helps" } else { "All of them together are not enough" };
        let rest = missing_text(&shortage.short_with_all);
        let _ = writeln!(text, "{all}: {rest} still missing; use a smaller model or a machine with more memory.");
    }
    text
}

/// What one account lacks, with the sum that shows it.
fn shortfall_text(short: &Shortfall, ledger: &Ledger) -> String {
    let missing = thousands(short.bytes.mib_rounded_up());
    let account = short.account;
    match short.cause {
        Cause::OverLine => {
            let sum = ledger.account(account).map_or_else(String::new, over_line_sum);
            format!("DOES NOT FIT: {account} is short by {missing} MiB.\n{sum}")
        }
        Cause::UnderFloor { free_bytes, reserve, is_reserve_written, draft_head, n_fit, n_slots, floor } => {
            let free = (free_bytes + MIB / 2).div_euclid(MIB);
            let (reserve, head) = (reserve.mib_rounded_up(), draft_head.mib_rounded_up());
            let rest = free - i128::from(reserve) - i128::from(head);
            let yours = if is_reserve_written { " (yours, explicit)" } else { "" };
            let asked = if head > 0 { format!(" − {head} draft head") } else { String::new() };
            format!(
                "DOES NOT FIT: the expert cache would get {} slots; it needs at least {} ({} MiB).\n  {account}: {} MiB free after \
                 weights and kv − {} reserve{yours}{asked} = {}; short by {missing} MiB.\n",
                thousands(n_fit),
                thousands(n_slots),
                thousands(floor.mib_rounded_up()),
                signed(free),
                thousands(reserve),
                signed(rest),
            )
        }
        Cause::GpuLayers { n_layers, needed, free } => format!(
            "DOES NOT FIT: {n_layers} layers need {} MiB of {account} with context and reserve, but {} are free; short by \
             {missing} MiB.\n",
            thousands(needed.mib_rounded_up()),
            thousands(free.mib_rounded_down()),
        ),
    }
}

fn over_line_sum(account: &Account) -> String {
    let Some(bounds) = account.bounds else { return String::new() };
    let (used_mib, foreign_mib) = (account.used().mib_rounded_up(), account.foreign().mib_rounded_up());
    format!(
        "  {}: {} MiB planned + {} foreign = {}; the line is {} of {}.\n",
        account.id.name().to_uppercase(),
        thousands(used_mib.saturating_sub(foreign_mib)), // so that the sum adds up as it is shown
        thousands(foreign_mib),
        thousands(used_mib),
        thousands(bounds.line.mib_rounded_down()),
        thousands(bounds.limit.mib_rounded_down()),
    )
}

/// A number with its thousands apart and a true minus.
fn signed(n: i128) -> String {
    let digits = thousands(u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX));
    if n < 0 { format!("−{digits}") } else { digits }
}

/// `1,587 MiB of GPU 0 and 12 MiB of host memory are`.
fn missing_text(short: &[Shortfall]) -> String {
    let of = |short: &Shortfall| format!("{} MiB of {}", thousands(short.bytes.mib_rounded_up()), short.account);
    format!("{} are", short.iter().map(of).collect::<Vec<_>>().join(" and "))
}

fn combination_text(combination: &Combination) -> String {
    let places: Vec<String> = combination.offers.iter().map(|at| (at + 1).to_string()).collect();
    let reaches = match combination.short.as_slice() {
        [] => "enough".to_owned(),
        short => format!("{} still missing", missing_text(short)),
    };
    format!("{} together: {reaches}", places.join(" + "))
}

/// One offer, on one line.
pub fn offer_text(offer: &Offer) -> String {
    let enough = if offer.is_enough { ": enough alone" } else { "" };
    let frees = thousands(offer.frees.mib_rounded_down());
    format!("{:<42}frees {frees:>6} MiB   {}{enough}", change_text(&offer.change), offer.change.price())
}

/// A change, as a user would make it.
pub fn change_text(change: &Change) -> String {
    let mib = |bytes: &Bytes| thousands(bytes.mib_rounded_up());
    match change {
        Change::CloseProgram { program, account: _ } => {
            format!("close {} (pid {}, {})", program.name, program.pid, program.user)
        }
        Change::Sessions { from, to } => format!("sessions {from} → {to}"),
        Change::KvWindow { from, to } => format!("kv window {from} → {to}"),
        Change::Context { from, to } => format!("context {from} → {to}"),
        Change::KvType { from, to } => format!("kv {from} → {to}"),
        Change::Reserve { from, to } => format!("reserve {} → {}", mib(from), mib(to)),
        Change::GpuLayers { from, to } => format!("gpu layers {from} → {to}"),
        Change::Images { from, to } => format!("images {} → {}", from.name(), to.name()),
        Change::Draft { from, to } => format!("draft vocabulary {} → {}", from.name(), to.name()),
        Change::ResidentBudget { from, to } => format!("resident budget {from} → {to}"),
    }
}

/// The price of a change that the planner made by itself: a reserve that was written is never among them.
pub fn given_up_price(change: &Change) -> &'static str {
    match change {
        Change::Reserve { .. } => "less room for other programs",
        Change::CloseProgram { .. }
        | Change::Sessions { .. }
        | Change::KvWindow { .. }
        | Change::Context { .. }
        | Change::KvType { .. }
        | Change::GpuLayers { .. }
        | Change::Images { .. }
        | Change::Draft { .. }
        | Change::ResidentBudget { .. } => change.price(),
    }
}

/// One note, as a sentence.
pub fn note_text(note: &Note) -> String {
    let mib = |bytes: &Bytes| thousands(bytes.mib_rounded_down());
    match note {
        Note::ContextBeyondTraining { n_ctx, n_ctx_train } => {
            format!("the context of {n_ctx} tokens is longer than the {n_ctx_train} that the model was trained for")
        }
        Note::LineAboveLimit { line, limit } => {
            format!("host.line is {line}, but there are only {limit}: the line is {limit}")
        }
        Note::LineWithinMargin { gap, margin } => format!(
            "the host line is {gap} under the limit, but {margin} can vanish before memory is given back: lower host.line"
        ),
        Note::SlackLow { reserve, slack } => {
            let (reserve, slack) = (mib(reserve), mib(slack));
            format!("LOW: the reserve of {reserve} MiB leaves only {slack} MiB free beside what is allocated later")
        }
        Note::ReserveTooSmall { reserve, needed } => {
            let needed = thousands(needed.mib_rounded_up());
            format!("the reserve of {} MiB is less than the {needed} MiB that are allocated later", mib(reserve))
        }
        Note::ReserveSuggested { reserve, suggested, lowest_free } => format!(
            "with a reserve of {} MiB a request began with only {} MiB free: {} would keep 512 free",
            mib(reserve),
            mib(lowest_free),
            mib(suggested),
        ),
        Note::CacheUnderFloor { n_experts, n_slots } => {
            let (n, floor) = (thousands(*n_experts), thousands(*n_slots));
            format!("DIRTY: {n} experts on the card, under the floor of {floor}: slow until there is room")
        }
        Note::LayersDiffer { asked, placed, has_experts: true } => format!(
            "gpu_layers is {asked}, but {placed} are on the card: a model with experts has all of its dense weights there or none"
        ),
        Note::LayersDiffer { asked, placed: _, has_experts: false } => {
            format!("gpu_layers is {asked}, but this machine has no card that can be read: all layers run on the CPU")
        }
        Note::ImagesOnCpu => {
            "images are to be read on the card, but nothing of the model is on one: they are read on the CPU".to_owned()
        }
        Note::UnderLine { reserve, slack } => format!(
            "the reserve of {} MiB leaves {} MiB free at a request's start, under the line of {}",
            mib(reserve),
            mib(slack),
            mib(&limits::VRAM_LINE_FREE),
        ),
        Note::CardUnused { index } => {
            format!(
                "GPU {index} is not used: no layer of the model fits beside context and reserve, or none was asked for"
            )
        }
    }
}
