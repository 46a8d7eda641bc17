//! A day as a log: all that a policy was shown and all that it decided, one line of JSON for each step; and the replay, which
//! shows the same to a fresh policy and wants the same decisions.
//!
//! A log is written by [`Recorder`], which stands between the day and its policy, and read by [`replay`] a line at a time. It
//! needs nothing beside itself: its first line holds the facts that the policy is made from.

use super::lever::{Account, Card, Lever, MAX_CARDS};
use super::policy::{Facts, Order, Policy, Promises};
use super::sight::{Happening, MAX_GROUPS, Running, Sight};
use plimsoll_config::units::Millis;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, Read, Write};

/// What a log calls itself.
const FORMAT: &str = "plimsoll-sim-log";

/// Goes up when an older log can't be read any more.
const VERSION: u32 = 1;

/// Longest line. A step of a few hundred events is a hundred KiB; more is no log of ours.
const MAX_LINE: u64 = 4 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    facts: Facts,
}

/// What a policy decided at one step. Orders are their names and figures: they are compared, never carried out again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Decision {
    orders: String,
    next_look_ms: u64,
    idle: bool,
    reason: String,
}

impl Decision {
    fn of(policy: &dyn Policy, orders: &[Order]) -> Decision {
        let (next_look_ms, idle, reason) = (policy.next_look().0, policy.idle(), policy.reason());
        Decision { orders: format!("{orders:?}"), next_look_ms, idle, reason }
    }
}

/// Every further line.
#[derive(Debug, Serialize, Deserialize)]
struct Step {
    now_ms: u64,
    sight: Sight,
    decision: Decision,
}

/// The same, without a copy of what was seen.
#[derive(Debug, Serialize)]
struct StepSeen<'a> {
    now_ms: u64,
    sight: &'a Sight,
    decision: Decision,
}

/// Where a log is written.
#[derive(Debug)]
pub struct Log<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Log<W> {
    /// Begins a log.
    ///
    /// # Errors
    /// The first line can't be written.
    pub fn new(mut out: W, facts: &Facts) -> io::Result<Log<W>> {
        line(&mut out, &Header { format: FORMAT.to_owned(), version: VERSION, facts: facts.clone() })?;
        Ok(Log { out, error: None })
    }

    /// Ends it.
    ///
    /// # Errors
    /// The first thing that went wrong on the way: nothing was written after it.
    pub fn finish(mut self) -> io::Result<W> {
        match self.error {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }

    fn step(&mut self, step: &StepSeen<'_>) {
        if self.error.is_none() {
            self.error = line(&mut self.out, step).err();
        }
    }
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// A policy whose steps are written down.
pub struct Recorder<'a, W> {
    policy: Box<dyn Policy + 'a>,
    log: &'a RefCell<Log<W>>,
}

impl<'a, W: Write> Recorder<'a, W> {
    /// Writes the steps of `policy` to `log`.
    pub fn new(policy: Box<dyn Policy + 'a>, log: &'a RefCell<Log<W>>) -> Self {
        Self { policy, log }
    }
}

impl<W: Write> Policy for Recorder<'_, W> {
    fn step(&mut self, now: Millis, sight: &Sight) -> Vec<Order> {
        let orders = self.policy.step(now, sight);
        let decision = Decision::of(self.policy.as_ref(), &orders);
        self.log.borrow_mut().step(&StepSeen { now_ms: now.0, sight, decision });
        orders
    }

    fn next_look(&self) -> Millis {
        self.policy.next_look()
    }

    fn idle(&self) -> bool {
        self.policy.idle()
    }

    fn promises(&self) -> Promises {
        self.policy.promises()
    }

    fn reason(&self) -> String {
        self.policy.reason()
    }
}

