//! The disks that matter: that of the model's file and that of our own state.

pub(crate) mod device;
pub(crate) mod space;
pub(crate) mod speed;
