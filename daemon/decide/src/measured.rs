//! How wrong plans were: after each start, planned against measured, object by object, and what the next plan learns from it.
//!
//! The error is a figure of the product, with a target of 2 %. What was planned and what came of it is kept, and corrects
//! the next plan's *estimates*: the machine's reading brings it as [`Experience`]. What is computed exactly is never corrected:
//! an error there is a mistake to be found, not to be learned. The caller makes the [`Reconciled`] account from what was
//! measured, and stores [`Truth`] as it is.

use std::collections::VecDeque;
use std::fmt::Write;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, thousands};

use crate::ledger::reconcile::{Reconciled, Row};
use crate::ledger::{Account, AccountId, Basis, Object};
use crate::text::mib;

/// What an object was estimated at before [`Truth::corrected`]. Kept apart from the plan, so that a correction is never
/// learned from itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Which one.
    pub object: Object,
    /// The estimate.
    pub bytes: Bytes,
}

/// The error of one object that was both planned and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanError {
    /// Which one.
    pub object: Object,
    /// Where the planned figure came from.
    pub basis: Basis,
    /// What the plan had for it.
    pub planned: Bytes,
    /// What it holds.
    pub measured: Bytes,
}

impl PlanError {
    /// How far the plan was off, in thousandths of what was measured, rounded up; `None` where a planned object holds
    /// nothing.
    pub fn permille(&self) -> Option<u64> {
        let row = Row { object: self.object, planned: Some(self.planned), measured: Some(self.measured) };
        if self.planned == self.measured { Some(0) } else { row.error_permille() }
    }

    /// Whether the error is at most [`limits::PLAN_ERROR_TARGET_PERMILLE`].
    pub fn is_within_target(&self) -> bool {
        self.permille().is_some_and(|permille| permille <= limits::PLAN_ERROR_TARGET_PERMILLE)
    }

    /// `service         3.1 % too little: 128 MiB estimated, 132 measured; over the target`.
    pub fn words(&self) -> String {
        let figures = format!("{} MiB {}, {} measured", mib(self.planned), self.basis.name(), mib(self.measured));
        let name = self.object.name();
        let Some(permille) = self.permille() else {
            return format!("{name:<16}holds nothing: {figures}; over the target");
        };
        let percent = format!("{}.{} %", thousands(permille / 10), permille % 10);
        let direction = match self.planned.cmp(&self.measured) {
            std::cmp::Ordering::Less => " too little",
            std::cmp::Ordering::Equal => "",
            std::cmp::Ordering::Greater => " too much",
        };
        let verdict = if self.is_within_target() { "" } else { "; over the target" };
        format!("{name:<16}{percent}{direction}: {figures}{verdict}")
    }
}

/// The errors of one account at one start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which account.
    pub account: AccountId,
    /// Object by object, in the order of the plan.
    pub errors: Vec<PlanError>,
    /// Objects that nobody planned, with what they hold.
    pub unplanned: Vec<(Object, Bytes)>,
    /// Objects of the plan that nobody measured. Nothing is known of them, which is not an error of 0.
    pub unmeasured: Vec<Object>,
}

impl Report {
    /// Judges a plan by what came of it. Figures that the plan had read from the machine are not the planner's, and what
    /// others hold is not ours.
    pub fn new(planned: &Account, reconciled: &Reconciled) -> Report {
        let mut report =
            Report { account: planned.id, errors: Vec::new(), unplanned: Vec::new(), unmeasured: Vec::new() };
        for row in reconciled.rows.iter().filter(|row| row.object.is_ours()) {
            let object = row.object;
            let basis = planned.entries.iter().find(|entry| entry.object == object).map(|entry| entry.basis);
            match (basis, row.planned, row.measured) {
                (Some(Basis::Measured), _, _) => {}
                (Some(basis), Some(planned), Some(measured)) => {
                    report.errors.push(PlanError { object, basis, planned, measured });
                }
                (Some(_), _, None) => report.unmeasured.push(object),
                (_, None, Some(measured)) => report.unplanned.push((object, measured)),
                (None, Some(_), _) | (None, None, None) => {} // a row that neither plan nor measurement asked for
            }
        }
        report
    }

    /// The largest error.
    pub fn worst(&self) -> Option<&PlanError> {
        self.errors.iter().max_by_key(|error| error.permille().unwrap_or(u64::MAX))
    }

    /// Whether everything that holds bytes was planned, and within the target.
    pub fn is_within_target(&self) -> bool {
        self.unplanned.is_empty() && self.errors.iter().all(PlanError::is_within_target)
    }

