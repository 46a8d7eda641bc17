//! A card's memory by whose it is, measured against what is allowed.

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

use super::{Culprit, Dirty, Finding, KnownWorker, Leaving, StoredBaseline, Yardstick};
use crate::gpu::{GpuMemory, GpuProcess, Holder, Use, listed, tolerance};

/// Ours and others'.
pub(super) struct Look<'a> {
    memory: &'a GpuMemory,
    pub(super) ours: Vec<Holder>,
    foreign: Vec<Holder>,
    blocked: Vec<GpuProcess>,
    /// All that is not listed as ours. The counter and the lists are read one after the other and may disagree: the worse
    /// one counts.
    pub(super) foreign_bytes: Bytes,
}

/// The processes of one command.
#[derive(Default)]
struct Program<'a> {
    holders: Vec<&'a Holder>,
    known: Bytes,
    /// For one of them the driver gives no figure.
    has_unknown: bool,
}

impl<'a> Look<'a> {
    pub(super) fn new(memory: &'a GpuMemory, workers: &[KnownWorker]) -> Look<'a> {
        let holders = memory.holders();
        let held = memory.held().max(listed(&holders));
        let is_ours = |holder: &Holder| workers.iter().any(|worker| worker.is_listed_as(holder));
        let (ours, foreign): (Vec<Holder>, Vec<Holder>) = holders.into_iter().partition(is_ours);
        let is_hidden = |process: &&GpuProcess| {
            let as_holder = Holder { process: (*process).clone(), usage: Use::Compute };
            !foreign.iter().any(|holder| holder.process.pid == process.pid) && !is_ours(&as_holder)
        };
        let blocked = memory.blocked.iter().filter(is_hidden).cloned().collect();
        let foreign_bytes = held.saturating_sub(listed(&ours));
        Look { memory, ours, foreign, blocked, foreign_bytes }
    }

    /// What is too much against a baseline. A program is a culprit by its growth, whatever it does on the card; what it
    /// had in the baseline is its own.
    pub(super) fn against(&self, stored: &StoredBaseline) -> Finding {
        let baseline = &stored.baseline;
        let tolerated = tolerance(self.memory.total);
        let over = self.foreign_bytes.saturating_sub(baseline.held.saturating_add(tolerated));
        let culprit = |(name, program): (&&str, &Program<'_>)| {
            let before = baseline.programs.get(*name).copied();
            let beyond = program.known.saturating_sub(before.unwrap_or(Bytes::ZERO));
            let is_new_and_unknown = before.is_none() && program.has_unknown;
            (beyond >= limits::CULPRIT_MIN || is_new_and_unknown).then(|| program.culprit(beyond))?
        };
        let culprits = sorted(self.programs(|_| true).iter().filter_map(culprit));
        let named: Bytes = culprits.iter().map(|culprit| culprit.beyond).sum();
        Finding {
            yardstick: Yardstick::Baseline { held: baseline.held, age: stored.age, tolerated },
            over,
            names_enough: named > tolerated,
            culprits,
            unattributed: self.memory.unattributed().saturating_sub(baseline.unattributed),
        }
    }

    /// What is too much without a baseline: whoever only draws is the desktop, whoever computes on more than
    /// [`limits::CULPRIT_MIN`] is not. A context costs more than that, so one without a figure is over it.
    pub(super) fn first(&self) -> Finding {
        let draws = |holder: &&Holder| holder.usage == Use::Graphics;
        let desktop: Bytes = self.foreign.iter().filter(draws).filter_map(|holder| holder.process.bytes).sum();
        let share = Bytes(self.memory.total.0 / 100 * limits::FIRST_LOOK_UNSEEN_PERCENT);
        let tolerated = share.min(limits::FIRST_LOOK_UNSEEN_MAX).max(tolerance(self.memory.total));
        let reserved = self.memory.driver_reserved.unwrap_or(Bytes::ZERO);
        let allowed = desktop.saturating_add(reserved).saturating_add(tolerated);

        let is_culprit = |holder: &Holder| match holder.usage {
            Use::Graphics => false,
            Use::Compute | Use::Both => holder.process.bytes.is_none_or(|bytes| bytes > limits::CULPRIT_MIN),
        };
        let culprits = sorted(self.programs(is_culprit).values().filter_map(|program| program.culprit(program.known)));
        let named: Bytes = culprits.iter().map(|culprit| culprit.beyond).sum();
        Finding {
            yardstick: Yardstick::FirstLook { desktop, tolerated },
            over: self.foreign_bytes.saturating_sub(allowed).max(named),
            names_enough: !culprits.is_empty(),
            culprits,
            unattributed: self.memory.unattributed(),
        }
    }

    pub(super) fn dirty(self, mut finding: Finding, leaving: Vec<Leaving>) -> Dirty {
        let n_more = finding.culprits.len().saturating_sub(limits::MAX_CULPRITS);
        finding.culprits.truncate(limits::MAX_CULPRITS);
        Dirty {
            foreign: self.foreign_bytes,
            yardstick: finding.yardstick,
            over: finding.over,
            culprits: finding.culprits,
            n_more: n_more as u32,
            unattributed: finding.unattributed,
            lists_nobody: self.memory.lists_nobody(),
            has_unknown: self.foreign.iter().any(|holder| holder.process.bytes.is_none()),
            blocked: self.blocked,
            leaving,
        }
    }

    /// Others' processes that are of interest, by command.
    fn programs(&self, is_of_interest: impl Fn(&Holder) -> bool) -> BTreeMap<&str, Program<'_>> {
        let mut programs: BTreeMap<&str, Program<'_>> = BTreeMap::new();
        for holder in self.foreign.iter().filter(|holder| is_of_interest(holder)) {
            programs.entry(holder.process.program()).or_default().add(holder);
        }
        programs
    }
}

impl<'a> Program<'a> {
    fn add(&mut self, holder: &'a Holder) {
        self.known = self.known.saturating_add(holder.process.bytes.unwrap_or(Bytes::ZERO));
        self.has_unknown |= holder.process.bytes.is_none();
        self.holders.push(holder);
    }

    /// The program, by its largest process: closing that one usually closes the others. `None` without a process.
    fn culprit(&self, beyond: Bytes) -> Option<Culprit> {
        let largest = self.holders.iter().max_by_key(|holder| holder.process.bytes)?;
        let usages = self.holders.iter().map(|holder| holder.usage);
        Some(Culprit {
            process: GpuProcess { bytes: (self.known > Bytes::ZERO).then_some(self.known), ..largest.process.clone() },
            usage: usages.reduce(|one, other| if one == other { one } else { Use::Both })?,
            n_processes: self.holders.len() as u32,
            beyond,
        })
    }
}

fn sorted(culprits: impl Iterator<Item = Culprit>) -> Vec<Culprit> {
    let mut culprits: Vec<Culprit> = culprits.collect();
    culprits.sort_by_key(|culprit| (std::cmp::Reverse(culprit.beyond), culprit.process.pid));
    culprits
}
