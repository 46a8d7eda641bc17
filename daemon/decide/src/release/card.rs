//! One card that a worker is leaving.

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use super::Leaver;
use crate::gpu::{Blindness, Gpu, GpuMemory, GpuReading, Holder, tolerance};
use crate::text::{mib, seconds};

/// One card, from before the stop on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    gpu: Gpu,
    /// `None`: it could not be read before the stop, so that no movement can be told from standing still.
    before: Option<Before>,
    /// The free counter where it last stood, and since when. Steps smaller than [`limits::DEPARTURE_MIN`] add up.
    anchor: Option<(Bytes, Millis)>,
    departed_at: Option<Millis>,
    back_at: Option<Millis>,
    /// The last look.
    view: Result<Seen, Blindness>,
}

/// The card before the stop.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Before {
    total: Bytes,
    free: Bytes,
    held: Held,
    others: BTreeMap<u32, Bytes>,
}

/// What the worker held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Nothing worth waiting for.
    Nothing,
    /// This much.
    Known(Bytes),
    /// Something.
    Unknown,
}

/// What the last look showed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    free: Bytes,
    /// The worker is in a list.
    is_listed: bool,
    change: Change,
}

/// What became of the card since the stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Change {
    /// What the worker gave back, others' changes taken out.
    returned: Bytes,
    /// What others took, and who took most of it; `None` where it is too little to be told.
    taken: Option<(String, Bytes)>,
}

impl Card {
    pub(super) fn new(reading: &GpuReading, leaver: &Leaver, ended_at: Millis) -> Card {
        // However long the stop took: the reading was fresh when it was made.
        let before = reading.seen(reading.at).ok().map(|memory| Before::new(reading, memory, leaver));
        let anchor = before.as_ref().map(|before| (before.free, ended_at));
        Card { gpu: reading.gpu.clone(), before, anchor, departed_at: None, back_at: None, view: Err(no_reading()) }
    }

    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(super) fn is_back(&self) -> bool {
        self.back_at.is_some()
    }

    pub(super) fn back_at(&self) -> Option<Millis> {
        self.back_at
    }

    /// What is missing; `None` where that is not known.
    pub(super) fn missing(&self) -> Option<Bytes> {
        match (&self.before, &self.view) {
            (Some(Before { held: Held::Known(held), .. }), Ok(seen)) => Some(held.saturating_sub(seen.change.returned)),
            (Some(_) | None, Ok(_) | Err(_)) => None,
        }
    }

    /// Takes one look in.
    pub(super) fn look(&mut self, now: Millis, reading: Option<&GpuReading>, leaver: &Leaver) {
        self.view = match reading {
            None => Err(no_reading()),
            Some(reading) => reading.seen(now).map(|memory| self.see(reading.at, memory, leaver)),
        };
    }

    fn see(&mut self, at: Millis, memory: &GpuMemory, leaver: &Leaver) -> Seen {
        let is_listed = memory.holders().iter().any(|holder| leaver.is_listed_as(holder));
        let has_moved = self.has_moved(at, memory.free);
        let mut change = Change::default();
        if let Some(before) = &self.before {
            change = before.compare(memory, leaver);
            // Only in a look in which the counter moved: while it is frozen, a list that shows a program growing looks as
            // if as much had come back.
            if has_moved && change.returned >= before.departure() {
                self.departed_at.get_or_insert(at);
            }
            let is_back = !is_listed && self.is_complete(before, change.returned, at);
            self.back_at = match (is_back, self.back_at) {
                (_, Some(_)) if is_listed => None,
                (_, Some(back_at)) => Some(back_at), // what others take afterwards is not ours
                (true, None) => Some(at),
                (false, None) => None,
            };
        }
        Seen { free: memory.free, is_listed, change }
    }

    fn has_moved(&mut self, at: Millis, free: Bytes) -> bool {
        match self.anchor {
            Some((anchor, _)) if anchor.0.abs_diff(free.0) < limits::DEPARTURE_MIN.0 => false,
            Some(_) => {
                self.anchor = Some((free, at));
                true
            }
            None => {
                self.anchor = Some((free, at));
                false
            }
        }
    }

    /// Whether enough has come back.
    fn is_complete(&self, before: &Before, returned: Bytes, at: Millis) -> bool {
        let has_departed = self.departed_at.is_some();
        match before.held {
            Held::Nothing => true,
            Held::Known(held) => has_departed && held.saturating_sub(returned) <= before.may_be_missing(held),
            Held::Unknown => has_departed && self.stands_still(at) >= limits::RELEASE_SETTLE,
        }
    }

    /// For how long the free counter has stood where it is.
    fn stands_still(&self, now: Millis) -> Millis {
        self.anchor.map_or(Millis(0), |(_, since)| now.since(since))
    }

