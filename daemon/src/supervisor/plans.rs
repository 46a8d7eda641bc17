//! The plans that were made, by number: the same knobs have the same one. The lifecycle asks for an earlier plan by it.

use std::collections::VecDeque;

use plimsoll_config::limits::MAX_NUMBERED_PLANS;
use plimsoll_config::units::Tokens;
use plimsoll_decide::lifecycle::PlanId;
use plimsoll_decide::plan::Knobs;

/// The newest plans. An old one that is made again gets a new number, which costs nothing but one try.
#[derive(Debug, Default)]
pub(super) struct Plans {
    known: VecDeque<(PlanId, Knobs)>,
    n_plans: u64,
    promised: Option<Tokens>,
}

impl Plans {
    /// The number of a plan.
    pub(super) fn id_of(&mut self, knobs: Knobs) -> PlanId {
        self.promised.get_or_insert(knobs.n_ctx);
        if let Some((plan, _)) = self.known.iter().find(|(_, known)| *known == knobs) {
            return *plan;
        }
        if self.known.len() >= MAX_NUMBERED_PLANS {
            self.known.pop_front();
        }
        self.n_plans += 1;
        let plan = PlanId(self.n_plans);
        self.known.push_back((plan, knobs));
        plan
    }

    /// The knobs of a plan.
    pub(super) fn get(&self, plan: PlanId) -> Option<Knobs> {
        self.known.iter().find(|(known, _)| *known == plan).map(|(_, knobs)| *knobs)
    }

    /// The context that the first plan gave to requests.
    pub(super) fn promised(&self) -> Option<Tokens> {
        self.promised
    }
}
