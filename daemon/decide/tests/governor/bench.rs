//! A machine of one host account and perhaps one card, and a worker that obeys, for the tests of the governor.

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::{
    Answer, CardReading, DiskReading, Governor, HostReading, Input, Lever, LeverReading, Mode, Move, Note, Order,
    Output, Sample, Settings, Timed, WorkerReading,
};
use plimsoll_decide::ledger::AccountId;

pub(crate) const GPU: AccountId = AccountId::Vram(0);

pub(crate) fn gib(n: u64) -> Bytes {
    Bytes::from_gib(n)
}

pub(crate) fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

/// Use of others as corners of a line: (ms, MiB), straight between them.
pub(crate) type Corners = Vec<(u64, u64)>;

/// How well the worker and the sensors behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// From an order to its answer, ms; `None`: never.
    pub(crate) answers_in_ms: Option<u64>,
    /// Share of what is promised that is really freed, thousandths.
    pub(crate) frees_permille: u64,
    /// Within these times nothing is read: the last readings stand.
    pub(crate) blind: Option<(u64, u64)>,
    /// Within these times counters stand still while their time goes on.
    pub(crate) stuck: Option<(u64, u64)>,
}

impl Default for Manners {
    fn default() -> Manners {
        Manners { answers_in_ms: Some(100), frees_permille: 1000, blind: None, stuck: None }
    }
}

pub(crate) struct Bench {
    pub(crate) governor: Governor,
    pub(crate) now: Millis,
    pub(crate) limit: Bytes,
    pub(crate) margin: Bytes,
    pub(crate) card: Bytes,
    pub(crate) foreign: Corners,
    pub(crate) foreign_card: Corners,
    pub(crate) levers: Vec<LeverReading>,
    pub(crate) manners: Manners,
    pub(crate) reads_per_token: Bytes,
    pub(crate) swap_used: Bytes,
    /// Bytes that moves have failed to free.
    held_back: u64,
    under_way: Vec<(Millis, Move)>,
    last_sample: Sample,
    /// Everything that was noted, with its time.
    pub(crate) notes: Vec<(Millis, Note)>,
    pub(crate) orders: Vec<(Millis, Order)>,
    /// Least bytes that were free on the host, truly.
    pub(crate) lowest_free: i64,
}

pub(crate) fn settings(mode: Mode) -> Settings {
    Settings {
        mode,
        is_benchmark: false,
        vram_line_free: mib(512),
        vram_prompt: mib(128),
        reads_per_token: Some(mib(20)),
    }
}

pub(crate) fn lever(lever: Lever, account: AccountId, now: Bytes, floor: Bytes) -> LeverReading {
    LeverReading { lever, account, now, held: now, floor, home: now, ceiling: now.saturating_add(gib(4)) }
}

impl Bench {
    /// 62 GiB with a line at 55 and 45 of them used by levers that stand at home.
    pub(crate) fn new(mode: Mode) -> Bench {
        let mut governor = Governor::new(settings(mode));
        governor.step(Millis(0), &Input::WorkerReady);
        Bench {
            governor,
            now: Millis(0),
            limit: gib(62),
            margin: gib(7),
            card: gib(12),
            foreign: vec![(0, 8 << 10)],
            foreign_card: vec![(0, 2 << 10)],
            levers: vec![
                lever(Lever::PrefixCache, AccountId::Host, gib(1), Bytes::ZERO),
                lever(Lever::ResidentBudget, AccountId::Host, gib(40), gib(4)),
                lever(Lever::KvCapacity, AccountId::Host, gib(4), gib(1)),
                lever(Lever::ExpertCache, GPU, gib(8), mib(256)),
            ],
            manners: Manners::default(),
            reads_per_token: mib(10),
            swap_used: Bytes::ZERO,
            held_back: 0,
            under_way: Vec::new(),
            last_sample: Sample::default(),
            notes: Vec::new(),
            orders: Vec::new(),
            lowest_free: i64::MAX,
        }
    }

    /// Runs until a point in time.
    pub(crate) fn run(&mut self, until_ms: u64) {
        while self.now.0 < until_ms {
            let answered: Vec<Move> = self.due().collect();
            self.under_way.retain(|(at, _)| *at > self.now);
            for moved in answered {
                let bytes = self.obey(moved);
                let out = self.governor.step(self.now, &Input::Answered(Answer { id: moved.id, bytes }));
                self.carry_out(&out);
            }
            let sample = self.sample();
            let out = self.governor.step(self.now, &Input::Sample(sample));
            self.carry_out(&out);
            let next_answer = self.under_way.iter().map(|(at, _)| *at).min().unwrap_or(Millis(u64::MAX));
            assert!(out.next_sample > self.now, "the governor must let time pass");
            self.now = out.next_sample.min(next_answer).max(Millis(self.now.0 + 1));
        }
    }

