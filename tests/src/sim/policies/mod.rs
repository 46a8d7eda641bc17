//! The policies that the simulator brings: what exists today, and what could be reached by one who knows the future.

pub mod none;
pub mod oracle;
pub mod restart;

use super::day::Day;
use super::ours::Ours;
use super::policy::Policy;

/// A policy by name.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Its name on the command line.
    pub name: &'static str,
    /// Makes one for a day. Only the oracle looks at more than the world's facts.
    pub make: for<'a> fn(&'a Day) -> Box<dyn Policy + 'a>,
}

/// The oracle, which the others are measured against.
pub const ORACLE: Named = Named { name: "oracle", make: |day| Box::new(oracle::Oracle::new(day)) };

/// Every policy, in the order of the table.
pub const ALL: [Named; 4] = [
    Named { name: "none", make: |day| Box::new(none::NoPolicy::new(day.world.facts())) },
    Named { name: "restart", make: |day| Box::new(restart::Restart::new(day.world.facts())) },
    ORACLE,
    Named { name: "ours", make: |day| Box::new(Ours::new(&day.world.facts())) },
];
