//! Plans and refusals as text. Every figure comes from the plain structs of [`crate::plan`] and [`crate::ledger`]; what is
//! shown here is in them, for those who want JSON.

use std::fmt::Write;

use plimsoll_config::units::{Bytes, thousands};

use crate::ledger::{Account, AccountKind, Bounds, Ledger};
use crate::plan::{Change, Note, Offer, Plan, Refusal, Shortage};

/// Characters of a bar, the mark of the line among them.
const BAR_WIDTH: usize = 44;

/// The column of the word that says where a figure comes from.
const BASIS_COLUMN: usize = 66;

/// A plan that fits: accounts with their objects, then the verdict.
pub fn plan_text(plan: &Plan) -> String {
    let mut text = ledger_text(&plan.ledger);
    text.push_str("FITS.\n");
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
        Refusal::DoesNotFit(shortage) => shortage_text(shortage),
    }
}

/// One line: `host 0.21 of 21.1 GiB line, 0.90 foreign · vram – · disk 0 B/token`. An account that the machine lacks is a
/// dash.
pub fn summary(ledger: &Ledger) -> String {
    let of_kind = |kind: AccountKind| match ledger.account(kind).map(|account| (account, account.bounds)) {
        None => format!("{} –", kind.name()),
        Some((_, None)) => format!("{} 0 B/token", kind.name()),
        Some((account, Some(bounds))) => format!(
            "{} {} of {} GiB line, {} foreign",
            kind.name(),
            account.own().gib_text(2),
            bounds.line.gib_text(1),
            account.foreign().gib_text(2),
        ),
    };
    AccountKind::ALL.map(of_kind).join(" · ")
}

/// All accounts.
pub fn ledger_text(ledger: &Ledger) -> String {
    ledger.accounts.iter().map(account_text).collect()
}

fn account_text(account: &Account) -> String {
    let mut text = String::new();
    let name = account.kind.name().to_uppercase();
    let head = match account.bounds {
        Some(bounds) => format!("{name:<6} {} GiB · line {}", bounds.limit.gib_text(1), bounds.line.gib_text(1)),
        None => name,
    };
    let _ = writeln!(text, "{head:<BASIS_COLUMN$}basis");
    if let Some(bounds) = account.bounds {
        let used = account.used();
        let rest = match account.shortfall() {
            Bytes::ZERO => format!("{} left", bounds.line.saturating_sub(used).gib_text(1)),
            missing => format!("short by {} MiB", thousands(missing.mib_rounded_up())),
        };
        let _ = writeln!(text, "  {}  {} GiB · {rest}", bar(account, bounds), used.gib_text(1));
    }
    for entry in &account.entries {
        let row = format!("  {:<16}{:>10}   {}", entry.object.name(), entry.bytes, entry.detail);
        let _ = writeln!(text, "{row:<BASIS_COLUMN$}{}", entry.basis.name());
    }
    text
}

/// The load line: own bytes, foreign bytes, free up to the mark, and what is beyond it.
fn bar(account: &Account, bounds: Bounds) -> String {
    let cell = |bytes: Bytes| match bounds.limit.0 {
        0 => 0,
        limit => (u128::from(bytes.0) * BAR_WIDTH as u128 / u128::from(limit)).min(BAR_WIDTH as u128) as usize,
    };
    let mark = cell(bounds.line).min(BAR_WIDTH - 1);
    let own_end = cell(account.own()).max(usize::from(account.own() > Bytes::ZERO));
    let used_end = cell(account.used()).max(own_end);
    let draw = |at: usize| match at {
        at if at == mark => '│',
        at if at < own_end => '█',
        at if at < used_end => '▒',
        at if at < mark => '░',
        _ => '·',
    };
    (0..BAR_WIDTH).map(draw).collect()
}

fn shortage_text(shortage: &Shortage) -> String {
    let missing = thousands(shortage.shortfall.mib_rounded_up());
    let kind = shortage.account.name();
    let mut text = format!("DOES NOT FIT: {kind} memory is short by {missing} MiB.\n");
    if let Some((account, bounds)) = shortage.ledger.account(shortage.account).and_then(|a| a.bounds.map(|b| (a, b))) {
        let (used_mib, foreign_mib) = (account.used().mib_rounded_up(), account.foreign().mib_rounded_up());
        let _ = writeln!(
            text,
            "  {}: {} MiB planned + {} foreign = {}; the line is {} of {}.",
            kind.to_uppercase(),
            thousands(used_mib.saturating_sub(foreign_mib)), // so that the sum adds up as it is shown
            thousands(foreign_mib),
            thousands(used_mib),
            thousands(bounds.line.mib_rounded_down()),
            thousands(bounds.limit.mib_rounded_down()),
        );
    }
    text.push_str(&ledger_text(&shortage.ledger));
    if !shortage.offers.is_empty() {
        text.push_str("Make room, cheapest first (each line computed alone):\n");
    }
    for (i, offer) in shortage.offers.iter().enumerate() {
        let _ = writeln!(text, "{:>3}  {}", i + 1, offer_text(offer));
    }
    if shortage.short_with_all > Bytes::ZERO {
        let rest = thousands(shortage.short_with_all.mib_rounded_up());
        let all = if shortage.offers.is_empty() { "No change helps" } else { "All of them together are not enough" };
        let _ =
            writeln!(text, "{all}: {rest} MiB are still missing; use a smaller model or a machine with more memory.");
    }
    text
}

/// One offer, on one line.
pub fn offer_text(offer: &Offer) -> String {
    let change = match &offer.change {
        Change::CloseProgram(program) => format!("close {} (pid {}, {})", program.name, program.pid, program.user),
        Change::Sessions { from, to } => format!("sessions {from} → {to}"),
        Change::Context { from, to } => format!("context {from} → {to}"),
        Change::KvType { from, to } => format!("kv {from} → {to}"),
    };
    let enough = if offer.is_enough { ": enough alone" } else { "" };
    let frees = thousands(offer.frees.mib_rounded_down());
    format!("{change:<42}frees {frees:>6} MiB   {}{enough}", offer.change.price())
}

/// One note, as a sentence.
pub fn note_text(note: &Note) -> String {
    match note {
        Note::ContextBeyondTraining { n_ctx, n_ctx_train } => {
            format!("the context of {n_ctx} tokens is longer than the {n_ctx_train} that the model was trained for")
        }
        Note::ContextReduced { n_ctx, wanted } => {
            format!("context {n_ctx} in place of {wanted} tokens: more does not fit under the line")
        }
        Note::LineAboveLimit { line, limit } => {
            format!("host.line is {line}, but there are only {limit}: the line is {limit}")
        }
    }
}
