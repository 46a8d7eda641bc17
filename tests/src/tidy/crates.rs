//! Which crate may lean on which: `config ← decide ← daemon`, `config ← wire ← worker → kernels`, `model ← daemon, worker`.

use super::Offence;
use super::sources::Source;
use serde_json::Value;

struct Direction {
    name: &'static str,
    /// Crates of ours that it may use.
    ours: &'static [&'static str],
    /// Crates of others: all that it may use, or `None` for a shell, which may use what it needs.
    others: Option<&'static [&'static str]>,
}

const DIRECTIONS: [Direction; 8] = [
    Direction { name: "plimsoll-config", ours: &[], others: Some(&["serde", "serde-saphyr"]) },
    Direction { name: "plimsoll-decide", ours: &["plimsoll-config"], others: Some(&[]) },
    Direction {
        name: "plimsoll",
        ours: &["plimsoll-config", "plimsoll-decide", "plimsoll-model", "plimsoll-wire"],
        others: None,
    },
    Direction {
        name: "plimsoll-model",
        ours: &["plimsoll-config"],
        others: Some(&[
            "hashbrown",
            "memmap2",
            "minijinja",
            "minijinja-contrib",
            "regex-automata",
            "serde",
            "serde_json",
        ]),
    },
    Direction { name: "plimsoll-wire", ours: &["plimsoll-config"], others: Some(&["serde", "serde_json"]) },
    Direction {
        name: "plimsoll-worker",
        ours: &["plimsoll-config", "plimsoll-kernels", "plimsoll-model", "plimsoll-wire"],
        others: Some(&["clap", "nix", "serde", "serde_json", "signal-hook"]),
    },
    Direction { name: "plimsoll-kernels", ours: &[], others: Some(&["half"]) },
    Direction {
        name: "plimsoll-tests",
        ours: &[
            "plimsoll-config",
            "plimsoll-decide",
            "plimsoll",
            "plimsoll-model",
            "plimsoll-wire",
            "plimsoll-worker",
            "plimsoll-kernels",
        ],
        others: None,
    },
];

/// Offences against the directions, from the text that `cargo metadata --no-deps --format-version 1` writes.
/// Dependencies of tests and benches are free.
///
/// # Errors
/// The text is not what cargo writes.
pub fn check_dependencies(metadata: &str) -> Result<Vec<Offence>, serde_json::Error> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let mut offences = Vec::new();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let members: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for name in &members {
        if !DIRECTIONS.iter().any(|direction| direction.name == *name) {
            offences.push(offence(name, "not in the table of tests/src/tidy/crates.rs: say what it may depend on"));
        }
    }
    for package in packages {
        let Some(direction) = DIRECTIONS.iter().find(|direction| package["name"] == direction.name) else { continue };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"] != "dev") {
            let name = dependency["name"].as_str().unwrap_or_default();
            let is_ours = members.contains(&name);
            let is_allowed = if is_ours {
                direction.ours.contains(&name)
            } else {
                direction.others.is_none_or(|others| others.contains(&name))
            };
            if !is_allowed {
                let words = format!("may not depend on `{name}`: the directions are in tests/src/tidy/crates.rs");
                offences.push(offence(direction.name, &words));
            }
        }
    }
    Ok(offences)
}

fn offence(name: &str, words: &str) -> Offence {
    Offence { path: name.to_owned(), line: 0, rule: "direction", words: words.to_owned() }
}

/// A crate's manifest takes the workspace's lints.
pub(super) fn check_manifest(source: &Source, offences: &mut Vec<Offence>) {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let takes_lints = lines.windows(2).any(|pair| pair[0] == "[lints]" && pair[1] == "workspace = true");
    if lines.contains(&"[package]") && !takes_lints {
        offences.push(Offence::new(source, 0, "lints", "has no `[lints]` with `workspace = true`"));
    }
}