    /// What is awaited here, for a person.
    pub(super) fn words(&self, now: Millis, leaver: &Leaver) -> String {
        let gpu = &self.gpu;
        let seen = match &self.view {
            Err(why) => return format!("{gpu}: blind, {why}; whether memory came back is not known"),
            Ok(seen) => seen,
        };
        let Some(before) = &self.before else {
            return format!(
                "{gpu}: {} MiB are free; it could not be read before the stop, so that no movement can be told",
                mib(seen.free)
            );
        };
        let listed = match seen.is_listed {
            true => format!("the driver still lists worker {}", leaver.pid),
            false => format!("worker {} is listed no more", leaver.pid),
        };
        let bytes = match (before.held, self.departed_at, seen.change.returned) {
            (Held::Nothing, _, _) => "it held nothing here".to_owned(),
            (Held::Known(held), None, _) => format!("nothing of {} MiB is back yet", mib(held)),
            (Held::Known(held), Some(_), returned) => {
                format!("{} of {} MiB are back", mib(returned.min(held)), mib(held))
            }
            (Held::Unknown, None, _) => "nothing is back yet of what it held (N/A)".to_owned(),
            (Held::Unknown, Some(_), returned) => format!("{} MiB are back of what it held (N/A)", mib(returned)),
        };
        let still = self.stands_still(now);
        let counter = match seen.free < before.free.saturating_sub(limits::DEPARTURE_MIN) {
            true => format!(", free memory fell from {} to {} MiB", mib(before.free), mib(seen.free)),
            false if still >= limits::RELEASE_SETTLE => {
                format!(", the free counter has stood at {} MiB for {}", mib(seen.free), seconds(still))
            }
            false => String::new(),
        };
        let others = match &seen.change.taken {
            Some((who, taken)) => format!("; others took {} MiB meanwhile, most of it {who}", mib(*taken)),
            None => String::new(),
        };
        format!("{gpu}: {listed}, {bytes}{counter}{others}")
    }
}

impl Leaver {
    fn is_listed_as(&self, holder: &Holder) -> bool {
        holder.process.may_be(self.pid, self.start_ticks)
    }
}

impl Before {
    fn new(reading: &GpuReading, memory: &GpuMemory, leaver: &Leaver) -> Before {
        let holders = memory.holders();
        let listed = holders.iter().find(|holder| leaver.is_listed_as(holder)).map(|holder| holder.process.bytes);
        let reported = leaver.vram.get(&reading.gpu.uuid).copied();
        let bytes = match (listed, reported) {
            // The list includes the driver's own context, which the worker does not know.
            (Some(Some(listed)), Some(reported)) => Some(listed.max(reported)),
            (Some(Some(listed)), None) => Some(listed),
            (Some(None), Some(Bytes::ZERO) | None) => None,
            (Some(None) | None, Some(reported)) => Some(reported),
            // Nobody at all is listed: then it says nothing that the worker is not.
            (None, None) if memory.lists_nobody() && memory.held() > Bytes::ZERO => None,
            (None, None) => Some(Bytes::ZERO),
        };
        let held = match bytes {
            None => Held::Unknown,
            Some(bytes) if bytes < limits::DEPARTURE_MIN => Held::Nothing,
            Some(bytes) => Held::Known(bytes),
        };
        Before { total: memory.total, free: memory.free, held, others: others(&holders, leaver) }
    }

    /// What has to come back before anything counts as movement.
    fn departure(&self) -> Bytes {
        match self.held {
            Held::Nothing | Held::Known(_) => limits::DEPARTURE_MIN,
            Held::Unknown => limits::UNKNOWN_DEPARTURE_MIN,
        }
    }

    fn may_be_missing(&self, held: Bytes) -> Bytes {
        tolerance(self.total).min(Bytes(held.0 / 100 * limits::RELEASE_MISSING_PERCENT))
    }

    /// The counter would stand at `free + given − taken` if the worker still held everything; what it shows beyond that
    /// is the worker's.
    fn compare(&self, memory: &GpuMemory, leaver: &Leaver) -> Change {
        let holders = memory.holders();
        let now = others(&holders, leaver);
        let grown = |pid: u32, bytes: Bytes| bytes.saturating_sub(self.others.get(&pid).copied().unwrap_or_default());
        let growths = now.iter().map(|(pid, bytes)| (*pid, grown(*pid, *bytes)));
        let taken: Bytes = growths.clone().map(|(_, growth)| growth).sum();
        let is_listed = |pid: u32| holders.iter().any(|holder| holder.process.pid == pid);
        let shrunk = |pid: u32, bytes: Bytes| match now.get(&pid) {
            Some(now) => bytes.saturating_sub(*now),
            None if is_listed(pid) => Bytes::ZERO, // the driver gives no figure any more
            None => bytes,
        };
        let given: Bytes = self.others.iter().map(|(pid, bytes)| shrunk(*pid, *bytes)).sum();
        let without_us = self.free.saturating_add(given);

        let most = growths.max_by_key(|(_, growth)| *growth).filter(|_| taken >= limits::CULPRIT_MIN);
        let name =
            |pid: u32| holders.iter().find(|holder| holder.process.pid == pid).map(|holder| holder.process.to_string());
        Change {
            returned: memory.free.saturating_add(taken).saturating_sub(without_us),
            taken: most.and_then(|(pid, _)| name(pid)).map(|name| (name, taken)),
        }
    }
}

fn no_reading() -> Blindness {
    Blindness::Failed { why: "there was no reading".to_owned() }
}

/// What is listed of everybody else, by pid.
fn others(holders: &[Holder], leaver: &Leaver) -> BTreeMap<u32, Bytes> {
    let is_other = |holder: &&Holder| !leaver.is_listed_as(holder);
    holders.iter().filter(is_other).filter_map(|holder| holder.process.bytes.map(|b| (holder.process.pid, b))).collect()
}
