//! What a policy sees: the newest readings, each with the time it was taken, and what happened since its last step.
//!
//! Times are on the daemon's clock (`CLOCK_MONOTONIC`), which stands still while the machine is suspended.

use super::lever::{Account, Positions};
use super::number;
use plimsoll_config::units::{Bytes, Millis};
use serde::{Deserialize, Serialize};

/// Most control groups that bind host memory: the machine itself and its ancestors' limits.
pub const MAX_GROUPS: usize = 4;

/// A figure and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading<T> {
    /// When the sensor took it (or says it did).
    #[serde(with = "number")]
    pub taken_at: Millis,
    /// The figure.
    pub value: T,
}

/// The machine or one ancestor control group with a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReading {
    /// What it may hold; for the machine: what is left beside the kernel's own.
    #[serde(with = "number")]
    pub limit: Bytes,
    /// What it holds and can't give back by itself, ours included. Page cache is not in it.
    #[serde(with = "number")]
    pub unreclaimable: Bytes,
}

impl GroupReading {
    /// The safe limit: the limit less 12 %, at least 1 and at most 7 GiB.
    #[must_use]
    pub fn line(&self) -> Bytes {
        line_of(self.limit)
    }
}

/// The safe limit under a hard one: less 12 %, at least 1 and at most 7 GiB.
#[must_use]
pub fn line_of(limit: Bytes) -> Bytes {
    let margin = Bytes(limit.0 / 100 * 12).clamp(Bytes::from_gib(1), Bytes::from_gib(7));
    limit.saturating_sub(margin)
}

/// Host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReading {
    /// The machine first, then ancestors; only the first `n_groups` count.
    pub groups: [GroupReading; MAX_GROUPS],
    /// How many.
    pub n_groups: usize,
    /// The worker's anonymous bytes (from its `status`), loads and what an ending worker still holds included.
    #[serde(with = "number")]
    pub ours: Bytes,
    /// Swap in use on the whole machine.
    #[serde(with = "number")]
    pub swap_used: Bytes,
    /// Swap that there is.
    #[serde(with = "number")]
    pub swap_total: Bytes,
    /// Page-cache pages read again, per second.
    pub refaults_per_s: u64,
    /// The worker's major faults, per second.
    pub major_faults_per_s: u64,
    /// PSI memory "some", share of the last moment, in thousandths. Without swap it stays 0 until the last 0.1–0.2 s.
    pub psi_some_permille: u64,
    /// Bytes that the worker reads from the file for one token.
    #[serde(with = "number")]
    pub disk_bytes_per_token: Bytes,
}

impl HostReading {
    /// The groups that count.
    #[must_use]
    pub fn groups(&self) -> &[GroupReading] {
        &self.groups[..self.n_groups]
    }

    /// Bytes until the first limit is reached (negative: past it), swap not counted.
    #[must_use]
    pub fn headroom(&self) -> i64 {
        self.groups().iter().map(|g| g.limit.0 as i64 - g.unreclaimable.0 as i64).min().unwrap_or(0)
    }

    /// Bytes until the first line is reached (negative: over it).
    #[must_use]
    pub fn room_to_line(&self) -> i64 {
        self.groups().iter().map(|g| g.line().0 as i64 - g.unreclaimable.0 as i64).min().unwrap_or(0)
    }
}

/// One card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardReading {
    /// What there is beside the driver's own.
    #[serde(with = "number")]
    pub total: Bytes,
    /// Free bytes as the driver counts them. The counter may stand still up to 8 s after an exit.
    #[serde(with = "number")]
    pub free: Bytes,
    /// Bytes of other programs; `None` where the driver does not say.
    #[serde(with = "number::option")]
    pub foreign: Option<Bytes>,
}

/// What the worker says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Where each lever stands.
    pub positions: Positions,
    /// What each lever's object really holds, as the worker says (a lying one says its position).
    pub held: Positions,
    /// Uses of experts found in VRAM, thousandths.
    pub hits_vram_permille: u64,
    /// In RAM.
    pub hits_ram_permille: u64,
    /// Read from the file.
    pub hits_file_permille: u64,
    /// Tokens decoded since the worker's start.
    pub tokens: u64,
}

