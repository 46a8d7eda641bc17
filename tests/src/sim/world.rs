//! World files: `tests/data/worlds/*.yaml`. What kind of machine, model, load and trouble a day is drawn from.
//!
//! A world is data, fixed before any policy was tuned. Units are in the names; unknown fields are refused.

use super::lever::{Card, Lever, LeverFacts, MAX_CARDS};
use super::policy::{CardFacts, Facts};
use super::sight::MAX_GROUPS;
use plimsoll_config::units::{Bytes, Millis};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A range that a seed draws from; both ends belong to it.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Lowest.
    pub low: u64,
    /// Highest.
    pub high: u64,
}

/// Foreign programs of one kind: each run ramps up, holds, and goes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// What they are, for the story.
    pub name: String,
    /// How many runs in a day of 24 hours.
    pub runs_per_day: Range,
    /// Bytes at the top.
    pub size_mib: Range,
    /// How fast they grow.
    pub growth_mib_per_s: Range,
    /// How long they stay.
    pub hold_s: Range,
    /// Whether they come in working hours alone.
    pub working_hours_only: bool,
}

/// Swap of the machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// How much may be swapped out.
    pub size_mib: u64,
    /// RAM that a swapped byte still takes, in thousandths: 0 on a disk, about 350 in zram.
    pub ram_cost_permille: u64,
}

/// An ancestor control group with a limit, and what its other members do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its limit.
    pub limit_mib: u64,
    /// What siblings hold all day.
    pub siblings_mib: Range,
    /// Siblings that come and go. They count in the machine too.
    pub siblings: Vec<Programs>,
}

/// Host memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// What the machine has.
    pub total_mib: u64,
    /// What the kernel keeps.
    pub kernel_reserve_mib: u64,
    /// What the desktop and its services hold all day.
    pub desktop_mib: Range,
    /// What more they hold in working hours.
    pub working_hours_mib: Range,
    /// Programs that come and go.
    pub programs: Vec<Programs>,
    /// Foreign use never goes over this: their own users would stop.
    pub foreign_most_mib: u64,
    /// Swap, if any.
    pub swap: Option<Swap>,
    /// Ancestors with limits, the outermost first.
    pub ancestors: Vec<Group>,
    /// Whether the daemon may read the kernel's log.
    pub kernel_log_readable: bool,
}

/// One card.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardWorld {
    /// What is printed on it.
    pub total_mib: u64,
    /// What its driver keeps.
    pub driver_reserve_mib: u64,
    /// What the desktop takes all day.
    pub desktop_mib: Range,
    /// Programs that come and go.
    pub programs: Vec<Programs>,
    /// Foreign use never goes over this.
    pub foreign_most_mib: u64,
    /// Its memory's bandwidth.
    pub bandwidth_mib_per_s: u64,
    /// Host to card.
    pub upload_mib_per_s: u64,
    /// Whether the driver says how much each program holds.
    pub tells_bytes_by_process: bool,
}

/// The disk with the model's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Alone.
    pub read_mib_per_s: u64,
    /// Periods in which others use it.
    pub contention_per_day: Range,
    /// Their length.
    pub contention_s: Range,
    /// What is left then, in thousandths.
    pub left_permille: Range,
    /// Chance of a seed in thousandths that its disk stalls now and then, and hand-overs with it.
    pub stalls_permille: u64,
    /// Stalls in a day of such a seed.
    pub stalls_per_day: Range,
    /// Their length.
    pub stall_ms: Range,
}

/// Work memory on one card beside the levers.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardPart {
    /// Context and dense weights.
    pub fixed_mib: u64,
    /// Taken at the first request and kept.
    pub prompt_path_mib: u64,
}

/// The model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Host bytes beside the levers.
    pub host_fixed_mib: u64,
    /// For each card.
    pub cards: Vec<CardPart>,
    /// All experts; 0 for a dense model.
    pub experts_mib: u64,
    /// Expert bytes of one token.
    pub token_cycle_mib: u64,
    /// Dense bytes of one token.
    pub dense_mib: u64,
    /// Share of the dense bytes that is on a card whatever the levers are, thousandths.
    pub dense_on_card_permille: u64,
    /// KV of one token.
    pub kv_bytes_per_token: u64,
    /// Bandwidth of host memory for this engine.
    pub ram_mib_per_s: u64,
    /// Prompt tokens per second with all levers at home.
    pub prefill_tokens_per_s: u64,
    /// Gain of the draft, thousandths of the plain rate.
    pub draft_gain_permille: u64,
}

