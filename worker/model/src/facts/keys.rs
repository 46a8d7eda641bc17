//! Reading the keys of one architecture: `<arch>.<suffix>`, with bounds.

use super::{Arch, FactsError};
use crate::gguf::{Metadata, Value};

/// The keys of a model's architecture.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) arch: Arch,
}

impl<'a> Keys<'a> {
    /// The full key.
    pub(super) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.arch.name())
    }

    fn bounded(&self, suffix: &str, value: u32, limit: u32) -> Result<u32, FactsError> {
        if value == 0 || value > limit {
            let why = format!("is {value}; 1 to {limit} are possible");
            return Err(FactsError::Invalid { key: self.key(suffix), why });
        }
        Ok(value)
    }

    /// An integer from 1 to `limit`.
    pub(super) fn count(&self, suffix: &str, limit: u32) -> Result<u32, FactsError> {
        let value = self.metadata.u32(&self.key(suffix))?;
        self.bounded(suffix, value, limit)
    }

    /// The same, or `None` when the key is absent.
    pub(super) fn opt_count(&self, suffix: &str, limit: u32) -> Result<Option<u32>, FactsError> {
        let value = self.metadata.opt_u32(&self.key(suffix))?;
        value.map(|value| self.bounded(suffix, value, limit)).transpose()
    }

    /// A positive finite number, or `None` when the key is absent.
    pub(super) fn opt_positive(&self, suffix: &str) -> Result<Option<f64>, FactsError> {
        let key = self.key(suffix);
        match self.metadata.opt_f64(&key)? {
            Some(value) if value <= 0.0 => {
                Err(FactsError::Invalid { key, why: format!("is {value}; a positive number is needed") })
            }
            value => Ok(value),
        }
    }

    /// One integer for all layers or an array with one for each, each from 0 to `limit`; `default` when the key is absent.
    pub(super) fn per_layer(
        &self,
        suffix: &str,
        n_layers: u32,
        limit: u32,
        default: Option<&[u32]>,
    ) -> Result<Vec<u32>, FactsError> {
        let key = self.key(suffix);
        let check = |value: u32| {
            if value > limit {
                let why = format!("holds {value}; 0 to {limit} are possible");
                return Err(FactsError::Invalid { key: key.clone(), why });
            }
            Ok(value)
        };
        match (self.metadata.get(&key), default) {
            (Some(Value::Numbers(numbers)), _) => {
                if numbers.len() != n_layers as usize {
                    let why = format!("has {} elements for {n_layers} layers", numbers.len());
                    return Err(FactsError::Invalid { key, why });
                }
                let mut values = Vec::with_capacity(n_layers as usize);
                for number in numbers.iter() {
                    // Out of range becomes a value over every limit.
                    let value = number.as_u64().and_then(|v| u32::try_from(v).ok()).unwrap_or(u32::MAX);
                    values.push(check(value)?);
                }
                Ok(values)
            }
            (None, Some(default)) => Ok(default.to_vec()),
            (Some(_) | None, _) => {
                let value = check(self.metadata.u32(&key)?)?;
                Ok(vec![value; n_layers as usize])
            }
        }
    }
}