    /// What a person reads, one line for each object.
    pub fn words(&self) -> String {
        let mut text = String::new();
        for error in &self.errors {
            let _ = writeln!(text, "{}", error.words());
        }
        for (object, bytes) in &self.unplanned {
            let _ = writeln!(text, "{:<16}not planned: {} MiB measured; over the target", object.name(), mib(*bytes));
        }
        for object in &self.unmeasured {
            let _ = writeln!(text, "{:<16}not measured", object.name());
        }
        text
    }
}

/// What one start showed about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// What it was planned at, before corrections.
    pub uncorrected: Bytes,
    /// What it held.
    pub measured: Bytes,
}

/// Whose pairs they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The model's file.
    pub model_hash: String,
    /// Where.
    pub account: AccountId,
    /// Who.
    pub object: Object,
}

/// What the starts so far showed; the object measured last is the last. At most [`limits::MAX_MEASURED_OBJECTS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    /// In order of measurement; of each object at most [`limits::MAX_MEASURED_STARTS`], the oldest first.
    pub pairs: Vec<(Key, VecDeque<Pair>)>,
}

impl Truth {
    /// Keeps what a start of a model showed in one account, and says how wrong its plan was. `estimates` are the account's
    /// estimated objects before corrections; one that is not among them was not corrected.
    pub fn note(
        &mut self,
        model_hash: &str,
        planned: &Account,
        estimates: &[Estimate],
        reconciled: &Reconciled,
    ) -> Report {
        let report = Report::new(planned, reconciled);
        for error in &report.errors {
            let estimate = estimates.iter().find(|estimate| estimate.object == error.object);
            let uncorrected = estimate.map_or(error.planned, |estimate| estimate.bytes);
            let key = Key { model_hash: model_hash.to_owned(), account: planned.id, object: error.object };
            self.keep(key, Pair { uncorrected, measured: error.measured });
        }
        report
    }

    /// An estimate in the light of former starts; any other figure as it is.
    ///
    /// The worst ratio of measured to estimated counts: what is planned too small sinks the ship, what is planned too large
    /// only idles. It makes an estimate larger from the first start on, and smaller only after
    /// [`limits::MIN_STARTS_TO_SHRINK`]; at most by [`limits::MAX_CORRECTION`] either way.
    pub fn corrected(&self, key: &Key, basis: Basis, estimate: Bytes) -> Bytes {
        match basis {
            Basis::Estimated => {}
            Basis::Planned | Basis::Measured => return estimate,
        }
        let pairs = self.pairs.iter().find(|(known, _)| known == key).map(|(_, pairs)| pairs);
        let scaled: Vec<Bytes> = pairs.into_iter().flatten().filter_map(|pair| pair.scale(estimate)).collect();
        match scaled.iter().max() {
            None => estimate,
            Some(worst) if *worst < estimate && scaled.len() < limits::MIN_STARTS_TO_SHRINK => estimate,
            Some(worst) => {
                let smallest = Bytes(estimate.0.div_ceil(limits::MAX_CORRECTION));
                (*worst).clamp(smallest, estimate.saturating_mul(limits::MAX_CORRECTION))
            }
        }
    }

    fn keep(&mut self, key: Key, pair: Pair) {
        let (key, mut pairs) = match self.pairs.iter().position(|(known, _)| *known == key) {
            Some(at) => self.pairs.remove(at),
            None => (key, VecDeque::new()),
        };
        pairs.push_back(pair);
        while pairs.len() > limits::MAX_MEASURED_STARTS {
            pairs.pop_front();
        }
        let n_too_many = (self.pairs.len() + 1).saturating_sub(limits::MAX_MEASURED_OBJECTS);
        self.pairs.drain(..n_too_many);
        self.pairs.push((key, pairs));
    }
}

/// What starts of one model taught: what a plan of it takes from [`Truth`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experience {
    /// The model's file.
    pub model_hash: String,
    /// What is known, of it and others.
    pub truth: Truth,
}

impl Experience {
    /// An estimate of this model in the light of its former starts; see [`Truth::corrected`].
    pub(crate) fn corrected(&self, account: AccountId, object: Object, estimate: Bytes) -> Bytes {
        let key = Key { model_hash: self.model_hash.clone(), account, object };
        self.truth.corrected(&key, Basis::Estimated, estimate)
    }
}

impl Pair {
    /// An estimate times measured ÷ uncorrected, rounded up; `None` where there was nothing to compare with.
    fn scale(&self, estimate: Bytes) -> Option<Bytes> {
        let product = u128::from(estimate.0) * u128::from(self.measured.0);
        let bytes = (self.uncorrected > Bytes::ZERO).then(|| product.div_ceil(u128::from(self.uncorrected.0)))?;
        Some(Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)))
    }
}
