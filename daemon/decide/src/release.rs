//! The release wait: has the memory of an ended worker come back?
//!
//! A process that is gone may hold memory for seconds, and the free counter may stand still all that time. So the readings
//! are compared with those from before the stop: the counter must *move away* from there, on each card, until the worker is
//! listed no more *and* its bytes are back; then host memory must be back too. What other programs took or gave meanwhile
//! is told from the process lists, so that one that grows does not keep us waiting, and one that ends does not pass for
//! us.
//!
//! The daemon makes one [`Release`] when a worker ends, and calls [`Release::step`] with new readings until it is
//! [`Step::Released`], or [`Step::TimedOut`] and it goes on to the [zero check](crate::zero_check), which does not forget.
//!
//! ```text
//!   each card:  as before ──moved──► departed ──listed no more, bytes back──► back ─┐
//!                 └── nothing was held, listed no more ──────────────────────► back ─┴─ all ──► host back ──► Released
//!   whatever is missing at the deadline ─────────────────────────────────────────────────────────────────► TimedOut
//! ```

mod card;
mod host;

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use crate::gpu::{Gpu, GpuReading};
use crate::identity::ProcessState;
use crate::text::seconds;

use card::Card;
use host::Host;

/// The worker that has ended, or was told to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaver {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the boot.
    pub start_ticks: u64,
    /// What it said it holds on each card, by uuid, or what its plan gave it there if it has said nothing yet; 0 on one that
    /// it does not use. A list of processes may leave it out, and then this is all that is known.
    pub vram: BTreeMap<String, Bytes>,
    /// Its own memory on the host, file pages not counted; `None` where that is not known.
    pub host: Option<Bytes>,
}

/// Host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostReading {
    /// When it was read.
    pub at: Millis,
    /// MemAvailable.
    pub available: Bytes,
    /// What other programs hold, where it was counted.
    pub foreign: Option<Bytes>,
}

/// One look at everything that is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The cards.
    pub gpus: Vec<GpuReading>,
    /// Host memory.
    pub host: HostReading,
    /// The worker's process, while there is one.
    pub process: Option<ProcessState>,
}

/// What a look led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Not yet.
    Waiting {
        /// What is awaited, on one line.
        progress: String,
        /// When to look again.
        look_at: Millis,
    },
    /// All of it is back.
    Released(Released),
    /// Not within the time. Whoever looks again later may still find it back.
    TimedOut {
        /// What is missing, card by card, then the host.
        missing: Vec<Missing>,
        /// All of it for a person.
        words: String,
    },
}

/// How long it took, from the end of the worker on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// Until everything was back.
    pub latency: Millis,
    /// Card by card.
    pub gpus: Vec<(Gpu, Millis)>,
    /// Host memory; `None` where what the worker held is not known, or not worth waiting for.
    pub host: Option<Millis>,
}

/// Where something is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On a card.
    Gpu(Gpu),
    /// On the host.
    Host,
    /// The process itself is still there.
    Process,
}

/// What is missing at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Where.
    pub place: Place,
    /// How much; `None` where that is not known.
    pub bytes: Option<Bytes>,
}

/// The wait for one worker's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    leaver: Leaver,
    ended_at: Millis,
    deadline: Millis,
    cards: Vec<Card>,
    /// `None`: what the worker held there is not known, or not worth waiting for.
    host: Option<Host>,
    process: Option<ProcessState>,
}

impl Release {
    /// Begins to wait. `before` was read before the worker was told to end, `ended_at` is when it ended or was last told
    /// to, `timeout` is [`limits::RELEASE_TIMEOUT`] by default.
    pub fn new(leaver: Leaver, before: &Reading, ended_at: Millis, timeout: Millis) -> Release {
        let cards = before.gpus.iter().map(|reading| Card::new(reading, &leaver, ended_at)).collect();
        let host = leaver.host.and_then(|held| Host::new(before.host, held));
        let deadline = ended_at.saturating_add(timeout);
        Release { leaver, ended_at, deadline, cards, host, process: before.process }
    }

