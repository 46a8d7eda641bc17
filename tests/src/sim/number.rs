//! Bytes and milliseconds as plain numbers of a log: the units themselves know nothing of serde.

use plimsoll_config::units::{Bytes, Millis};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A unit that is a number.
pub trait Number: Copy {
    /// The number.
    fn number(self) -> u64;
    /// The unit.
    fn of(number: u64) -> Self;
}

impl Number for Bytes {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Bytes(number)
    }
}

impl Number for Millis {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Millis(number)
    }
}

/// Writes the number.
///
/// # Errors
/// The writer's.
pub fn serialize<N: Number, S: Serializer>(unit: &N, to: S) -> Result<S::Ok, S::Error> {
    unit.number().serialize(to)
}

/// Reads it.
///
/// # Errors
/// It is no number.
pub fn deserialize<'de, N: Number, D: Deserializer<'de>>(from: D) -> Result<N, D::Error> {
    u64::deserialize(from).map(N::of)
}

/// The same where it may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer};

    /// Writes the number or null.
    ///
    /// # Errors
    /// The writer's.
    pub fn serialize<N: Number, S: Serializer>(unit: &Option<N>, to: S) -> Result<S::Ok, S::Error> {
        unit.map(N::number).serialize(to)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is neither null nor a number.
    pub fn deserialize<'de, N: Number, D: Deserializer<'de>>(from: D) -> Result<Option<N>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(N::of))
    }
}

/// A fixed list of them.
pub mod list {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer};
    use serde::de::Error;

    /// Writes the numbers.
    ///
    /// # Errors
    /// The writer's.
    pub fn serialize<N: Number, S: Serializer, const LENGTH: usize>(
        units: &[N; LENGTH],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        units.map(N::number).as_slice().serialize(to)
    }

    /// Reads them.
    ///
    /// # Errors
    /// They are no numbers, or of another count.
    pub fn deserialize<'de, N: Number, D: Deserializer<'de>, const LENGTH: usize>(
        from: D,
    ) -> Result<[N; LENGTH], D::Error> {
        let numbers = Vec::<u64>::deserialize(from)?;
        let numbers: [u64; LENGTH] = numbers.try_into().map_err(|numbers: Vec<u64>| {
            D::Error::custom(format!("{} numbers where {LENGTH} belong", numbers.len()))
        })?;
        Ok(numbers.map(N::of))
    }
}
