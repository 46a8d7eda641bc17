//! Whose step killed a worker: suspects run alone until they are cleared or convicted.
//!
//! A death counts against the requests of the step that died, and only if its class may come from a request
//! ([`DeathClass::accuses_requests`](crate::lifecycle::death::DeathClass::accuses_requests)). One death of a common step
//! proves nothing against any of them. So its requests run alone, one at a time, on the next worker, each until it is past
//! the place where the step died. Who comes past it is cleared; a worker that dies twice with one request alone at one place
//! died of that request. Nobody is refused for a death in which others were in the step.
//!
//! ```text
//!             a common step died          past the place, alone                     a common step died again, 3rd time
//!   innocent ────────────────────► suspect ────────────────────► cleared ──► … ───► suspect that runs alone to its end
//!                                     │ died alone: twice at one place, or 4 times
//!                                     └──► convicted: refused, kept for replay
//! ```
//!
//! [`Admission`](crate::admission::Admission) owns one [`Suspects`] and orders the runs.

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::Tokens;

use crate::admission::{DenyReason, RequestId};

/// A request that is refused because workers died of it. The daemon tells its client, and keeps it for replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convicted {
    /// Which one.
    pub request: RequestId,
    /// Where in it the last worker died, in tokens from its beginning.
    pub position: Tokens,
    /// How many workers died with it alone.
    pub n_deaths: u32,
}

impl Convicted {
    /// What its client is told.
    pub fn reason(&self) -> DenyReason {
        DenyReason::Poisoned { n_deaths: self.n_deaths, position: self.position }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Suspect {
    /// Where the step died.
    position: Tokens,
    is_cleared: bool,
    /// Common steps that died with it.
    n_suspicions: u32,
    n_lone_deaths: u32,
    /// Where the last lone death was, and how many in a row were there.
    last_lone: Option<(Tokens, u32)>,
}

/// The requests that were in a step that died, as long as they are in the house.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspects {
    suspects: BTreeMap<RequestId, Suspect>,
}

impl Suspects {
    /// A step died with these requests, each at its position. Returns the one that is convicted by that; its owner ends it
    /// and forgets it here.
    pub fn step_died(&mut self, step: &[(RequestId, Tokens)]) -> Option<Convicted> {
        match step {
            [(request, position)] => self.died_alone(*request, *position),
            several => {
                for (request, position) in several {
                    let suspect = self.suspects.entry(*request).or_default();
                    suspect.position = *position;
                    suspect.is_cleared = false;
                    suspect.n_suspicions += 1;
                }
                None
            }
        }
    }

    fn died_alone(&mut self, request: RequestId, position: Tokens) -> Option<Convicted> {
        let suspect = self.suspects.entry(request).or_default();
        let n_here = match suspect.last_lone {
            Some((place, n_here)) if place == position => n_here + 1,
            Some(_) | None => 1,
        };
        suspect.position = suspect.position.max(position);
        suspect.is_cleared = false;
        suspect.n_lone_deaths += 1;
        suspect.last_lone = Some((position, n_here));
        let n_deaths = suspect.n_lone_deaths;
        let is_convicted = n_here >= limits::LONE_DEATHS_AT_ONE_PLACE || n_deaths >= limits::MAX_LONE_DEATHS;
        is_convicted.then_some(Convicted { request, position, n_deaths })
    }

    /// A request came this far. One that runs alone is cleared by coming past the place where its step died, unless it was
    /// in too many of them.
    pub fn came_to(&mut self, request: RequestId, position: Tokens) {
        if let Some(suspect) = self.suspects.get_mut(&request)
            && position > suspect.position
            && suspect.n_suspicions < limits::MAX_SUSPICIONS
        {
            suspect.is_cleared = true;
        }
    }

    /// The suspect that runs alone now, or next: the oldest that is not cleared.
    pub fn on_trial(&self) -> Option<RequestId> {
        self.suspects.iter().find(|(_, suspect)| !suspect.is_cleared).map(|(request, _)| *request)
    }

    /// The request has ended.
    pub fn forget(&mut self, request: RequestId) {
        self.suspects.remove(&request);
    }

    /// Requests that are not cleared.
    pub fn n_suspects(&self) -> usize {
        self.suspects.values().filter(|suspect| !suspect.is_cleared).count()
    }
}
