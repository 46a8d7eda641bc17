//! The only place that starts and signals processes. It carries out; it decides nothing.

pub(crate) mod become_worker;
pub(crate) mod spawn;
pub(crate) mod stop;
