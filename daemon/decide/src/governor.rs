//! The governor: watches the accounts of a running worker and moves one lever at a time, cheapest first, before a line is
//! reached.
//!
//! The daemon's loop hands it each [`Sample`] of readings and each [`Answer`] of the worker, carries out the [`Order`]s, logs
//! the [`Note`]s and looks again at [`Output::next_sample`]. Nothing here reads a clock or a file, and an effect is believed
//! only when a later reading shows it.
//!
//! Rules ([`RULES`]) and the ladder ([`LADDER`]) are data. Each account has at most one move under way; a
//! move down is never delayed by anything but the one before it on the same account, a move up waits until the account has
//! been quiet. The account of files is answered the other way round: when the file is read more than planned, host memory
//! takes more experts in, if it has room.
//!
//! Read in this order: [`lever`], [`reading`], [`trend`], `gauge` (what is free, at worst; `least`: and for how long), [`rule`], `watch` (one account's
//! states), [`quiet`], [`trust`], [`note`].

mod desk;
mod gauge;
pub mod least;
pub mod lever;
pub mod note;
pub mod quiet;
pub mod reading;
pub mod rule;
pub mod trend;
pub mod trust;
mod watch;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};

use crate::ledger::AccountId;
use desk::{Desk, Worker};
use gauge::{Reading, signed};
use watch::Watch;

pub use lever::{Kind, LADDER, Lever, LeverReading, Rung, Urgency};
pub use note::{Move, MoveId, Note, Why};
pub use reading::{CardReading, DiskReading, HostReading, Sample, Timed, WorkerReading};
pub use rule::{Alarm, RULES, Rule, Signal};
pub use watch::{Flight, Phase};

/// What the governor may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Move levers.
    Act,
    /// Decide on paper: only notes.
    Observe,
    /// Nothing.
    Off,
}

/// What it works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What it may do.
    pub mode: Mode,
    /// Whether figures are taken for comparison: the cache does not move while it is measured.
    pub is_benchmark: bool,
    /// Bytes of a card that shall be free at a request's start.
    pub vram_line_free: Bytes,
    /// Bytes of a card that a prompt allocates: with fewer free at its start the worker would die of it.
    pub vram_prompt: Bytes,
    /// Bytes a token that the plan reads from the file; `None` where the model has no experts.
    pub reads_per_token: Option<Bytes>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The newest readings.
    Sample(Sample),
    /// The worker has moved a lever.
    Answered(Answer),
    /// A request is about to run its prompt. Ask again with each sample until the answer is [`Start::Go`].
    RequestStarts,
    /// A worker was started, and loads.
    WorkerStarted,
    /// It serves.
    WorkerReady,
    /// It is gone, with all that it held.
    WorkerGone,
}

/// The worker's answer to a [`Move`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Which one.
    pub id: MoveId,
    /// What it says that it freed, or took.
    pub bytes: Bytes,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Tell the worker to move a lever.
    Move(Move),
    /// Let no new work in.
    PauseAdmission,
    /// Let it in again.
    ResumeAdmission,
    /// End the worker, keep its requests, and start it again on what fits then.
    Restart {
        /// It does not answer, and the machine can't wait: kill it.
        at_once: bool,
    },
}

/// Whether a request may run its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It may.
    Go,
    /// The card is under its line: what shrinks for it comes first, or others have to leave it.
    ShrinkFirst,
}

/// The answer to an [`Input`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// To be carried out, in this order.
    pub orders: Vec<Order>,
    /// What happened, for the log.
    pub notes: Vec<Note>,
    /// To [`Input::RequestStarts`] alone.
    pub start: Option<Start>,
    /// When to read everything again, at the latest.
    pub next_sample: Millis,
}

/// The governor of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Governor {
    desk: Desk,
    /// Host memory first, then the cards in the order in which they were seen.
    watches: Vec<Watch>,
    /// Since when a request has been waiting for bytes of a card.
    request_since: Option<Millis>,
}

impl Governor {
    /// Watches nothing yet: accounts come with their first readings.
    pub fn new(settings: Settings) -> Governor {
        Governor { desk: Desk::new(settings), watches: Vec::new(), request_since: None }
    }

    /// Takes other settings: a new plan reads other bytes from the file.
    pub fn set(&mut self, settings: Settings) {
        self.desk.settings = settings;
    }

    /// Takes one input in. `now` never runs backwards.
    pub fn step(&mut self, now: Millis, input: &Input) -> Output {
        let mut out = Output { next_sample: now.saturating_add(limits::SAMPLE_MAX), ..Output::default() };
        if self.desk.settings.mode == Mode::Off {
            out.start = matches!(input, Input::RequestStarts).then_some(Start::Go);
            return out;
        }
        match input {
            Input::Sample(sample) => self.take(sample),
            Input::Answered(answer) => self.watches.iter_mut().for_each(|watch| watch.answered(now, answer)),
            Input::RequestStarts => {}
            Input::WorkerStarted => self.restart(now, Worker::Loads),
            Input::WorkerReady => self.restart(now, Worker::Serves),
            Input::WorkerGone => self.restart(now, Worker::Gone),
        }
        self.desk.is_request_starting = matches!(input, Input::RequestStarts);
        for watch in &mut self.watches {
            watch.step(now, &mut self.desk, &mut out);
        }
        if self.desk.is_request_starting {
            out.start = Some(self.start(now, &mut out));
        }
        out.next_sample = now.saturating_add(self.pause(now));
        out
    }

