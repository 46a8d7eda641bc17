//! A small thread pool for jobs of a few microseconds: threads spin briefly between jobs, then park.
//!
//! A decode step has about 200 parallel jobs; a general fork-join costs tens of microseconds each, as much as the work. Here
//! a job is one shared closure and a counter of parts; nothing is allocated per job. Parts write disjoint results, so which
//! thread takes which part never shows in them. The caller works too: a pool of n threads has n − 1 of its own.
//!
//! The caller waits for *parts*, not for threads: a thread that the system holds back delays nobody while it has claimed nothing.
//!
//! ```text
//!  thread:  spin on `parts` ──unclaimed part──► claim it, run it, `done` += 1 ──► spin
//!              └─ SPINS rounds without one ──► park on the condition variable ──notified──► spin
//! ```
#![allow(unsafe_code, reason = "a job borrows from its caller's stack while other threads run it")]

mod disjoint;
mod float_env;

pub(crate) use disjoint::Disjoint;
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Rounds of the spin loop before a thread parks: about 50 µs, longer than the serial gaps inside a step.
const SPINS: u32 = 2_000;

/// Elements below which a part of an element-by-element job costs less than handing it over (about a microsecond).
const MIN_PART_ELEMENTS: usize = 4_096;

/// What a job is: called with (part, thread), both from 0.
type Job<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// What the threads share.
struct Shared {
    /// Parts of the current job in the upper half, parts claimed so far in the lower.
    parts: AtomicU64,
    /// Parts that have ended.
    done: AtomicUsize,
    /// The current job. Written while no part is unclaimed or running, read only by holders of a claimed part.
    job: UnsafeCell<*const Job<'static>>,
    stop: AtomicBool,
    /// Threads that park or are about to; changed under `parking`.
    parked: AtomicUsize,
    parking: Mutex<()>,
    wake: Condvar,
    /// The first panic of the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: of the fields only `job` is not Sync by itself. It is written by `run` before `parts` is published, and read after
// a part was claimed; `run` neither returns nor writes again before each claimed part has ended. The pointee is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is dead between jobs.
unsafe impl Send for Shared {}

/// Ignores poisoning: what the mutexes here hold is valid at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn has_unclaimed(&self) -> bool {
        let parts = self.parts.load(Ordering::SeqCst);
        (parts & u64::from(u32::MAX)) < parts >> 32
    }

    /// Claims a part of the current job, if one is left.
    fn claim(&self) -> Option<usize> {
        let mut parts = self.parts.load(Ordering::Relaxed);
        loop {
            let claimed = parts & u64::from(u32::MAX);
            if claimed >= parts >> 32 {
                return None;
            }
            // Acquire: the job was written before the parts were published. If the job changed since the load, the claim
            // is one of the new job's; all that matters is that the part was unclaimed now.
            match self.parts.compare_exchange_weak(parts, parts + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(claimed as usize),
                Err(now) => parts = now,
            }
        }
    }

    /// Runs parts of the current job until none is unclaimed.
    fn take_parts(&self, thread: usize) {
        while let Some(part) = self.claim() {
            // SAFETY: the claimed part keeps the job in place and alive until it is counted as done, below.
            let job = unsafe { &**self.job.get() };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(part, thread))) {
                lock(&self.panic).get_or_insert(payload);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits until a part is unclaimed or the pool stops: by spinning, then parked.
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.has_unclaimed() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = lock(&self.parking);
        // Sequentially consistent with `run`: either this thread sees the new parts, or `run` sees it parked.
        self.parked.fetch_add(1, Ordering::SeqCst);
        while !self.has_unclaimed() && !self.stop.load(Ordering::SeqCst) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the threads that park, after `parts` or `stop` has changed.
    fn wake_all(&self) {
        if self.parked.load(Ordering::SeqCst) > 0 {
            // Whoever counted itself holds the lock until it really waits.
            drop(lock(&self.parking));
            self.wake.notify_all();
        }
    }
}

