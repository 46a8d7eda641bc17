//! Words that no file may hold: leftovers, and paths or hosts of one machine.

use super::Offence;
use super::sources::Source;

struct Rule {
    name: &'static str,
    /// Written in halves, so that this file does not break its own rules.
    halves: (&'static str, &'static str),
    /// Letters and digits around it make it another word.
    whole_word: bool,
    why: &'static str,
}

const LEFTOVER: &str = "unfinished: do it now, or open an issue";
const MACHINE: &str = "a path of one machine: take it from the environment or make it relative";
const HOST: &str = "a package registry's host: name the package and let the user's own client find it";

const RULES: [Rule; 13] = [
    Rule { name: "leftover", halves: ("FIX", "ME"), whole_word: true, why: LEFTOVER },
    Rule { name: "leftover", halves: ("XX", "X"), whole_word: true, why: LEFTOVER },
    Rule { name: "leftover", halves: ("HA", "CK"), whole_word: true, why: LEFTOVER },
    Rule { name: "leftover", halves: ("TO", "DO"), whole_word: true, why: LEFTOVER },
    Rule { name: "machine-path", halves: ("/wo", "rk/"), whole_word: false, why: MACHINE },
    Rule { name: "machine-path", halves: ("/tmp/", "wt"), whole_word: false, why: MACHINE },
    Rule { name: "machine-path", halves: ("/tmp/", "cache"), whole_word: false, why: MACHINE },
    Rule { name: "registry-host", halves: ("pypi", ".org"), whole_word: false, why: HOST },
    Rule { name: "registry-host", halves: ("python", "hosted.org"), whole_word: false, why: HOST },
    Rule { name: "registry-host", halves: ("index.", "crates.io"), whole_word: false, why: HOST },
    Rule { name: "registry-host", halves: ("static.", "crates.io"), whole_word: false, why: HOST },
    Rule { name: "registry-host", halves: ("npm", "js.org"), whole_word: false, why: HOST },
    Rule { name: "registry-host", halves: ("deb.", "debian.org"), whole_word: false, why: HOST },
];

pub(super) fn check(source: &Source, offences: &mut Vec<Offence>) {
    for rule in &RULES {
        let word = format!("{}{}", rule.halves.0, rule.halves.1);
        for (index, line) in source.text.lines().enumerate() {
            if stands_in(line, &word, rule.whole_word) {
                offences.push(Offence::new(source, index + 1, rule.name, format!("`{word}`: {}", rule.why)));
            }
        }
    }
}

fn stands_in(line: &str, word: &str, whole_word: bool) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !whole_word || ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    })
}