    /// Whether nothing is expected to happen before [`Governor::wakes_at`]: looking less often would show the same.
    pub fn is_calm(&self, now: Millis) -> bool {
        self.request_since.is_none() && !self.desk.is_paused && self.watches.iter().all(|watch| watch.is_calm(now))
    }

    /// When a pause ends.
    pub fn wakes_at(&self) -> Option<Millis> {
        self.watches.iter().filter_map(Watch::wakes_at).min()
    }

    /// Where each account is between pressure and recovery.
    pub fn phases(&self) -> impl Iterator<Item = (AccountId, &Phase)> {
        self.watches.iter().map(|watch| (watch.id, watch.phase()))
    }

    /// What each lever is trusted with.
    pub fn trust(&self) -> &trust::Trust {
        &self.desk.trust
    }

    fn take(&mut self, sample: &Sample) {
        let worker = sample.worker.as_ref().map(|worker| &worker.value);
        self.desk.levers.clear();
        let serves = self.desk.worker == Worker::Serves;
        self.desk.levers.extend(worker.into_iter().filter(|_| serves).flat_map(|worker| &worker.levers));
        if let Some(host) = &sample.host {
            let to_load = worker.map_or(Bytes::ZERO, |worker| worker.to_load(AccountId::Host));
            let HostReading { free, room, .. } = host.value;
            let (read, free) = (signed(free), signed(free).saturating_sub(signed(to_load)));
            let reading = Reading { at: host.at, read, free, room: room.saturating_sub(signed(to_load)) };
            let held = self.held(AccountId::Host);
            let watch = self.watch(AccountId::Host, Kind::Host);
            watch.note_thrash(&host.value);
            watch.gauge.note(reading, held, to_load > Bytes::ZERO);
        }
        for card in &sample.cards {
            let id = AccountId::Vram(card.value.index);
            let work = worker.map_or(Bytes::ZERO, |worker| worker.work_on(id));
            let to_load = worker.map_or(Bytes::ZERO, |worker| worker.to_load(id));
            // A step's buffers were reserved, and come back.
            let free = signed(card.value.free.saturating_add(work)).saturating_sub(signed(to_load));
            let room = free.saturating_sub(signed(self.desk.settings.vram_line_free));
            let held = self.held(id);
            self.watch(id, Kind::Vram).gauge.note(Reading { at: card.at, read: free, free, room }, held, false);
        }
        if let Some(disk) = &sample.disk {
            self.desk.note_disk(disk);
        }
    }

    /// What our levers hold of an account.
    fn held(&self, account: AccountId) -> i64 {
        signed(self.desk.levers.iter().filter(|lever| lever.account == account).map(|lever| lever.held).sum())
    }

    fn watch(&mut self, id: AccountId, kind: Kind) -> &mut Watch {
        let at = self.watches.iter().position(|watch| watch.id == id).unwrap_or_else(|| {
            self.watches.push(Watch::new(id, kind));
            self.watches.len() - 1
        });
        &mut self.watches[at]
    }

    fn restart(&mut self, now: Millis, worker: Worker) {
        self.desk.worker = worker;
        self.desk.levers.clear();
        self.desk.stop = None;
        self.desk.is_paused = false;
        self.request_since = None;
        self.watches.iter_mut().for_each(|watch| watch.restart(now, worker));
    }

    /// Whether a request may run now: not while its card is under the line and bytes can still come back, for a while; and
    /// not at all while its worker would die of it, as long as its client waits. Starting the worker again would not help: all
    /// that it can give back is given, and a start asks for more of the card than a worker that stays.
    fn start(&mut self, now: Millis, out: &mut Output) -> Start {
        let since = *self.request_since.get_or_insert(now);
        let is_short = |watch: &&Watch| watch.room_at_request(now).is_some_and(|room| room < 0);
        let mut cards = self.watches.iter().filter(|watch| watch.id != AccountId::Host).filter(is_short);
        if self.desk.may_act() && !self.desk.settings.is_benchmark {
            let is_patient = now.since(since) < limits::REQUEST_START_WAIT;
            if is_patient && cards.clone().any(|watch| watch.holds_request(now, &self.desk)) {
                return Start::ShrinkFirst;
            }
            if cards.clone().any(|watch| watch.is_deadly(now, self.desk.settings.vram_prompt)) {
                return Start::ShrinkFirst;
            }
        }
        self.request_since = None;
        if let Some(watch) = cards.next() {
            out.notes.push(Note::StartedUnderLine(watch.id));
        }
        Start::Go
    }

    /// How long until the next look: the shortest that any account asks for.
    fn pause(&self, now: Millis) -> Millis {
        let pauses = self.watches.iter().map(|watch| watch.gauge.pause(now));
        pauses.min().unwrap_or(limits::SAMPLE_MAX)
    }
}