/// The kinds of lever, as a file names them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeverName {
    /// See [`Lever::PrefixCache`].
    PrefixCache,
    /// See [`Lever::ResidentBudget`].
    ResidentBudget,
    /// See [`Lever::KvCapacity`].
    KvCapacity,
    /// See [`Lever::KvWindow`].
    KvWindow,
    /// See [`Lever::ExpertCache`].
    ExpertCache,
    /// See [`Lever::GpuLayers`].
    GpuLayers,
    /// See [`Lever::Draft`].
    Draft,
}

/// One lever.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeverWorld {
    /// Which.
    pub lever: LeverName,
    /// On which card, for those that are on one.
    #[serde(default)]
    pub card: u8,
    /// Lowest position.
    pub floor_mib: u64,
    /// Where it stands when nothing presses.
    pub home_mib: u64,
}

/// Who asks.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// Most at a time.
    pub sessions: u32,
    /// People.
    pub chats: u32,
    /// Agents in a closed loop.
    pub agents: u32,
    /// Whether the people's page asks for titles in parallel.
    pub titles: bool,
    /// Prompt of a chat.
    pub chat_prompt_tokens: Range,
    /// Prompt of an agent.
    pub agent_prompt_tokens: Range,
    /// Answers.
    pub answer_tokens: Range,
    /// Chance that a client goes away in the middle, thousandths.
    pub cancels_permille: u64,
}

/// What goes wrong in the worker and outside of it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Chance of a seed that its worker has a crash bug, thousandths.
    pub crash_permille: u64,
    /// Chance of a hang bug.
    pub hang_permille: u64,
    /// Chance of a kill from outside.
    pub outside_kill_permille: u64,
    /// Chance of one poison request.
    pub poison_permille: u64,
    /// Chance of a worker that says it freed all it was asked for.
    pub lying_worker_permille: u64,
    /// What a downward move frees of what it promises, thousandths.
    pub freed_permille: Range,
}

/// Suspends.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// How many in 24 hours.
    pub per_day: Range,
    /// How long.
    pub sleep_s: Range,
    /// How long the card's driver is silent after it.
    pub card_silent_ms: Range,
    /// By how much foreign use jumps on resume.
    pub jump_mib: Range,
}

/// Sensors.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensors {
    /// Largest error of a host reading, either way.
    pub host_noise_mib: u64,
    /// Largest error of a card's reading, either way.
    pub card_noise_mib: u64,
    /// Age of a host reading when it is seen.
    pub host_delay_ms: u64,
    /// Age of a card's reading when it is seen.
    pub card_delay_ms: u64,
    /// Spans in which a sensor is stale: neither value nor time moves. In a day, over all sensors.
    pub stale_per_day: Range,
    /// Their length.
    pub stale_ms: Range,
    /// Spans in which a value stands still while its time goes on.
    pub frozen_per_day: Range,
    /// Their length: short, for nobody could tell.
    pub frozen_ms: Range,
    /// Spans in which a sensor shows less use than there is.
    pub lying_per_day: Range,
    /// Their length.
    pub lying_ms: Range,
    /// By how much.
    pub lie_mib: Range,
}

/// A world as its file gives it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Its name: the file's.
    pub name: String,
    /// What it stands for.
    pub about: String,
    /// Host memory.
    pub host: Host,
    /// Cards.
    pub cards: Vec<CardWorld>,
    /// The disk.
    pub disk: Disk,
    /// The model.
    pub model: Model,
    /// Levers, cheapest first.
    pub levers: Vec<LeverWorld>,
    /// Clients.
    pub requests: Requests,
    /// Faults.
    pub faults: Faults,
    /// Suspends, if the machine does.
    pub suspend: Option<Suspend>,
    /// Sensors.
    pub sensors: Sensors,
}

/// The default worlds, in the order in which seeds go through them.
pub const NAMES: [&str; 7] =
    ["workstation-12g", "dense-8g", "cpu-only", "container", "laptop-zram", "two-cards", "hostile-sensors"];

/// Free bytes of a card at a request's start under which decoding is a few tokens a second.
pub const REQUEST_LINE: Bytes = Bytes::from_mib(512);

/// Longest hand-over of a worker that is well.
pub const HAND_OVER: Millis = Millis(50);

/// The folder of the world files.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/worlds")
}

impl World {
    /// Reads a world's text.
    ///
    /// # Errors
    /// One sentence: not YAML, an unknown or missing field, or a figure that can't be.
    pub fn parse(text: &str) -> Result<World, String> {
        let world: World = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        world.check()?;
        Ok(world)
    }

