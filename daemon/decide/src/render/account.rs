//! One account as a table under its load line.

use std::fmt::Write;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, thousands};

use crate::ledger::{Account, AccountId, Bounds, Entry};

/// Characters of a bar, the mark of the line among them.
const BAR_WIDTH: usize = 44;

/// The column of the word that says where a figure comes from.
const BASIS_COLUMN: usize = 66;

/// An account: its size and line, the picture of its load, its objects.
pub(super) fn account_text(account: &Account) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<BASIS_COLUMN$}basis", head(account));
    if let Some(bounds) = account.bounds {
        let used = account.used();
        let rest = match (account.shortfall(), account.headroom().unwrap_or_default()) {
            (Bytes::ZERO, left) => match account.id {
                AccountId::Host | AccountId::Disk => format!("{} left", left.gib_text(1)),
                AccountId::Vram(_) => format!("{} left", left),
            },
            (missing, _) => format!("short by {} MiB", thousands(missing.mib_rounded_up())),
        };
        let _ = writeln!(text, "  {}  {} GiB · {rest}", bar(account, bounds), used.gib_text(1));
    }
    let mut in_reserve = account.entries.iter().filter(|entry| entry.object.is_in_reserve()).peekable();
    let reserve_begins = in_reserve.peek().map(|entry| entry.object);
    let reserve: Bytes = in_reserve.map(|entry| entry.bytes).sum();
    for entry in &account.entries {
        if Some(entry.object) == reserve_begins {
            let _ = writeln!(text, "{}", row("  reserve         ", reserve, "what comes after the cache", "planned"));
        }
        let _ = writeln!(text, "{}", entry_row(entry));
    }
    text
}

fn head(account: &Account) -> String {
    let title = match account.title.as_str() {
        "" => String::new(),
        title => format!("{title} · "),
    };
    let name = account.id.name().to_uppercase();
    match (account.id, account.bounds) {
        (AccountId::Vram(index), Some(Bounds { limit, line })) => {
            let kept_free = limit.saturating_sub(line);
            let kept_free = match kept_free < limits::VRAM_LINE_FREE.min(limit) {
                true => format!("{} of {}", kept_free.mib_rounded_down(), limits::VRAM_LINE_FREE.mib_rounded_down()),
                false => kept_free.mib_rounded_down().to_string(),
            };
            let limit = limit.gib_text(2);
            format!("{name:<6} GPU {index} · {title}{limit} GiB · line: {kept_free} MiB free")
        }
        (AccountId::Host | AccountId::Disk, Some(Bounds { limit, line })) => {
            format!("{name:<6} {title}{} GiB · line {}", limit.gib_text(1), line.gib_text(1))
        }
        (_, None) if title.is_empty() => name,
        (_, None) => format!("{name:<6} {}", account.title),
    }
}

fn entry_row(entry: &Entry) -> String {
    let name = match entry.object.is_in_reserve() {
        true => format!("    {:<14}", entry.object.name()),
        false => format!("  {:<16}", entry.object.name()),
    };
    row(&name, entry.bytes, &entry.detail, entry.basis.name())
}

fn row(name: &str, bytes: Bytes, detail: &str, basis: &str) -> String {
    let figures = format!("{name}{bytes:>10}   {detail}");
    format!("{figures:<BASIS_COLUMN$}{basis}")
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
