//! The ledger while it runs: a book of debits, each one a guard that gives its bytes back when it is dropped.
//!
//! It is made for whoever takes memory (a session, a request's journal, a slab pool): a [`Debit`] is taken first and kept beside
//! the memory, so that the two end together, also when a task is cancelled half-way. A book never goes over its bound,
//! and there is no call to return bytes that one could forget.
//!
//! The counts are atomics and not cells behind a lock: a guard is dropped wherever its owner happens to be, and a drop
//! must not wait. They order nothing else, so relaxed is enough.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_config::units::Bytes;

use super::Object;

/// The debits of one account.
#[derive(Debug, Clone)]
pub struct Book {
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    bound: u64,
    used: AtomicU64,
    /// By the object's place in [`Object::ALL`]; together they are `used`.
    by_object: [AtomicU64; Object::ALL.len()],
}

impl Counts {
    fn take(&self, object: Object, bytes: u64) -> Result<(), Overdraft> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.bound);
        let before = self.used.fetch_update(Relaxed, Relaxed, fits).map_err(|used| Overdraft {
            object,
            asked: Bytes(bytes),
            left: Bytes(self.bound.saturating_sub(used)),
        })?;
        debug_assert!(before <= self.bound);
        self.by_object[object as usize].fetch_add(bytes, Relaxed);
        Ok(())
    }

    fn give_back(&self, object: Object, bytes: u64) {
        self.by_object[object as usize].fetch_sub(bytes, Relaxed);
        self.used.fetch_sub(bytes, Relaxed);
    }
}

impl Book {
    /// An empty book that holds at most `bound`.
    pub fn new(bound: Bytes) -> Book {
        let by_object = [const { AtomicU64::new(0) }; Object::ALL.len()];
        Book { counts: Arc::new(Counts { bound: bound.0, used: AtomicU64::new(0), by_object }) }
    }

    /// Takes bytes for an object.
    ///
    /// # Errors
    /// [`Overdraft`]: the book would go over its bound. Nothing was taken.
    pub fn debit(&self, object: Object, bytes: Bytes) -> Result<Debit, Overdraft> {
        self.counts.take(object, bytes.0)?;
        Ok(Debit { counts: Arc::clone(&self.counts), object, bytes: bytes.0 })
    }

    /// What it holds at most.
    pub fn bound(&self) -> Bytes {
        Bytes(self.counts.bound)
    }

    /// What all debits hold.
    pub fn used(&self) -> Bytes {
        Bytes(self.counts.used.load(Relaxed))
    }

    /// What is left.
    pub fn headroom(&self) -> Bytes {
        self.bound().saturating_sub(self.used())
    }

    /// What the debits of one object hold.
    pub fn held(&self, object: Object) -> Bytes {
        Bytes(self.counts.by_object[object as usize].load(Relaxed))
    }
}

/// Bytes taken from a book. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "the bytes go back as soon as this is dropped"]
pub struct Debit {
    counts: Arc<Counts>,
    object: Object,
    bytes: u64,
}

impl Debit {
    /// Whose they are.
    pub fn object(&self) -> Object {
        self.object
    }

    /// How many.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Takes more.
    ///
    /// # Errors
    /// [`Overdraft`]: the book would go over its bound. The debit is as it was.
    pub fn grow(&mut self, by: Bytes) -> Result<(), Overdraft> {
        self.counts.take(self.object, by.0)?;
        self.bytes += by.0; // at most the bound, as the sum of all debits is
        Ok(())
    }

    /// Gives back part of it; all of it at most.
    pub fn shrink(&mut self, by: Bytes) {
        let by = by.0.min(self.bytes);
        self.bytes -= by;
        self.counts.give_back(self.object, by);
    }

    /// Hands part of it, all of it at most, to another owner. The book does not change.
    pub fn split(&mut self, bytes: Bytes) -> Debit {
        let bytes = bytes.0.min(self.bytes);
        self.bytes -= bytes;
        Debit { counts: Arc::clone(&self.counts), object: self.object, bytes }
    }
}

impl Drop for Debit {
    fn drop(&mut self) {
        self.counts.give_back(self.object, self.bytes);
    }
}

/// Why bytes were not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdraft {
    /// For whom.
    pub object: Object,
    /// How many.
    pub asked: Bytes,
    /// What there was.
    pub left: Bytes,
}

impl fmt::Display for Overdraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} asks for {}, but only {} are left under the line", self.object.name(), self.asked, self.left)
    }
}

impl std::error::Error for Overdraft {}