/// Why a log was not replayed to its end.
#[derive(Debug)]
pub enum ReplayError {
    /// The file can't be read.
    Io(io::Error),
    /// It has no line at all.
    Empty,
    /// The first line is that of something else, or of another version.
    NotALog(String),
    /// A line is damaged: its number from 1, and how.
    Damaged(u64, String),
    /// A step was decided differently.
    Differs {
        /// The number of its line.
        line: u64,
        /// The moment on the daemon's clock.
        now: Millis,
        /// What the log says.
        recorded: String,
        /// What was decided now.
        came: String,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Io(error) => write!(f, "the log can't be read: {error}"),
            ReplayError::Empty => {
                write!(f, "the log is empty: record a day with `sim --seeds 1 --policy ours --record FILE`")
            }
            ReplayError::NotALog(why) => {
                write!(f, "not a log that this version reads ({why}): record the day again with --record FILE")
            }
            ReplayError::Damaged(line, why) => {
                write!(
                    f,
                    "line {line} is damaged ({why}): the steps before it agree; cut the log there or record it again"
                )
            }
            ReplayError::Differs { line, now, recorded, came } => {
                write!(f, "line {line}, at {now}: decided differently\n  recorded  {recorded}\n  now       {came}")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

/// Shows a fresh policy what the log has, and compares what it decides. Returns how many steps agreed.
///
/// # Errors
/// The log is none, is damaged, or a step was decided differently.
pub fn replay(mut log: impl BufRead, make: impl FnOnce(&Facts) -> Box<dyn Policy>) -> Result<u64, ReplayError> {
    let mut text = Vec::new();
    if !next_line(&mut log, &mut text, 1)? {
        return Err(ReplayError::Empty);
    }
    let mut policy = make(&header(&text)?);
    let mut n_steps = 0;
    while next_line(&mut log, &mut text, n_steps + 2)? {
        let line = n_steps + 2;
        let step: Step = serde_json::from_slice(&text).map_err(|e| ReplayError::Damaged(line, e.to_string()))?;
        is_sane(&step.sight).map_err(|why| ReplayError::Damaged(line, why.to_owned()))?;
        let now = Millis(step.now_ms);
        let orders = policy.step(now, &step.sight);
        let came = Decision::of(policy.as_ref(), &orders);
        if came != step.decision {
            let (recorded, came) = (format!("{:?}", step.decision), format!("{came:?}"));
            return Err(ReplayError::Differs { line, now, recorded, came });
        }
        n_steps += 1;
    }
    Ok(n_steps)
}

fn header(text: &[u8]) -> Result<Facts, ReplayError> {
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|e| ReplayError::NotALog(e.to_string()))?;
    if value["format"] != FORMAT || value["version"] != VERSION {
        let (format, version) = (&value["format"], &value["version"]);
        return Err(ReplayError::NotALog(format!("format {format}, version {version}, not {FORMAT:?}, {VERSION}")));
    }
    let header: Header = serde_json::from_value(value).map_err(|e| ReplayError::NotALog(e.to_string()))?;
    let cards = header.facts.cards.iter().map(|card| card.card);
    let of_levers = header.facts.levers.iter().filter_map(|facts| card_of(facts.lever));
    match cards.chain(of_levers).all(|card| card.index() < MAX_CARDS) {
        true => Ok(header.facts),
        false => Err(ReplayError::NotALog(format!("a card beyond the {MAX_CARDS} that there can be"))),
    }
}

fn card_of(lever: Lever) -> Option<Card> {
    match lever.account() {
        Account::Host => None,
        Account::Vram(card) => Some(card),
    }
}

/// Figures that no day has: a policy may rely on their bounds.
fn is_sane(sight: &Sight) -> Result<(), &'static str> {
    const MOST_TOKENS: u32 = 1 << 30;
    let is_many = |running: &Running| running.position > MOST_TOKENS || running.prefill_left > MOST_TOKENS;
    if sight.host.is_some_and(|host| host.value.n_groups > MAX_GROUPS) || sight.cards.len() > MAX_CARDS {
        return Err("more groups or cards than there can be");
    }
    let is_wrong = |happening: &Happening| match happening {
        Happening::Lever(answer) => card_of(answer.lever).is_some_and(|card| card.index() >= MAX_CARDS),
        Happening::Offered(offer) => offer.prompt_tokens > MOST_TOKENS || offer.max_tokens > MOST_TOKENS,
        Happening::Exited(exit) => exit.running.iter().any(is_many),
        Happening::Spawned(_)
        | Happening::Ready(_)
        | Happening::NoRoom(_)
        | Happening::Finished(_)
        | Happening::Cancelled(_) => false,
    };
    match sight.running.iter().any(is_many) || sight.happened.iter().any(is_wrong) {
        true => Err("a lever, position or length that there can't be"),
        false => Ok(()),
    }
}

/// Reads one line without its end; false at the end of the log.
fn next_line(log: &mut impl BufRead, text: &mut Vec<u8>, line: u64) -> Result<bool, ReplayError> {
    text.clear();
    let n_bytes = log.by_ref().take(MAX_LINE).read_until(b'\n', text).map_err(ReplayError::Io)?;
    match text.pop() {
        None => Ok(false),
        Some(b'\n') => Ok(true),
        Some(_) if n_bytes as u64 == MAX_LINE => {
            Err(ReplayError::Damaged(line, format!("longer than {} MiB", MAX_LINE >> 20)))
        }
        Some(_) => Err(ReplayError::Damaged(line, "it has no end: the writer was cut off".to_owned())),
    }
}
