//! Cross-crate tests, fixture makers and doubles.