    /// Takes one look in. `now` never runs backwards.
    pub fn step(&mut self, now: Millis, reading: &Reading) -> Step {
        self.process = reading.process;
        for card in &mut self.cards {
            card.look(now, reading.gpus.iter().find(|of| of.gpu.uuid == card.gpu().uuid), &self.leaver);
        }
        // The host comes last: while a card holds memory, its driver pins host memory as well.
        let cards_are_back = self.cards.iter().all(Card::is_back);
        if let Some(host) = self.host.as_mut().filter(|_| cards_are_back) {
            host.look(now, reading.host);
        }
        if cards_are_back && self.host_awaited().is_none() && !self.is_alive() {
            return Step::Released(self.released());
        }
        if now < self.deadline {
            let look_at = now.saturating_add(limits::RELEASE_POLL).min(self.deadline);
            let progress = format!("waiting for memory, {}: {}", self.waited(now), self.lines(now).join("; "));
            return Step::Waiting { progress, look_at };
        }
        Step::TimedOut { missing: self.missing(), words: self.timed_out_words(now) }
    }

    fn host_awaited(&self) -> Option<&Host> {
        self.host.as_ref().filter(|host| !host.is_back())
    }

    /// Whether the process can still hold and take memory.
    fn is_alive(&self) -> bool {
        match self.process {
            Some(ProcessState::Running | ProcessState::Uninterruptible) => true,
            Some(ProcessState::Zombie) | None => false,
        }
    }

    fn waited(&self, now: Millis) -> String {
        seconds(now.since(self.ended_at))
    }

    fn released(&self) -> Released {
        let since_end = |at: Millis| at.since(self.ended_at);
        let gpus: Vec<(Gpu, Millis)> =
            self.cards.iter().filter_map(|card| card.back_at().map(|at| (card.gpu().clone(), since_end(at)))).collect();
        let host = self.host.as_ref().and_then(Host::back_at).map(since_end);
        let latency = gpus.iter().map(|(_, latency)| *latency).chain(host).max().unwrap_or_default();
        Released { latency, gpus, host }
    }

    /// One line for everything that is not back.
    fn lines(&self, now: Millis) -> Vec<String> {
        let mut lines: Vec<String> =
            self.cards.iter().filter(|card| !card.is_back()).map(|card| card.words(now, &self.leaver)).collect();
        if let Some(host) = self.host_awaited().filter(|_| lines.is_empty()) {
            lines.push(host.words());
        }
        let obstacle = self.process.map_or("", ProcessState::obstacle);
        match (self.is_alive(), obstacle) {
            (true, "") => lines.push(format!("worker {} has not ended yet", self.leaver.pid)),
            (_, "") => {}
            (true | false, obstacle) => lines.push(format!("worker {}: {obstacle}", self.leaver.pid)),
        }
        lines
    }

    fn missing(&self) -> Vec<Missing> {
        let of_card = |card: &Card| Missing { place: Place::Gpu(card.gpu().clone()), bytes: card.missing() };
        let mut missing: Vec<Missing> = self.cards.iter().filter(|card| !card.is_back()).map(of_card).collect();
        if let Some(host) = self.host_awaited().filter(|_| missing.is_empty()) {
            missing.push(Missing { place: Place::Host, bytes: host.missing() });
        }
        if self.is_alive() {
            missing.push(Missing { place: Place::Process, bytes: None });
        }
        missing
    }

    fn timed_out_words(&self, now: Millis) -> String {
        let mut text = format!(
            "The memory of worker {} has not come back within {}; the next start looks at what is left:\n",
            self.leaver.pid,
            self.waited(now)
        );
        for line in self.lines(now) {
            text.push_str("  ");
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

impl Released {
    /// One line for the log.
    pub fn words(&self) -> String {
        let cards: Vec<String> =
            self.gpus.iter().map(|(gpu, latency)| format!("{gpu} {}", seconds(*latency))).collect();
        let host = match self.host {
            Some(latency) => format!("host {}", seconds(latency)),
            None => "host not awaited".to_owned(),
        };
        let each = cards.into_iter().chain([host]).collect::<Vec<_>>().join(", ");
        format!("released: all of it after {} ({each})", seconds(self.latency))
    }
}
