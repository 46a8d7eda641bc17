//! One day of a world, drawn from the seed before anything runs: all that does not react to us.
//!
//! Times are on the daemon's clock: a suspend is one moment on it, at which foreign use jumps and clients are gone. The oracle
//! reads this; other policies never see it.

use super::curve::{Change, Curve};
use super::draw::Draw;
use super::lever::Account;
use super::world::{Programs, Range, World};

/// The day begins at this hour.
pub const FIRST_HOUR: i64 = 8;
/// Working hours, by the clock of the wall.
pub const WORKING_HOURS: (i64, i64) = (9, 18);
/// Milliseconds of an hour.
pub const HOUR_MS: i64 = 3_600_000;
/// Slowest and fastest going of a program that ends.
const GOING_MS: (i64, i64) = (50, 1500);
/// Bytes of a MiB.
pub(super) const MIB: i64 = 1 << 20;

/// A span of time; `to_ms` does not belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From here.
    pub from_ms: i64,
    /// To here.
    pub to_ms: i64,
}

/// A suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspendAt {
    /// When, on the clock that stands still in it.
    pub at_ms: i64,
    /// How long, on the wall's.
    pub sleep_ms: i64,
    /// How long the driver of the cards says nothing afterwards.
    pub card_silent_ms: i64,
}

/// How a sensor misleads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Neither value nor time moves.
    Stale,
    /// The value stands still, its time goes on.
    Frozen,
    /// It shows so many bytes less use than there is.
    Lying(i64),
}

/// A sensor's bad moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SensorFault {
    /// Which sensor.
    pub account: Account,
    /// How.
    pub fault: Fault,
    /// When.
    pub span: Span,
}

/// The poison request: one client's n-th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poison {
    /// Whose.
    pub client: usize,
    /// Which of the client's.
    pub number: u32,
    /// At this token of its answer the worker dies.
    pub at_token: u32,
}

/// A day.
#[derive(Debug, Clone)]
pub struct Day {
    /// The world it is a day of.
    pub world: World,
    /// The seed.
    pub seed: u64,
    /// Its length on the daemon's clock.
    pub length_ms: i64,
    /// Hard limits of host memory: the machine, then ancestors.
    pub limits: Vec<i64>,
    /// Foreign use in each of them.
    pub foreign: Vec<Curve>,
    /// Foreign use of each card.
    pub cards: Vec<Curve>,
    /// Share of the disk that is left for us, thousandths, from each moment on. The first is at 0.
    pub disk: Vec<(i64, i64)>,
    /// Spans in which the disk stalls, and hand-overs with it.
    pub stalls: Vec<Span>,
    /// Suspends.
    pub suspends: Vec<SuspendAt>,
    /// Kills from outside.
    pub kills: Vec<i64>,
    /// Decoded tokens of the day at which a bug ends the worker with signal 11.
    pub crashes: Vec<u64>,
    /// Decoded tokens of the day at which it hangs.
    pub hangs: Vec<u64>,
    /// The poison request.
    pub poison: Option<Poison>,
    /// Sensors' bad moments, in order.
    pub sensor_faults: Vec<SensorFault>,
    /// Whether the worker says that it freed all it was asked for.
    pub lying_worker: bool,
    /// What a downward move really frees, thousandths.
    pub freed_permille: i64,
}

impl Day {
    /// Draws the day.
    #[must_use]
    pub fn new(world: &World, seed: u64, hours: u32) -> Day {
        let length_ms = i64::from(hours) * HOUR_MS;
        let suspends = suspends(world, seed, length_ms);
        let (limits, foreign) = host(world, seed, length_ms, &suspends);
        let mut draw = Draw::new(seed, "faults");
        let faults = &world.faults;
        let positions = |permille: u64, draw: &mut Draw| match draw.chance(permille) {
            true => (0..1 + draw.from(Range { low: 0, high: 1 }))
                .map(|_| draw.from(Range { low: 200, high: 150_000 }))
                .collect(),
            false => Vec::new(),
        };
        let mut crashes = positions(faults.crash_permille, &mut draw);
        crashes.sort_unstable();
        let hangs = positions(faults.hang_permille, &mut draw);
        let kills = match draw.chance(faults.outside_kill_permille) {
            true => vec![draw.between(60_000, length_ms)],
            false => Vec::new(),
        };
        let n_clients = u64::from(world.requests.chats + world.requests.agents).max(1);
        let poison = draw.chance(faults.poison_permille).then(|| Poison {
            client: draw.from(Range { low: 0, high: n_clients - 1 }) as usize,
            number: draw.from(Range { low: 1, high: 12 }) as u32,
            at_token: draw.from(Range { low: 1, high: world.requests.answer_tokens.low }) as u32,
        });
        Day {
            world: world.clone(),
            seed,
            length_ms,
            limits,
            foreign,
            cards: (0..world.cards.len()).map(|card| card_use(world, seed, card, length_ms)).collect(),
            disk: contention(world, seed, length_ms),
            stalls: stalls(world, seed, length_ms),
            suspends,
            kills,
            crashes,
            hangs,
            poison,
            sensor_faults: sensor_faults(world, seed, length_ms),
            lying_worker: draw.chance(faults.lying_worker_permille),
            freed_permille: draw.from(faults.freed_permille) as i64,
        }
    }

