//! What holds for the release wait in any world: one in which memory comes back when it likes, others take and give as they
//! like, and the free counter may stand still as long as it likes.

mod cards;

use std::collections::BTreeMap;

use cards::{gpu, mib, process};
use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::gpu::{Blindness, GpuMemory, GpuReading, Sight};
use plimsoll_decide::release::{HostReading, Leaver, Reading, Release, Step};
use proptest::prelude::*;

const TOTAL_MIB: u64 = 12_282;

/// What happens between two looks.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// The worker gives this much back.
    Return { mib: u64 },
    /// Somebody holds this much now, if it is there.
    Hold { who: usize, mib: u64 },
    /// The driver does not answer.
    Silence,
    /// The worker's process leaves the lists.
    Unlist,
    /// Nothing.
    Rest,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (100..6_000u64).prop_map(|mib| Op::Return { mib }),
        3 => (0..3usize, 0..6_000u64).prop_map(|(who, mib)| Op::Hold { who, mib }),
        1 => Just(Op::Silence),
        2 => Just(Op::Unlist),
        2 => Just(Op::Rest),
    ]
}

/// The card as it is, all in MiB.
struct World {
    ours: u64,
    others: [u64; 3],
    is_listed: bool,
    is_silent: bool,
    /// What the counter shows while it stands still.
    frozen_free: Option<u64>,
}

impl World {
    fn free(&self) -> u64 {
        TOTAL_MIB - self.ours - self.others.iter().sum::<u64>()
    }

    fn run(&mut self, op: Op) {
        self.is_silent = false;
        match op {
            Op::Return { mib } => self.ours = self.ours.saturating_sub(mib),
            Op::Hold { who, mib } => {
                let most = self.others[who] + self.free();
                self.others[who] = mib.min(most);
            }
            Op::Silence => self.is_silent = true,
            Op::Unlist => self.is_listed = false,
            Op::Rest => {}
        }
    }

    fn shown_free(&self) -> u64 {
        self.frozen_free.unwrap_or_else(|| self.free())
    }

    fn reading(&self, at: Millis) -> Reading {
        let mut compute: Vec<_> =
            (0..3).filter(|i| self.others[*i] > 0).map(|i| process(800 + i as u32, "other", self.others[i])).collect();
        if self.is_listed {
            compute.push(process(4410, "plimsoll-worker", self.ours));
        }
        let free = mib(self.shown_free());
        let memory = GpuMemory {
            total: mib(TOTAL_MIB),
            free,
            driver_reserved: None,
            compute,
            graphics: vec![],
            blocked: vec![],
        };
        let sight = match self.is_silent {
            true => Sight::Blind(Blindness::Silent { waited: Millis(2_000) }),
            false => Sight::Seen(memory),
        };
        let host = HostReading { at, available: Bytes::ZERO, foreign: None };
        Reading { gpus: vec![GpuReading { gpu: gpu(0), at, sight }], host, process: None }
    }
}

fn begin(held_mib: u64, others: [u64; 3]) -> (World, Release) {
    let world = World { ours: held_mib, others, is_listed: true, is_silent: false, frozen_free: None };
    let leaver = Leaver { pid: 4410, start_ticks: 44_100, vram: BTreeMap::new(), host: None };
    let release = Release::new(leaver, &world.reading(Millis(0)), Millis(0), limits::RELEASE_TIMEOUT);
    (world, release)
}

fn any_others() -> impl Strategy<Value = [u64; 3]> {
    prop::array::uniform3(0..2_000u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn never_released_without_departure_nor_while_listed_nor_while_most_is_held(
        held_mib in 0..6_000u64,
        others in any_others(),
        frozen_looks in 0..12usize,
        ops in prop::collection::vec(any_op(), 1..40),
    ) {
        let (mut world, mut release) = begin(held_mib, others);
        let free_before = world.free();
        let (mut has_departed, mut now) = (false, Millis(0));
        for (i, op) in ops.into_iter().enumerate() {
            world.run(op);
            world.frozen_free = (i < frozen_looks).then_some(free_before);
            now = now.saturating_add(limits::RELEASE_POLL);
            let reading = world.reading(now);
            if !world.is_silent {
                has_departed |= world.shown_free().abs_diff(free_before) >= limits::DEPARTURE_MIN.mib_rounded_down();
            }
            match release.step(now, &reading) {
                Step::Released(released) => {
                    prop_assert!(!world.is_listed && !world.is_silent || released.latency < now);
                    prop_assert!(has_departed || held_mib < 16, "{} MiB, nothing moved", held_mib);
                    let most_is_back = world.ours * 4 <= held_mib + 4;
                    prop_assert!(most_is_back || held_mib < 16, "{} of {} MiB are still held", world.ours, held_mib);
                }
                Step::Waiting { progress, look_at } => {
                    prop_assert!(progress.contains("GPU 0: "), "{}", progress);
                    prop_assert!(look_at > now && now < limits::RELEASE_TIMEOUT);
                }
                Step::TimedOut { missing, words } => {
                    prop_assert!(now >= limits::RELEASE_TIMEOUT && missing.len() == 1 && words.ends_with('\n'));
                }
            }
        }
    }

    #[test]
    fn what_came_back_is_noticed_at_the_first_look_that_shows_it(
        held_mib in 16..6_000u64,
        others in any_others(),
        frozen_looks in 0..90usize,
        ops in prop::collection::vec(any_op(), 0..40),
    ) {
        let (mut world, mut release) = begin(held_mib, others);
        let free_before = world.free();
        let mut now = Millis(0);
        world.frozen_free = Some(free_before);
        for op in ops.into_iter().cycle().take(frozen_looks) {
            world.run(op);
            now = now.saturating_add(limits::RELEASE_POLL);
            release.step(now, &world.reading(now));
        }
        world.run(Op::Return { mib: held_mib });
        world.run(Op::Unlist);
        world.frozen_free = None;
        now = now.saturating_add(limits::RELEASE_POLL);
        // A counter that stands where it stood, by chance, has not moved.
        prop_assume!(world.free().abs_diff(free_before) >= limits::DEPARTURE_MIN.mib_rounded_down());
        let step = release.step(now, &world.reading(now));
        prop_assert!(matches!(step, Step::Released(_)), "{:?}", step);
    }

    #[test]
    fn a_wait_ends_whatever_the_driver_says(ops in prop::collection::vec(any_op(), 0..40), others in any_others()) {
        let (mut world, mut release) = begin(5_000, others);
        for (i, op) in ops.into_iter().enumerate() {
            world.run(op);
            release.step(Millis(i as u64), &world.reading(Millis(i as u64)));
        }
        let step = release.step(limits::RELEASE_TIMEOUT, &world.reading(limits::RELEASE_TIMEOUT));
        let has_ended = matches!(step, Step::Released(_) | Step::TimedOut { .. });
        prop_assert!(has_ended, "{:?}", step);
    }
}
