//! Angles of rotary positions.

/// cos and sin for the positions of one step.
#[derive(Debug, Clone)]
pub struct RopeTable {}
