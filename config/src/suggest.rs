//! "Did you mean …?" for a misspelt name.

/// The known name that is nearest to what was written, if one is near enough: a third of its letters wrong at most.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|name| (distance(&written, name), name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edits that turn one name into the other: a letter added, dropped, changed, or two neighbours swapped (optimal string
/// alignment). Names longer than 64 letters are not alike to anything: the table stays small.
fn distance(a: &str, b: &str) -> usize {
    const TOO_FAR: usize = 1000;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len() > 64 || b.len() > 64 {
        return TOO_FAR;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1]; // rows[i][j]: a's first i letters against b's first j
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["path", "threads", "max_sessions"];
        let check = |written: &str, expect: Option<&str>| assert_eq!(nearest(written, known), expect, "{written}");
        check("thread", Some("threads"));
        check("therads", Some("threads"));
        check("max-sessions", Some("max_sessions"));
        check("maxSessions", Some("max_sessions"));
        check("Path", Some("path"));
        check("pth", Some("path"));
        check("gpu", None);
        check("", None);
        check(&"x".repeat(100_000), None);
    }

    #[test]
    fn a_swap_counts_once() {
        assert_eq!(distance("abcd", "abdc"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
