//! One timeline: token ids, their K and V, and how the next id is chosen.

use crate::sampler::{self, Params, SampleError};
use plimsoll_kernels::backend::Backend;

/// A session of an [`Engine`](crate::Engine), made by [`Engine::session`](crate::Engine::session).
///
/// Its ids are the prompt and what was chosen since. The first [`n_cached`](Session::n_cached) of them have K and V; the
/// rest are pending and are computed by [`Engine::forward`](crate::Engine::forward), in any portions: the bits of K, V and
/// logits do not depend on how.
pub struct Session<B: Backend> {
    ids: Vec<u32>,
    pub(crate) n_cached: usize,
    pub(crate) kv: B::Kv,
    params: Params,
}

impl<B: Backend> Session<B> {
    pub(crate) fn new(kv: B::Kv, params: Params) -> Self {
        Self { ids: Vec::new(), n_cached: 0, kv, params }
    }

    /// All ids of the timeline.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Ids that have K and V.
    pub fn n_cached(&self) -> usize {
        self.n_cached
    }

    /// Ids that have none yet.
    pub fn pending(&self) -> &[u32] {
        &self.ids[self.n_cached..]
    }

    /// Puts ids at the end of the timeline.
    pub fn extend(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
    }

    /// The id that follows, from the logits of the last one. It is not added: [`extend`](Session::extend) does that.
    ///
    /// # Errors
    /// [`SampleError`], by name.
    pub fn choose(&self, logits: &[f32]) -> Result<u32, SampleError> {
        let position = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        sampler::sample(logits, &self.params, &self.ids, position)
    }
}
