//! Configuration, units and every bound of the system.

pub mod limits;
