//! The four verdicts and their words.

use std::fmt::Write;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::Baseline;
use crate::gpu::{Blindness, Gpu, GpuProcess, Use};
use crate::identity::ProcessState;
use crate::text::{age, mib, seconds};

/// What a card is, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As empty as it should be.
    Clean(Clean),
    /// Memory of ours is on its way back.
    Releasing(Releasing),
    /// Others hold too much.
    Dirty(Dirty),
    /// Nothing is known.
    Blind(Blindness),
}

/// What was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yardstick {
    /// A stored baseline.
    Baseline {
        /// What was held then.
        held: Bytes,
        /// How long ago that was.
        age: Millis,
        /// What may come on top.
        tolerated: Bytes,
    },
    /// None was there: programs that only draw count as the desktop.
    FirstLook {
        /// What they hold.
        desktop: Bytes,
        /// What may be held by nobody that is named.
        tolerated: Bytes,
    },
}

/// A clean card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clean {
    /// What others hold.
    pub foreign: Bytes,
    /// What that was compared with.
    pub yardstick: Yardstick,
    /// To be stored when the start goes ahead: there was no baseline, or an old one.
    pub store: Option<Baseline>,
}

/// A card that a worker of ours is leaving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Releasing {
    /// Since when, of the longest.
    pub since: Millis,
    /// Beyond the allowance; 0 where only a process is left.
    pub over: Bytes,
    /// Who; never empty.
    pub leaving: Vec<Leaving>,
}

/// A worker of ours that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    /// Its number.
    pub pid: u32,
    /// When it was told to end, or when its end was noticed.
    pub since: Millis,
    /// What the kernel says of it; `None` when it has ended.
    pub state: Option<ProcessState>,
    /// What the driver says it holds; `None` where it does not list it, or gives no figure.
    pub bytes: Option<Bytes>,
}

/// A card on which others hold too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirty {
    /// What they hold.
    pub foreign: Bytes,
    /// What that was compared with.
    pub yardstick: Yardstick,
    /// What has to go: beyond the allowance, or all that computes where there is no baseline that allows anything.
    pub over: Bytes,
    /// Who, the largest growth first; at most [`limits::MAX_CULPRITS`].
    pub culprits: Vec<Culprit>,
    /// Culprits that are not named.
    pub n_more: u32,
    /// Beyond the baseline, and held by nobody that the driver names.
    pub unattributed: Bytes,
    /// The driver names nobody at all.
    pub lists_nobody: bool,
    /// For somebody the driver gives no figure.
    pub has_unknown: bool,
    /// Processes in an uninterruptible wait that have the card open and are not listed.
    pub blocked: Vec<GpuProcess>,
    /// Workers of ours that are in the way as well.
    pub leaving: Vec<Leaving>,
}

/// A program that holds more than it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Its largest process, with the bytes of all of them; `None` where the driver gives no figure.
    pub process: GpuProcess,
    /// What they do.
    pub usage: Use,
    /// How many they are.
    pub n_processes: u32,
    /// The growth beyond the baseline; all of it where there is none.
    pub beyond: Bytes,
}

impl Verdict {
    /// One word, as metrics and logs write it.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Clean(_) => "clean",
            Verdict::Releasing(_) => "releasing",
            Verdict::Dirty(_) => "dirty",
            Verdict::Blind(_) => "blind",
        }
    }

    /// How bad it is: 0 is clean.
    pub fn rank(&self) -> u8 {
        match self {
            Verdict::Clean(_) => 0,
            Verdict::Releasing(_) => 1,
            Verdict::Dirty(_) => 2,
            Verdict::Blind(_) => 3,
        }
    }

    /// The workers of ours that are in the way.
    pub fn leaving(&self) -> &[Leaving] {
        match self {
            Verdict::Clean(_) | Verdict::Blind(_) => &[],
            Verdict::Releasing(releasing) => &releasing.leaving,
            Verdict::Dirty(dirty) => &dirty.leaving,
        }
    }

    /// What a person reads: one line, and one more for each culprit.
    pub fn words(&self, now: Millis, gpu: &Gpu) -> String {
        match self {
            Verdict::Clean(clean) => clean.words(gpu),
            Verdict::Releasing(releasing) => releasing.words(now, gpu),
            Verdict::Dirty(dirty) => dirty.words(now, gpu),
            Verdict::Blind(why) => {
                format!("{gpu} is blind: {why}. What is held there is not known, and unknown does not count as free.\n")
            }
        }
    }
}

impl Clean {
    fn words(&self, gpu: &Gpu) -> String {
        let foreign = mib(self.foreign);
        match self.yardstick {
            Yardstick::Baseline { held, age: since, .. } => format!(
                "{gpu} is clean: nothing foreign beyond the baseline ({foreign} of {} MiB, taken {} ago).\n",
                mib(held),
                age(since)
            ),
            Yardstick::FirstLook { desktop, .. } => format!(
                "{gpu} counts as clean: {foreign} MiB are held, and nobody computes on more than {}. There is no baseline \
                 yet: programs that only draw ({} MiB) count as the desktop, and what is held now becomes the baseline.\n",
                mib(limits::CULPRIT_MIN),
                mib(desktop)
            ),
        }
    }
}