/// A worker, by its number of this day: 1 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub u32);

/// A request, by its number of this day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub u32);

/// What kind of program asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientKind {
    /// A person who reads and thinks.
    Chat,
    /// A coding agent that asks again at once.
    Agent,
    /// A web page's title or tag request, beside a chat.
    Title,
}

/// A request at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its number.
    pub request: RequestId,
    /// Who asks.
    pub client: ClientKind,
    /// Tokens of its prompt, counted exactly.
    pub prompt_tokens: u32,
    /// Most tokens of its answer; the real length is not known before its end.
    pub max_tokens: u32,
}

/// A request that the worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its number.
    pub request: RequestId,
    /// Answer tokens that the daemon has received, those before a resume included.
    pub position: u32,
    /// Whether its prompt is still being worked on.
    pub in_prefill: bool,
    /// Prompt tokens that are left: progress, for a hang shows in nothing else.
    pub prefill_left: u32,
}

/// How a worker ended, with all that a daemon can find out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Which worker.
    pub worker: Generation,
    /// The signal that ended it: 9, 11, …
    pub signal: Option<i32>,
    /// Its exit code when no signal did.
    pub code: Option<i32>,
    /// Rise of the control group's `oom_kill` over this worker's life.
    pub cgroup_oom_kills: u64,
    /// Whether the kernel log names its pid as killed for memory; `None` where it can't be read.
    pub kernel_log_names_it: Option<bool>,
    /// Whether its last words are that an allocation on a card failed.
    pub vram_error: bool,
    /// Whether an order of ours (Stop) had been given.
    pub asked_for: bool,
    /// Requests that it had, with their positions; those of its last step are all of them.
    pub running: Vec<Running>,
}

/// A lever's answer: it stands where it was told to, as far as the worker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeverAnswer {
    /// Which worker.
    pub worker: Generation,
    /// Which lever.
    pub lever: super::lever::Lever,
    /// Where it was.
    #[serde(with = "number")]
    pub from: Bytes,
    /// Where it was told to go.
    #[serde(with = "number")]
    pub to: Bytes,
    /// Bytes freed (down) or taken (up), as the worker says.
    #[serde(with = "number")]
    pub moved: Bytes,
    /// From the order to the answer.
    #[serde(with = "number")]
    pub took: Millis,
    /// Whether a later order on this lever came before it was done.
    pub turned_round: bool,
}

/// Something that happened since the policy's last step, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening {
    /// A worker was spawned and loads.
    Spawned(Generation),
    /// It has loaded and serves.
    Ready(Generation),
    /// It has ended.
    Exited(Exit),
    /// A lever has moved.
    Lever(LeverAnswer),
    /// A request is at the door. The policy owns it from now on.
    Offered(Offer),
    /// The worker could not take a submitted request: no session or no KV left. The policy still owns it.
    NoRoom(RequestId),
    /// Its answer is complete.
    Finished(RequestId),
    /// Its client is gone; the request has ended. If it runs, the worker goes on until it is told by `Order::Cancel`.
    Cancelled(RequestId),
}

/// All that a policy sees at a step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sight {
    /// The clock that goes on in suspend (`CLOCK_BOOTTIME`): a jump against `now` is a suspend.
    #[serde(with = "number")]
    pub boot_now: Millis,
    /// Host memory; `None` before the first reading.
    pub host: Option<Reading<HostReading>>,
    /// Each card; a silent driver leaves an old reading.
    pub cards: Vec<Option<Reading<CardReading>>>,
    /// The living worker's report; `None` without one and while it loads.
    pub worker: Option<Reading<WorkerReport>>,
    /// What the worker runs, now (tokens come through its socket).
    pub running: Vec<Running>,
    /// What happened since the last step.
    pub happened: Vec<Happening>,
}

impl Sight {
    /// When the newest reading of an account was taken.
    #[must_use]
    pub fn taken_at(&self, account: Account) -> Option<Millis> {
        match account {
            Account::Host => self.host.map(|reading| reading.taken_at),
            Account::Vram(card) => self.cards.get(card.index()).copied().flatten().map(|reading| reading.taken_at),
        }
    }
}
