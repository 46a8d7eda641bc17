//! What is healthy on this machine: the figures of its own clean starts, and what to say of a start far under them.
//!
//! Only a clean start in the mode `stable` joins the interval of its (model, knobs, card). A start far under it is
//! told as *environment dirty first*, with the evidence, and never as a reason to change the configuration: the same
//! configuration gave the interval. The caller stores [`Calibration`] as it is.

use std::collections::VecDeque;
use std::fmt;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use crate::plan::Mode;
use crate::zero_check::Verdict;
use crate::zero_check::policy::Checked;

/// Starts that can be compared with each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The model's file.
    pub model_hash: String,
    /// What the user chose: context, storage of keys and values, sessions. What the plan took from the free bytes does not
    /// belong here, or each start would be alone; nor does the reserve, which moves the cache by some percent.
    pub knobs: String,
    /// The card's uuid; empty without a card.
    pub gpu_uuid: String,
}

/// Tokens per second, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed(pub u64);

/// One decimal under 10 tok/s, none above: more is noise.
impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            milli if milli < 9_950 => write!(f, "{}.{}", (milli + 50) / 1000, (milli + 50) % 1000 / 100),
            milli => write!(f, "{}", (milli + 500) / 1000),
        }
    }
}

/// What a start reached. A figure is absent where the model or the machine has no such thing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the expert cache.
    pub cache: Option<Bytes>,
    /// Experts in it.
    pub n_slots: Option<u32>,
    /// Of the serve check.
    pub speed: Option<Speed>,
}

/// A start that came through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What it can be compared with.
    pub key: Key,
    /// For work or for measuring: the figures of a benchmark are labelled and say nothing about work.
    pub mode: Mode,
    /// The verdicts under which it was started.
    pub cards: Vec<Checked>,
    /// What it reached.
    pub figures: Figures,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Experts in the cache.
    Slots,
    /// Bytes of the cache.
    Cache,
    /// Tokens per second.
    Speed,
}

impl Measure {
    /// All of them, the most telling one first: speed is the last to show a dirty card.
    pub const ALL: [Measure; 3] = [Measure::Slots, Measure::Cache, Measure::Speed];

    fn of(self, figures: &Figures) -> Option<u64> {
        match self {
            Measure::Slots => figures.n_slots.map(u64::from),
            Measure::Cache => figures.cache.map(|bytes| bytes.0),
            Measure::Speed => figures.speed.map(|speed| speed.0),
        }
    }

    fn text(self, value: u64) -> String {
        match self {
            Measure::Slots => value.to_string(),
            Measure::Cache => Bytes(value).gib_text(2),
            Measure::Speed => Speed(value).to_string(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Measure::Slots => "experts",
            Measure::Cache => "GiB of cache",
            Measure::Speed => "tok/s",
        }
    }
}

/// Where healthy starts lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The lowest.
    pub low: u64,
    /// The one in the middle.
    pub middle: u64,
    /// The highest.
    pub high: u64,
}

impl Interval {
    fn is_far_under(self, value: u64) -> bool {
        let far = u128::from(self.middle) * u128::from(100 - limits::FAR_UNDER_PERCENT);
        value < self.low && u128::from(value) * 100 < far
    }

    /// `955–1045`, or one figure where both ends look the same.
    fn text(self, measure: Measure) -> String {
        let (low, high) = (measure.text(self.low), measure.text(self.high));
        if low == high { low } else { format!("{low}–{high}") }
    }
}

/// The starts of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Healthy ones, the oldest first; at most [`limits::MAX_HEALTHY_STARTS`].
    pub healthy: VecDeque<Figures>,
    /// Clean ones in a row that were far under all the same; fewer than [`limits::NEW_NORMAL_STARTS`].
    pub strays: Vec<Figures>,
}

impl History {
    /// The interval of a measure; `None` where no start had that figure.
    pub fn interval(&self, measure: Measure) -> Option<Interval> {
        let mut values: Vec<u64> = self.healthy.iter().filter_map(|figures| measure.of(figures)).collect();
        values.sort_unstable();
        let middle = *values.get(values.len().saturating_sub(1) / 2)?;
        Some(Interval { low: *values.first()?, middle, high: *values.last()? })
    }

    /// `955–1045 experts, 39–43 tok/s (11 clean starts)`; `None` before the first one.
    pub fn words(&self) -> Option<String> {
        let shown = [Measure::Slots, Measure::Speed];
        let part = |measure: Measure| Some(format!("{} {}", self.interval(measure)?.text(measure), measure.unit()));
        let parts: Vec<String> = shown.into_iter().filter_map(part).collect();
        (!parts.is_empty()).then(|| format!("{} ({})", parts.join(", "), n_clean_starts(self.healthy.len())))
    }

    fn deviations(&self, figures: &Figures) -> Vec<Deviation> {
        let deviation = |measure: Measure| {
            let (value, interval) = (measure.of(figures)?, self.interval(measure)?);
            interval.is_far_under(value).then_some(Deviation { measure, value, interval })
        };
        Measure::ALL.into_iter().filter_map(deviation).collect()
    }