impl Leaving {
    /// `worker 4410 (ours, told to end 3.2 s ago) holds 9,318 MiB`.
    pub(super) fn words(&self, now: Millis) -> String {
        let span = seconds(now.since(self.since));
        let what = match self.state {
            Some(_) => format!("worker {} (ours, told to end {span} ago)", self.pid),
            None => format!("worker {} (ours, ended {span} ago)", self.pid),
        };
        let holds = match self.bytes {
            Some(bytes) => format!("holds {} MiB", mib(bytes)),
            None => "holds an unknown amount".to_owned(),
        };
        match self.state.map_or("", ProcessState::obstacle) {
            "" => format!("{what} {holds}"),
            obstacle => format!("{what} {holds}: {obstacle}"),
        }
    }
}

impl Releasing {
    fn words(&self, now: Millis, gpu: &Gpu) -> String {
        let workers: Vec<String> = self.leaving.iter().map(|worker| worker.words(now)).collect();
        let over = match self.over {
            Bytes::ZERO => String::new(),
            over => format!("{} MiB beyond the allowance are still to come back: ", mib(over)),
        };
        format!("{gpu} is releasing: {over}{}.\n", workers.join("; "))
    }
}

impl Dirty {
    fn words(&self, now: Millis, gpu: &Gpu) -> String {
        let mut text = self.headline(gpu);
        for culprit in &self.culprits {
            let _ = writeln!(text, "  {}", culprit.words(self.yardstick));
        }
        if self.n_more > 0 {
            let _ = writeln!(text, "  and {} more", self.n_more);
        }
        for line in self.remainder() {
            let _ = writeln!(text, "  {line}");
        }
        for worker in &self.leaving {
            let _ = writeln!(text, "  besides, {}", worker.words(now));
        }
        text
    }

    fn headline(&self, gpu: &Gpu) -> String {
        let foreign = mib(self.foreign);
        match self.yardstick {
            Yardstick::Baseline { held, age: since, tolerated } => format!(
                "{gpu} is dirty: others hold {foreign} MiB, {} beyond the baseline of {} (taken {} ago; {} are tolerated):\n",
                mib(self.foreign.saturating_sub(held)),
                mib(held),
                age(since),
                mib(tolerated)
            ),
            Yardstick::FirstLook { desktop, .. } => format!(
                "{gpu} is dirty: others hold {foreign} MiB. There is no baseline yet: programs that only draw ({} MiB) count \
                 as the desktop, the others do not:\n",
                mib(desktop)
            ),
        }
    }

    /// What is said about bytes that have no name.
    fn remainder(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let nameless = mib(self.unattributed);
        let has_rest = self.unattributed >= limits::CULPRIT_MIN;
        for process in &self.blocked {
            lines.push(format!(
                "{process} is in an uninterruptible wait in the kernel (state D), has the card open and is not listed: it \
                 may hold what has no name; no signal reaches it, look for Xid lines in the kernel's log"
            ));
        }
        if has_rest && self.lists_nobody {
            lines.push(format!(
                "{nameless} MiB have no name: the driver lists nobody. In a container it lists only processes of the same \
                 PID namespace: look on the host, or share its PID namespace"
            ));
        } else if has_rest && self.has_unknown {
            lines.push(format!(
                "{nameless} MiB have no name: for some programs the driver gives no figure (N/A), they are among them"
            ));
        } else if has_rest {
            lines.push(format!(
                "{nameless} MiB have no name: held by a process that the driver does not list, or not yet given back by \
                 one that has ended"
            ));
        } else if self.culprits.is_empty() {
            lines.push("many programs grew a little, none by much: close what you do not need".to_owned());
        }
        lines
    }
}

impl Culprit {
    /// `python3 (pid 812, alice) computes on 2,560 MiB, none of it in the baseline`.
    fn words(&self, yardstick: Yardstick) -> String {
        let (one_does, all_do) = match self.usage {
            Use::Graphics => ("draws", "draw"),
            Use::Compute => ("computes", "compute"),
            Use::Both => ("computes and draws", "compute and draw"),
        };
        let who_does = match self.n_processes {
            1 => format!("{} {one_does}", self.process),
            n => format!("{} and {} more {all_do}", self.process, n - 1),
        };
        let Some(bytes) = self.process.bytes else {
            return format!("{who_does}; on how much, the driver does not say (N/A)");
        };
        let holds = format!("{who_does} on {} MiB", mib(bytes));
        match yardstick {
            Yardstick::FirstLook { .. } => holds,
            Yardstick::Baseline { .. } if self.beyond == bytes => format!("{holds}, none of it in the baseline"),
            Yardstick::Baseline { .. } => format!("{holds}, {} beyond its baseline", mib(self.beyond)),
        }
    }
}
