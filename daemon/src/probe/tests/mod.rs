//! Parsers against recorded machines, machines of other kernels, and bytes that nobody should write.

mod hostile;
mod kernels;
mod live;
pub(super) mod machine;