    /// Share of the disk at a moment, thousandths.
    #[must_use]
    pub fn disk_permille(&self, ms: i64) -> i64 {
        self.disk[self.disk.partition_point(|(at, _)| *at <= ms).saturating_sub(1)].1
    }

    /// When a hand-over that is due at `ms` happens: after the stall in which it falls.
    #[must_use]
    pub fn after_stall(&self, ms: i64) -> i64 {
        self.stalls.iter().find(|span| span.from_ms <= ms && ms < span.to_ms).map_or(ms, |span| span.to_ms)
    }
}

/// Spans of a day: so many, each of a drawn length.
fn spans(draw: &mut Draw, per_day: Range, ms: Range, length_ms: i64) -> Vec<Span> {
    let n = draw.count(per_day, length_ms);
    let mut spans: Vec<Span> = (0..n)
        .map(|_| {
            let from_ms = draw.between(0, length_ms);
            Span { from_ms, to_ms: from_ms + draw.from(ms) as i64 }
        })
        .collect();
    spans.sort_unstable_by_key(|span| span.from_ms);
    spans
}

fn suspends(world: &World, seed: u64, length_ms: i64) -> Vec<SuspendAt> {
    let Some(suspend) = &world.suspend else { return Vec::new() };
    let mut draw = Draw::new(seed, "suspend");
    let n = draw.count(suspend.per_day, length_ms);
    let mut all: Vec<SuspendAt> = (0..n)
        .map(|_| SuspendAt {
            at_ms: draw.between(60_000, length_ms),
            sleep_ms: draw.from(suspend.sleep_s) as i64 * 1000,
            card_silent_ms: draw.from(suspend.card_silent_ms) as i64,
        })
        .collect();
    all.sort_unstable_by_key(|suspend| suspend.at_ms);
    all
}

/// Limits and foreign use of the machine and of each ancestor.
fn host(world: &World, seed: u64, length_ms: i64, suspends: &[SuspendAt]) -> (Vec<i64>, Vec<Curve>) {
    let host = &world.host;
    let mut draw = Draw::new(seed, "host");
    let desktop = draw.from(host.desktop_mib) as i64 * MIB;
    let mut changes = Vec::new();
    let mut taken = Vec::new();
    rhythm(&mut draw, host.working_hours_mib, length_ms, &mut changes);
    let room = host.foreign_most_mib as i64 * MIB - desktop - host.working_hours_mib.high as i64 * MIB;
    for programs in &host.programs {
        runs(seed, "host", programs, room, length_ms, &mut taken, &mut changes);
    }
    for (number, suspend) in suspends.iter().enumerate() {
        let Some(world) = &world.suspend else { continue };
        let jump = draw.from(world.jump_mib) as i64 * MIB;
        // What programs load again on resume, they give back within minutes.
        changes.push(Change { at_ms: suspend.at_ms, jump, slope: 0 });
        let back_ms = suspend.at_ms + 60_000 + 1000 * number as i64;
        changes.push(Change { at_ms: back_ms, jump: -jump, slope: 0 });
    }
    let mut limits = vec![(host.total_mib - host.kernel_reserve_mib) as i64 * MIB];
    let mut machine = Curve::new(desktop, changes);
    let mut ancestors = Vec::new();
    for (depth, group) in host.ancestors.iter().enumerate() {
        let purpose = format!("group {depth}");
        let base = Draw::new(seed, &purpose).from(group.siblings_mib) as i64 * MIB;
        let (mut changes, mut taken) = (Vec::new(), Vec::new());
        for programs in &group.siblings {
            runs(seed, &purpose, programs, group.limit_mib as i64 * MIB - base, length_ms, &mut taken, &mut changes);
        }
        let siblings = Curve::new(base, changes);
        machine = machine.plus(&siblings);
        limits.push(group.limit_mib as i64 * MIB);
        // What is in an inner group is in every outer one.
        ancestors.iter_mut().for_each(|outer: &mut Curve| *outer = outer.plus(&siblings));
        ancestors.push(siblings);
    }
    (limits, std::iter::once(machine).chain(ancestors).collect())
}

fn card_use(world: &World, seed: u64, card: usize, length_ms: i64) -> Curve {
    let purpose = format!("card {card}");
    let spec = &world.cards[card];
    let desktop = Draw::new(seed, &purpose).from(spec.desktop_mib) as i64 * MIB;
    let (mut changes, mut taken) = (Vec::new(), Vec::new());
    let room = spec.foreign_most_mib as i64 * MIB - desktop;
    for programs in &spec.programs {
        runs(seed, &purpose, programs, room, length_ms, &mut taken, &mut changes);
    }
    Curve::new(desktop, changes)
}