    /// Reads a default world by name, or any world by the path of its file.
    ///
    /// # Errors
    /// The file can't be read, or is not a world.
    pub fn load(name_or_path: &str) -> Result<World, String> {
        let path = match NAMES.contains(&name_or_path) {
            true => folder().join(format!("{name_or_path}.yaml")),
            false => PathBuf::from(name_or_path),
        };
        let text = std::fs::read_to_string(&path).map_err(|error| {
            format!("can't read the world `{name_or_path}` ({error}): give a file, or one of {}", NAMES.join(", "))
        })?;
        World::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn check(&self) -> Result<(), String> {
        if self.cards.len() > MAX_CARDS || self.host.ancestors.len() + 1 > MAX_GROUPS {
            return Err(format!("at most {MAX_CARDS} cards and {} ancestors", MAX_GROUPS - 1));
        }
        if self.model.cards.len() != self.cards.len() {
            return Err("`model.cards` and `cards` differ in length".to_owned());
        }
        for spec in &self.levers {
            let on_card = spec.facts().lever.account() != super::lever::Account::Host;
            if spec.floor_mib > spec.home_mib || (on_card && usize::from(spec.card) >= self.cards.len()) {
                return Err(format!("lever {:?}: its floor is over its home, or its card is missing", spec.lever));
            }
        }
        match self.ranges().into_iter().find(|range| range.low > range.high) {
            Some(range) => Err(format!("a range runs from {} down to {}", range.low, range.high)),
            None => Ok(()),
        }
    }

    /// Every range of the file.
    fn ranges(&self) -> Vec<Range> {
        let programs = self.host.programs.iter().chain(self.host.ancestors.iter().flat_map(|group| &group.siblings));
        let programs = programs.chain(self.cards.iter().flat_map(|card| &card.programs));
        let mut all: Vec<Range> =
            programs.flat_map(|p| [p.runs_per_day, p.size_mib, p.growth_mib_per_s, p.hold_s]).collect();
        all.extend(self.host.ancestors.iter().map(|group| group.siblings_mib));
        all.extend(self.cards.iter().map(|card| card.desktop_mib));
        all.extend(self.suspend.iter().flat_map(|s| [s.per_day, s.sleep_s, s.card_silent_ms, s.jump_mib]));
        let (host, disk, asks, sensors) = (&self.host, &self.disk, &self.requests, &self.sensors);
        all.extend([host.desktop_mib, host.working_hours_mib, disk.contention_per_day, disk.contention_s]);
        all.extend([disk.left_permille, disk.stalls_per_day, disk.stall_ms, self.faults.freed_permille]);
        all.extend([asks.chat_prompt_tokens, asks.agent_prompt_tokens, asks.answer_tokens]);
        all.extend([sensors.stale_per_day, sensors.stale_ms, sensors.frozen_per_day, sensors.frozen_ms]);
        all.extend([sensors.lying_per_day, sensors.lying_ms, sensors.lie_mib]);
        all
    }

    /// What a policy knows before the day.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let cards = self.cards.iter().zip(&self.model.cards).zip(0..);
        Facts {
            world: self.name.clone(),
            levers: self.levers.iter().map(LeverWorld::facts).collect(),
            host_fixed: Bytes::from_mib(self.model.host_fixed_mib),
            host_limit: Bytes::from_mib(self.host.total_mib - self.host.kernel_reserve_mib),
            cards: cards
                .map(|((card, part), number)| CardFacts {
                    card: Card(number),
                    total: Bytes::from_mib(card.total_mib - card.driver_reserve_mib),
                    baseline: Bytes::from_mib(card.desktop_mib.high),
                    fixed: Bytes::from_mib(part.fixed_mib),
                    prompt_path: Bytes::from_mib(part.prompt_path_mib),
                    request_line: REQUEST_LINE,
                })
                .collect(),
            kv_per_token: Bytes(self.model.kv_bytes_per_token),
            experts: Bytes::from_mib(self.model.experts_mib),
            token_cycle: Bytes::from_mib(self.model.token_cycle_mib),
            max_sessions: self.requests.sessions,
            disk_bytes_per_s: self.disk.read_mib_per_s << 20,
            hand_over: HAND_OVER,
        }
    }
}

impl LeverWorld {
    fn facts(&self) -> LeverFacts {
        let card = Card(self.card);
        let lever = match self.lever {
            LeverName::PrefixCache => Lever::PrefixCache,
            LeverName::ResidentBudget => Lever::ResidentBudget,
            LeverName::KvCapacity => Lever::KvCapacity,
            LeverName::KvWindow => Lever::KvWindow(card),
            LeverName::ExpertCache => Lever::ExpertCache(card),
            LeverName::GpuLayers => Lever::GpuLayers(card),
            LeverName::Draft => Lever::Draft(card),
        };
        LeverFacts { lever, floor: Bytes::from_mib(self.floor_mib), home: Bytes::from_mib(self.home_mib) }
    }
}