/// The threads of one backend.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool that computes on `n_threads` threads, the caller's among them. Where the system gives fewer, it has fewer.
    pub(crate) fn new(n_threads: usize) -> Self {
        float_env::make_default();
        let nothing: *const Job<'static> = &|_, _| {};
        let shared = Arc::new(Shared {
            parts: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            job: UnsafeCell::new(nothing),
            stop: AtomicBool::new(false),
            parked: AtomicUsize::new(0),
            parking: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let spawn = |thread: usize| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("kernels-{thread}"));
            builder.spawn(move || work(&shared, thread)).ok()
        };
        let threads = (1..n_threads).map_while(spawn).collect();
        Self { shared, threads }
    }

    /// Threads that compute, the caller's among them.
    pub(crate) fn n_threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `job(part, thread)` once for each part of `0..n_parts`, on all threads; returns when all have ended.
    ///
    /// A panic in a part is carried to the caller after the other parts have run; the pool stays usable.
    ///
    /// # Panics
    /// As the job does, and for more than 2³² − 1 parts.
    pub(crate) fn run(&mut self, n_parts: usize, job: &Job<'_>) {
        float_env::make_default();
        if n_parts <= 1 || self.threads.is_empty() {
            return (0..n_parts).for_each(|part| job(part, 0));
        }
        assert!(u32::try_from(n_parts).is_ok(), "{n_parts} parts");
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and the pointer is used by claimed parts alone, which all end before this
        // function does. No part is claimed or unclaimed now: the last job has ended, and `&mut self` keeps another out.
        unsafe { *shared.job.get() = std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        shared.done.store(0, Ordering::Relaxed);
        shared.parts.store((n_parts as u64) << 32, Ordering::SeqCst);
        shared.wake_all();
        shared.take_parts(0);
        let mut spins = 0;
        while shared.done.load(Ordering::Acquire) < n_parts {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        if let Some(payload) = lock(&shared.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Calls `job(row, thread)` for each of `n_rows` rows of `width` elements; few elements are not worth a second thread.
    pub(crate) fn run_rows(&mut self, n_rows: usize, width: usize, job: &Job<'_>) {
        let rows_per_part = MIN_PART_ELEMENTS.div_ceil(width.max(1));
        self.run(n_rows.div_ceil(rows_per_part), &|part, thread| {
            let rows = part * rows_per_part..((part + 1) * rows_per_part).min(n_rows);
            rows.for_each(|row| job(row, thread));
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for thread in self.threads.drain(..) {
            // A thread catches its jobs' panics, so it ends without one.
            let _ = thread.join();
        }
    }
}

/// The life of one own thread.
fn work(shared: &Shared, thread: usize) {
    float_env::make_default();
    while !shared.stop.load(Ordering::SeqCst) {
        shared.take_parts(thread);
        shared.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_part_runs_once_whatever_the_thread_count() {
        for n_threads in 1..=4 {
            let mut pool = Pool::new(n_threads);
            for n_parts in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..n_parts).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(n_parts, &|part, thread| {
                        assert!(thread < n_threads);
                        counts[part].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 50));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_stays_usable() {
        let mut pool = Pool::new(3);
        for _ in 0..20 {
            let done = AtomicUsize::new(0);
            let job = |part: usize, _| {
                assert_ne!(part, 5, "the part that fails");
                done.fetch_add(1, Ordering::Relaxed);
            };
            let result = catch_unwind(AssertUnwindSafe(|| pool.run(16, &job)));
            let message = result.expect_err("the panic is carried over");
            assert!(message.downcast_ref::<String>().is_some_and(|text| text.contains("the part that fails")));
            assert_eq!(done.load(Ordering::Relaxed), 15, "the other parts have run");
        }
    }

    #[test]
    fn parked_threads_wake_for_the_next_job() {
        let mut pool = Pool::new(3);
        pool.run(8, &|_, _| {});
        // Until all own threads park: the count says so, no clock is asked.
        while pool.shared.parked.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        let done = AtomicUsize::new(0);
        pool.run(8, &|_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 8);
    }
}