/// The desktop's more in working hours: in a few steps, so that most of the day is flat.
fn rhythm(draw: &mut Draw, more: Range, length_ms: i64, changes: &mut Vec<Change>) {
    const STEPS: i64 = 6;
    const SPREAD_MS: i64 = 40 * 60_000;
    const STEP_MS: i64 = 2000;
    let slope = draw.from(more) as i64 * MIB / STEPS / STEP_MS;
    for day in 0..=length_ms / (24 * HOUR_MS) {
        for (hour, sign) in [(WORKING_HOURS.0, 1), (WORKING_HOURS.1, -1)] {
            let begin_ms = (day * 24 + hour - FIRST_HOUR) * HOUR_MS;
            for _ in 0..STEPS {
                let at_ms = begin_ms + draw.between(0, SPREAD_MS);
                changes.push(Change { at_ms, jump: 0, slope: sign * slope });
                changes.push(Change { at_ms: at_ms + STEP_MS, jump: 0, slope: -sign * slope });
            }
        }
    }
}

/// The runs of one kind of program. One that would bring all of them over `room` does not come.
fn runs(
    seed: u64,
    place: &str,
    programs: &Programs,
    room: i64,
    length_ms: i64,
    taken: &mut Vec<(Span, i64)>,
    changes: &mut Vec<Change>,
) {
    let mut draw = Draw::new(seed, &format!("{place} {}", programs.name));
    for _ in 0..draw.count(programs.runs_per_day, length_ms) {
        let begin_ms = draw.between(0, length_ms);
        let growth = (draw.from(programs.growth_mib_per_s) as i64 * MIB / 1000).max(1);
        let up_ms = (draw.smallish(programs.size_mib) as i64 * MIB / growth).max(1);
        let hold_ms = draw.smallish(programs.hold_s) as i64 * 1000;
        let down_ms = draw.between(GOING_MS.0, GOING_MS.1);
        let size = growth * up_ms;
        let hour = (FIRST_HOUR + begin_ms / HOUR_MS) % 24;
        let off_duty = programs.working_hours_only && !(WORKING_HOURS.0..WORKING_HOURS.1).contains(&hour);
        let span = Span { from_ms: begin_ms, to_ms: begin_ms + up_ms + hold_ms + down_ms };
        let beside: i64 = taken
            .iter()
            .filter(|(other, _)| other.from_ms < span.to_ms && span.from_ms < other.to_ms)
            .map(|(_, bytes)| bytes)
            .sum();
        if off_duty || beside + size > room {
            continue;
        }
        taken.push((span, size));
        let top_ms = begin_ms + up_ms;
        let fall = size / down_ms;
        changes.push(Change { at_ms: begin_ms, jump: 0, slope: growth });
        changes.push(Change { at_ms: top_ms, jump: 0, slope: -growth });
        changes.push(Change { at_ms: top_ms + hold_ms, jump: 0, slope: -fall });
        changes.push(Change { at_ms: span.to_ms, jump: fall * down_ms - size, slope: fall });
    }
}

fn contention(world: &World, seed: u64, length_ms: i64) -> Vec<(i64, i64)> {
    let mut draw = Draw::new(seed, "contention");
    let disk = &world.disk;
    let seconds = Range { low: disk.contention_s.low * 1000, high: disk.contention_s.high * 1000 };
    let mut steps = vec![(0, 1000)];
    for span in spans(&mut draw, disk.contention_per_day, seconds, length_ms) {
        let last_ms = steps[steps.len() - 1].0;
        let from_ms = span.from_ms.max(last_ms + 1);
        steps.push((from_ms, draw.from(disk.left_permille) as i64));
        steps.push((span.to_ms.max(from_ms + 1000), 1000));
    }
    steps
}

fn stalls(world: &World, seed: u64, length_ms: i64) -> Vec<Span> {
    let mut draw = Draw::new(seed, "stalls");
    match draw.chance(world.disk.stalls_permille) {
        true => spans(&mut draw, world.disk.stalls_per_day, world.disk.stall_ms, length_ms),
        false => Vec::new(),
    }
}

fn sensor_faults(world: &World, seed: u64, length_ms: i64) -> Vec<SensorFault> {
    let mut draw = Draw::new(seed, "sensors");
    let sensors = &world.sensors;
    let accounts: Vec<Account> = world.facts().cards.iter().map(|card| Account::Vram(card.card)).collect();
    let mut all = Vec::new();
    let mut add = |kind: Fault, per_day: Range, ms: Range| {
        for span in spans(&mut draw, per_day, ms, length_ms) {
            let which = draw.from(Range { low: 0, high: accounts.len() as u64 }) as usize;
            let account = accounts.get(which).copied().unwrap_or(Account::Host);
            let fault = match kind {
                Fault::Lying(_) => Fault::Lying(draw.from(sensors.lie_mib) as i64 * MIB),
                Fault::Stale | Fault::Frozen => kind,
            };
            all.push(SensorFault { account, fault, span });
        }
    };
    add(Fault::Stale, sensors.stale_per_day, sensors.stale_ms);
    add(Fault::Frozen, sensors.frozen_per_day, sensors.frozen_ms);
    add(Fault::Lying(0), sensors.lying_per_day, sensors.lying_ms);
    all.sort_unstable_by_key(|fault| fault.span.from_ms);
    all
}