    fn due(&self) -> impl Iterator<Item = Move> + '_ {
        self.under_way.iter().filter(|(at, _)| *at <= self.now).map(|(_, moved)| *moved)
    }

    pub(crate) fn carry_out(&mut self, out: &Output) {
        self.notes.extend(out.notes.iter().map(|note| (self.now, *note)));
        for order in &out.orders {
            self.orders.push((self.now, *order));
            if let (Order::Move(moved), Some(ms)) = (order, self.manners.answers_in_ms) {
                self.under_way.retain(|(_, other)| other.lever != moved.lever);
                self.under_way.push((Millis(self.now.0 + ms), *moved));
            }
        }
    }

    /// Moves a lever; says what was promised, whatever was freed.
    fn obey(&mut self, moved: Move) -> Bytes {
        let lever = self.levers.iter_mut().find(|lever| lever.lever == moved.lever && lever.account == moved.account);
        let lever = lever.expect("only levers that exist are moved");
        let said = lever.now.0.abs_diff(moved.to.0);
        if moved.to < lever.now && moved.account == AccountId::Host {
            self.held_back += said * (1000 - self.manners.frees_permille) / 1000;
        }
        (lever.now, lever.held) = (moved.to, moved.to);
        Bytes(said)
    }

    pub(crate) fn position(&self, lever: Lever) -> Bytes {
        self.levers.iter().find(|reading| reading.lever == lever).expect("it exists").now
    }

    pub(crate) fn free(&self) -> i64 {
        let held: u64 =
            self.levers.iter().filter(|lever| lever.account == AccountId::Host).map(|lever| lever.now.0).sum();
        self.limit.0 as i64 - held as i64 - self.held_back as i64 - at(&self.foreign, self.now) as i64
    }

    pub(crate) fn free_card(&self) -> i64 {
        let held: u64 = self.levers.iter().filter(|lever| lever.account == GPU).map(|lever| lever.now.0).sum();
        self.card.0 as i64 - held as i64 - at(&self.foreign_card, self.now) as i64
    }

    fn sample(&mut self) -> Sample {
        self.lowest_free = self.lowest_free.min(self.free());
        let is_within = |span: Option<(u64, u64)>| span.is_some_and(|(from, to)| (from..to).contains(&self.now.0));
        if is_within(self.manners.blind) {
            return self.last_sample.clone();
        }
        let mut sample = self.fresh();
        if is_within(self.manners.stuck) {
            let host = |sample: &Sample| sample.host.as_ref().map(|host| host.value);
            if let (Some(value), Some(host)) = (host(&self.last_sample), sample.host.as_mut()) {
                host.value = value;
            }
        }
        self.last_sample = sample.clone();
        sample
    }

    /// What is true now.
    pub(crate) fn fresh(&self) -> Sample {
        let free = self.free();
        // A page or two always moves: only a stuck counter stands still to the byte.
        let wobble = (self.now.0 % 7) as i64 * 4096;
        let host = HostReading {
            free: Bytes((free - wobble).max(0) as u64),
            room: free - wobble - self.margin.0 as i64,
            swap_used: self.swap_used,
            ..HostReading::default()
        };
        Sample {
            host: Some(Timed { at: self.now, value: host }),
            cards: vec![Timed {
                at: self.now,
                value: CardReading { index: 0, free: Bytes(self.free_card().max(0) as u64) },
            }],
            disk: Some(Timed { at: self.now, value: DiskReading { per_token: self.reads_per_token } }),
            worker: Some(Timed {
                at: self.now,
                value: WorkerReading { levers: self.levers.clone(), ..WorkerReading::default() },
            }),
        }
    }

    /// The moves that were ordered.
    pub(crate) fn moves(&self) -> impl Iterator<Item = (Millis, Move)> + '_ {
        self.orders.iter().filter_map(|(at, order)| match order {
            Order::Move(moved) => Some((*at, *moved)),
            Order::PauseAdmission | Order::ResumeAdmission | Order::Restart { .. } => None,
        })
    }

    /// What was noted, as text.
    pub(crate) fn story(&self) -> String {
        self.notes.iter().map(|(at, note)| format!("{at}: {note}\n")).collect()
    }
}

/// Bytes at a time on a line with corners.
fn at(corners: &Corners, now: Millis) -> u64 {
    let after = corners.iter().position(|(ms, _)| *ms > now.0).unwrap_or(corners.len());
    let (from_ms, from_mib) = corners[after.max(1) - 1];
    match corners.get(after) {
        Some((to_ms, to_mib)) if after > 0 => {
            let span = (to_ms - from_ms) as i128;
            let bytes = |mib: u64| i128::from(mib << 20);
            let way = (bytes(*to_mib) - bytes(from_mib)) * i128::from(now.0 - from_ms) / span;
            (bytes(from_mib) + way) as u64
        }
        Some(_) | None => from_mib << 20,
    }
}
