//! One buffer, written by the parts of a job at places that never overlap.
#![allow(unsafe_code, reason = "the borrow checker cannot see that parts write disjoint ranges")]

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice shared by the parts of one job.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a part reaches the elements only through `range`, whose callers promise that ranges never overlap; so sharing the
// handle gives each thread what a `&mut [T]` of its own would.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice over for the length of a job.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// The elements of `range`, for one part alone.
    ///
    /// # Safety
    /// While the returned slice lives, no other part may hold a range that overlaps it.
    ///
    /// # Panics
    /// If the range leaves the slice.
    #[allow(clippy::mut_from_ref, reason = "that is what the type is for; see Safety")]
    pub(crate) unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the borrowed slice by the assertion; alone there by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
