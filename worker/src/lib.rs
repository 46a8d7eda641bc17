//! The engine process: weights, sessions, sampling.
