//! What a plan estimates, before and after what earlier starts taught.
//!
//! One list says which objects of an account are estimates; the plan takes its figures from it corrected, and keeps it
//! uncorrected for [`crate::measured::Truth::note`]. A flow, as reads of the file, is forecast and not corrected.

use std::collections::BTreeMap;

use plimsoll_config::limits;
use plimsoll_config::units::Bytes;

use super::load::Inputs;
use crate::ledger::{AccountId, Basis, Ledger, Object};
use crate::measured::Estimate;

impl Inputs<'_> {
    /// The estimates that an account may have, before corrections.
    fn estimates(&self, account: AccountId) -> Vec<Estimate> {
        let estimate = |object, bytes| Estimate { object, bytes };
        match account {
            AccountId::Host => vec![
                estimate(Object::Activations, self.model.activations),
                estimate(Object::Service, limits::SERVICE_ESTIMATE),
                estimate(Object::Staging, limits::STAGING_ESTIMATE),
            ],
            AccountId::Vram(index) => {
                let gpus = self.machine.gpus.iter().filter(|gpu| gpu.index == index);
                gpus.flat_map(|gpu| {
                    [estimate(Object::Context, gpu.context), estimate(Object::PromptPath, self.model.prompt_path)]
                })
                .collect()
            }
            AccountId::Disk => Vec::new(),
        }
    }

    /// One of them in the light of earlier starts; nothing for an object that is no estimate.
    pub(super) fn estimated(&self, account: AccountId, object: Object) -> Bytes {
        let estimates = self.estimates(account);
        let estimate = estimates.iter().find(|estimate| estimate.object == object);
        let bytes = estimate.map_or(Bytes::ZERO, |estimate| estimate.bytes);
        self.machine.experience.as_ref().map_or(bytes, |experience| experience.corrected(account, object, bytes))
    }

    /// Of each account in a ledger the estimates that are there, before corrections.
    pub(super) fn uncorrected(&self, ledger: &Ledger) -> BTreeMap<AccountId, Vec<Estimate>> {
        let mut found = BTreeMap::new();
        for account in &ledger.accounts {
            let is_there = |estimate: &Estimate| {
                let mut entries = account.entries.iter();
                entries.any(|entry| entry.object == estimate.object && entry.basis == Basis::Estimated)
            };
            let estimates: Vec<Estimate> = self.estimates(account.id).into_iter().filter(is_there).collect();
            if !estimates.is_empty() {
                found.insert(account.id, estimates);
            }
        }
        found
    }
}
