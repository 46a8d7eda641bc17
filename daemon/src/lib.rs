//! What the daemon's program shares with tests of whole plans: a header's sizes as `plimsoll-decide` takes them. Neither the
//! pure crate nor the model's knows the other, so that the step between them is the daemon's.

pub mod sizes;