    fn join(&mut self, figures: Figures) {
        self.strays.clear();
        self.healthy.push_back(figures);
        while self.healthy.len() > limits::MAX_HEALTHY_STARTS {
            self.healthy.pop_front();
        }
    }

    /// One clean start far under may be a hot card; several in a row are a changed machine, and the interval follows.
    fn stray(&mut self, figures: Figures) -> bool {
        self.strays.push(figures);
        let is_new_normal = self.strays.len() >= limits::NEW_NORMAL_STARTS;
        if is_new_normal {
            self.healthy = std::mem::take(&mut self.strays).into();
        }
        is_new_normal
    }
}

/// One figure far under its interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deviation {
    /// Which one.
    pub measure: Measure,
    /// What it was.
    pub value: u64,
    /// What it is on clean starts.
    pub interval: Interval,
}

/// The environment, not the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is far under; never empty.
    pub deviations: Vec<Deviation>,
    /// Clean starts that it was compared with.
    pub n_healthy: usize,
    /// The cards that were not clean at the start. Empty: all were, and it is something else around.
    pub evidence: Vec<Checked>,
    /// It is the last of several clean starts in a row: they are the interval from now on.
    pub is_new_normal: bool,
}

/// What a start tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It is healthy, and joined the interval.
    Joined,
    /// It says nothing about health: a card was not clean, or it was a benchmark.
    NotCounted,
    /// It is far under the interval.
    Finding(Finding),
}

/// The histories of the configurations in use; the one used last is the last. At most [`limits::MAX_CALIBRATION_KEYS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calibration {
    /// In order of use.
    pub histories: Vec<(Key, History)>,
}

impl Calibration {
    /// The starts of a key.
    pub fn history(&self, key: &Key) -> Option<&History> {
        self.histories.iter().find(|(known, _)| known == key).map(|(_, history)| history)
    }

    /// Judges a start, and keeps it if it is healthy.
    pub fn note(&mut self, start: &Start) -> Judgement {
        match start.mode {
            Mode::Benchmark => return Judgement::NotCounted,
            Mode::Stable => {}
        }
        let is_clean = |card: &&Checked| match card.verdict {
            Verdict::Clean(_) => true,
            Verdict::Releasing(_) | Verdict::Dirty(_) | Verdict::Blind(_) => false,
        };
        let evidence: Vec<Checked> = start.cards.iter().filter(|card| !is_clean(card)).cloned().collect();
        let known = self.history(&start.key);
        let deviations = known.map_or(Vec::new(), |history| history.deviations(&start.figures));
        let n_healthy = known.map_or(0, |history| history.healthy.len());
        match (deviations.is_empty(), evidence.is_empty()) {
            (true, true) => {
                self.history_mut(&start.key).join(start.figures);
                Judgement::Joined
            }
            (true, false) => Judgement::NotCounted,
            (false, false) => Judgement::Finding(Finding { deviations, n_healthy, evidence, is_new_normal: false }),
            (false, true) => {
                let is_new_normal = self.history_mut(&start.key).stray(start.figures);
                Judgement::Finding(Finding { deviations, n_healthy, evidence, is_new_normal })
            }
        }
    }

    /// The history of a key, moved to the place of the one used last.
    fn history_mut(&mut self, key: &Key) -> &mut History {
        let entry = match self.histories.iter().position(|(known, _)| known == key) {
            Some(at) => self.histories.remove(at),
            None => (key.clone(), History::default()),
        };
        let n_too_many = (self.histories.len() + 1).saturating_sub(limits::MAX_CALIBRATION_KEYS);
        self.histories.drain(..n_too_many);
        &mut self.histories.push_mut(entry).1
    }
}

impl Finding {
    /// What a person reads. `now` is when the cards were looked at.
    pub fn words(&self, now: Millis) -> String {
        let figure = |deviation: &Deviation| {
            let Deviation { measure, value, interval } = *deviation;
            format!("{} {} instead of {}", measure.text(value), measure.unit(), interval.text(measure))
        };
        let figures: Vec<String> = self.deviations.iter().map(figure).collect();
        let mut text = format!(
            "Environment dirty first: this start reached {}, as on {}.\n",
            figures.join(" and "),
            n_clean_starts(self.n_healthy)
        );
        for card in &self.evidence {
            text.push_str(&card.verdict.words(now, &card.gpu));
        }
        text.push_str(match (self.evidence.is_empty(), self.is_new_normal) {
            (false, _) => "The same configuration gave those figures on a clean card: make it clean and start again.\n",
            (true, false) => {
                "The cards were clean, and the same configuration gave those figures: look for heat, a power limit, or a \
                 program that uses the processor or the disk.\n"
            }
            (true, true) => {
                "The cards were clean, and several starts in a row were like this one: it counts as healthy from now on. Look \
                 for what changed on the machine: a driver, a power limit, a program that always runs.\n"
            }
        });
        text
    }
}

fn n_clean_starts(n: usize) -> String {
    match n {
        1 => "1 clean start".to_owned(),
        n => format!("{n} clean starts"),
    }
}
