//! Stop strings: find them across token borders, and never show a part of one.
//!
//! The answer calls [`StopMatcher::push`] with each new piece of text. What could still become a stop string is held back;
//! what can't is given out at once. Pure; knows nothing of tokens.

/// Looks for stop strings in text that arrives in pieces.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    /// The end of the text so far, as far as it may be the beginning of a stop string.
    held: String,
}

/// What a piece of text led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    /// Text that is certain; may be empty.
    Text(String),
    /// The text before a stop string. The answer ends here.
    Stop(String),
}

impl StopMatcher {
    /// `stops` are not empty strings (the request's validation sees to it).
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> Matched {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at_byte) = first {
            self.held.truncate(at_byte);
            return Matched::Stop(std::mem::take(&mut self.held));
        }
        let keep_from =
            self.stops.iter().map(|stop| beginning_at_end(&self.held, stop)).min().unwrap_or(self.held.len());
        let keep = self.held.split_off(keep_from);
        Matched::Text(std::mem::replace(&mut self.held, keep))
    }

    /// The text still held back, when the answer ends for another reason.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Where the longest beginning of `stop` that `text` ends with starts; `text.len()` when there is none.
/// Quadratic in the stop string's length, which limits.rs bounds.
fn beginning_at_end(text: &str, stop: &str) -> usize {
    let earliest = text.len().saturating_sub(stop.len().saturating_sub(1));
    (earliest..text.len())
        .filter(|&at| text.is_char_boundary(at))
        .find(|&at| stop.as_bytes().starts_with(&text.as_bytes()[at..]))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::{Matched, StopMatcher};

    /// Feeds the pieces and returns (all text given out, whether it stopped).
    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let mut text = String::new();
        for piece in pieces {
            match matcher.push(piece) {
                Matched::Text(more) => text.push_str(&more),
                Matched::Stop(more) => {
                    text.push_str(&more);
                    return (text, true);
                }
            }
        }
        text.push_str(&matcher.finish());
        (text, false)
    }

    #[test]
    fn text_before_the_first_stop_string_is_given_and_nothing_of_the_stop_string() {
        type Case = (&'static [&'static str], &'static [&'static str], (&'static str, bool));
        let cases: &[Case] = &[
            (&[], &["any", "thing"], ("anything", false)),
            (&["END"], &["a", "E", "N", "D", "b"], ("a", true)),
            (&["END"], &["a EN", "d"], ("a ENd", false)),
            (&["END"], &["a", "EN"], ("aEN", false)),
            (&["\n\n"], &["one\n", "\ntwo"], ("one", true)),
            (&["\n\n"], &["one\n", "two\n"], ("one\ntwo\n", false)),
            (&["aab"], &["a", "a", "a", "b"], ("a", true)),
            (&["abcd", "bc"], &["xabc"], ("xa", true)),
            (&["x", "y"], &["..y..x"], ("..", true)),
            (&["é!"], &["caf", "é", "?"], ("café?", false)),
            (&["é!"], &["caf", "é", "!"], ("caf", true)),
            (&["stop"], &["stop"], ("", true)),
        ];
        for (stops, pieces, (text, stopped)) in cases {
            assert_eq!(run(stops, pieces), ((*text).to_owned(), *stopped), "{stops:?} {pieces:?}");
        }
    }

    #[test]
    fn the_cut_of_the_pieces_never_changes_the_result() {
        let text = "ababcabcabcdabcabab<|x|>abc";
        for stops in [&["abcd"][..], &["bab", "cabcabcd"], &["<|x|>"], &["zzz"], &["abab<|"]] {
            let whole = run(stops, &[text]);
            for n in 1..text.len() {
                let pieces: Vec<&str> = text.as_bytes().chunks(n).map(|c| std::str::from_utf8(c).unwrap()).collect();
                assert_eq!(run(stops, &pieces), whole, "{stops:?} in pieces of {n}");
            }
        }
    }

    #[test]
    fn text_that_can_not_become_a_stop_string_is_not_held() {
        let mut matcher = StopMatcher::new(vec!["END".into()]);
        assert_eq!(matcher.push("hello E"), Matched::Text("hello ".into()));
        assert_eq!(matcher.push("ast"), Matched::Text("East".into()));
    }
}
