//! The queue and journal that the simulator's own policies share: first come, first served, suspects alone.

use super::policy::{Facts, Order, Why};
use super::sight::{Exit, Generation, Happening, Offer, RequestId, Running, Sight};
use plimsoll_config::units::{Bytes, Millis};

/// No progress for this long with requests in the worker is a hang.
pub(super) const HANG: Millis = Millis(10_000);

#[derive(Debug, Clone, Copy)]
struct Entry {
    offer: Offer,
    position: u32,
    is_running: bool,
    /// Where it was when a worker died of signal 11 with it.
    died_at: Option<u32>,
}

/// Open requests, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Desk {
    entries: Vec<Entry>,
    /// What ran at the last look, and since when each has stood where it stands.
    seen: Vec<(Running, Millis)>,
}

impl Desk {
    /// Takes note of what happened; orders that follow by themselves are added.
    pub fn note(&mut self, sight: &Sight, orders: &mut Vec<Order>) {
        for running in &sight.running {
            if let Some(entry) = self.entries.iter_mut().find(|entry| entry.offer.request == running.request) {
                entry.position = running.position;
            }
        }
        for happening in &sight.happened {
            match happening {
                Happening::Offered(offer) => {
                    self.entries.push(Entry { offer: *offer, position: 0, is_running: false, died_at: None });
                }
                Happening::Finished(request) => self.drop_entry(*request),
                Happening::Cancelled(request) => {
                    orders.push(Order::Cancel { request: *request });
                    self.drop_entry(*request);
                }
                Happening::NoRoom(request) => {
                    self.entries.iter_mut().filter(|e| e.offer.request == *request).for_each(|e| e.is_running = false);
                }
                Happening::Exited(exit) => self.exited(exit, orders),
                Happening::Spawned(_) | Happening::Ready(_) | Happening::Lever(_) => {}
            }
        }
    }

    fn drop_entry(&mut self, request: RequestId) {
        self.entries.retain(|entry| entry.offer.request != request);
    }

    fn exited(&mut self, exit: &Exit, orders: &mut Vec<Order>) {
        let is_alone = exit.running.len() == 1;
        for running in &exit.running {
            let Some(entry) = self.entries.iter_mut().find(|entry| entry.offer.request == running.request) else {
                continue;
            };
            entry.position = running.position;
            if exit.signal == Some(11) {
                // Twice at the same token, the second time alone: it is the request.
                if is_alone && entry.died_at == Some(running.position) {
                    orders.push(Order::Refuse { request: running.request, why: Why::Poison });
                    entry.position = u32::MAX;
                }
                entry.died_at = Some(running.position);
            }
        }
        self.entries.retain(|entry| entry.position != u32::MAX);
        self.entries.iter_mut().for_each(|entry| entry.is_running = false);
    }

    /// Forgets the requests that were in a worker: without a journal they died with it.
    pub fn forget(&mut self, exit: &Exit) {
        self.entries.retain(|entry| !exit.running.iter().any(|running| running.request == entry.offer.request));
    }

    /// Ends everything that waits.
    pub fn refuse_all(&mut self, orders: &mut Vec<Order>) {
        for entry in self.entries.iter().filter(|entry| !entry.is_running) {
            orders.push(Order::Refuse { request: entry.offer.request, why: Why::NoWorker });
        }
        self.entries.retain(|entry| entry.is_running);
    }

    /// Whether somebody waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.entries.iter().any(|entry| !entry.is_running)
    }

    /// Submits what there is room for, in order; a suspect runs alone.
    pub fn submit(&mut self, facts: &Facts, worker: Generation, capacity: Option<Bytes>, orders: &mut Vec<Order>) {
        let kv = |offer: &Offer| u64::from(offer.prompt_tokens + offer.max_tokens) * facts.kv_per_token.0;
        let mut held: Vec<Entry> = self.entries.iter().filter(|entry| entry.is_running).copied().collect();
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_running) {
            let used: u64 = held.iter().map(|other| kv(&other.offer)).sum();
            let fits = capacity.is_none_or(|capacity| used + kv(&entry.offer) <= capacity.0);
            let is_suspect = |entry: &Entry| entry.died_at.is_some();
            let must_wait = held.iter().any(is_suspect) || (is_suspect(entry) && !held.is_empty());
            if held.len() >= facts.max_sessions as usize || !fits || must_wait {
                return;
            }
            orders.push(Order::Submit { worker, request: entry.offer.request, from_position: entry.position });
            entry.is_running = true;
            held.push(*entry);
        }
    }

    /// Whether a request in the worker has come no further for `limit`. They share the speed: one that stands means that all do.
    pub fn hangs(&mut self, now: Millis, sight: &Sight, limit: Millis) -> bool {
        let before = std::mem::take(&mut self.seen);
        let since = |running: &Running| before.iter().find(|(other, _)| other == running).map_or(now, |(_, at)| *at);
        self.seen = sight.running.iter().map(|running| (*running, since(running))).collect();
        self.seen.iter().any(|(_, at)| now.since(*at) >= limit)
    }
}
