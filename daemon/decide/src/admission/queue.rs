//! The line of those who wait: fair between clients, in order of arrival within each.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng 1996) on a virtual clock that counts cost, not time: a client's next
//! request starts, virtually, where its last one ended, but never before the clock at its arrival; the smallest virtual
//! start is served first, and the clock follows it. A client that was away therefore saves nothing up, and one that sends a
//! hundred requests pushes only its own ones back.
//!
//! The bound, which `tests/admission_fair.rs` checks: between the arrival of a request and its own start, the requests that
//! are started cost together at most
//!
//! ```text
//!   N × own + (N − 1) × quantum        N: the client, and the others of whom a request is started meanwhile
//!                                      own: the last request of the client that was started before, and those of its own
//!                                           that are ahead of it in line: what it would wait for alone
//!                                      quantum: the costliest single one of the others' requests that are started
//! ```
//!
//! Each other client gets at most as much as this one waits for by itself, and one request more. This holds as long as no
//! request is passed over for its session or its client's share; those that are keep their place. (At start the clock is at
//! most `own` before the request's virtual start; the virtual starts of one client are its costs apart; so of each other one
//! all but the last fit in between.)

use std::collections::{BTreeMap, VecDeque};

use plimsoll_config::limits;

use super::{ClientId, Facts, RequestId};

/// One who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    facts: Facts,
    cost: u64,
    /// The virtual clock at its arrival.
    arrived: u64,
    /// Its number in order of arrival: who came first is first among equals.
    number: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Client {
    /// The virtual end of the last of its requests that was started.
    end: u64,
    line: VecDeque<Entry>,
}

/// The line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Queue {
    clock: u64,
    clients: BTreeMap<ClientId, Client>,
    n_arrived: u64,
}

impl Queue {
    pub(super) fn push(&mut self, facts: Facts, cost: u64) {
        self.n_arrived += 1;
        let entry = Entry { facts, cost, arrived: self.clock, number: self.n_arrived };
        self.clients.entry(facts.client).or_default().line.push_back(entry);
    }

    /// The first one that may go.
    pub(super) fn first(&self, may_go: impl Fn(&Facts) -> bool) -> Option<Facts> {
        self.in_order().find(may_go)
    }

    /// Takes one who waits out of the line, and moves the clock to its virtual start.
    pub(super) fn take(&mut self, request: RequestId) {
        let found = self.ordered().into_iter().find(|(_, entry)| entry.facts.request == request);
        let Some((start, entry)) = found else { return };
        self.clock = self.clock.max(start);
        if let Some(client) = self.clients.get_mut(&entry.facts.client) {
            client.line.retain(|other| other.number != entry.number);
            client.end = client.end.max(entry.arrived).saturating_add(entry.cost);
        }
        self.forget();
    }

    /// Forgets one who waits; false if it does not.
    pub(super) fn remove(&mut self, request: RequestId) -> bool {
        let n_before = self.len();
        self.keep(|facts| facts.request != request);
        self.len() < n_before
    }

    /// Keeps those for which `is_kept` is true.
    ///
    /// Who stood behind one that left has not been in line for longer than the clock says: else a place could be kept by
    /// requests that are taken back.
    pub(super) fn keep(&mut self, mut is_kept: impl FnMut(&Facts) -> bool) {
        for client in self.clients.values_mut() {
            let n_before = client.line.len();
            client.line.retain(|entry| is_kept(&entry.facts));
            if client.line.len() < n_before {
                client.line.iter_mut().for_each(|entry| entry.arrived = entry.arrived.max(self.clock));
            }
        }
        self.forget();
    }

    /// All who wait, the next one first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Facts> + use<> {
        self.ordered().into_iter().map(|(_, entry)| entry.facts)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Facts> {
        self.clients.values().flat_map(|client| &client.line).map(|entry| &entry.facts)
    }

    pub(super) fn len(&self) -> usize {
        self.clients.values().map(|client| client.line.len()).sum()
    }

    pub(super) fn n_clients(&self) -> usize {
        self.clients.len()
    }

    /// Nobody is in the house: who used it much before owes nobody anything.
    pub(super) fn rest(&mut self) {
        self.clients.clear();
    }

    /// Each one with its virtual start, in that order.
    fn ordered(&self) -> Vec<(u64, Entry)> {
        let mut all = Vec::new();
        for client in self.clients.values() {
            let mut end = client.end;
            for entry in &client.line {
                let start = end.max(entry.arrived);
                end = start.saturating_add(entry.cost);
                all.push((start, *entry));
            }
        }
        all.sort_by_key(|(start, entry)| (*start, entry.number));
        all
    }

    /// Drops clients about whom nothing need be known, and beyond the bound those who are ahead of the clock the least.
    fn forget(&mut self) {
        let clock = self.clock;
        self.clients.retain(|_, client| !client.line.is_empty() || client.end > clock);
        while self.clients.len() > limits::MAX_REMEMBERED_CLIENTS {
            let idle = self.clients.iter().filter(|(_, client)| client.line.is_empty());
            let Some(least) = idle.min_by_key(|(_, client)| client.end).map(|(id, _)| *id) else { return };
            self.clients.remove(&least);
        }
    }
}
