//! Reading a request's JSON field by field, so that each complaint names its parameter.
//!
//! `null` counts as absent (clients send it for every optional field). Fields that nobody asks for are ignored.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::error::ApiError;

/// The fields of one request.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// # Errors
    /// 400 when the bytes are not a JSON object, with the place.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => Ok(Self(object)),
            Ok(_) => Err(ApiError::bad_request("the request's body must be a JSON object")),
            Err(e) => Err(ApiError::bad_request(format!("the request's body is not valid JSON: {e}"))),
        }
    }

    /// The field, unless it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// # Errors
    /// 400 when it is there and not true or false.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| ApiError::param(name, format!("{name} must be true or false")))
    }

    /// # Errors
    /// 400 when it is there and not a number within `range`.
    pub(crate) fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64() {
            #[allow(clippy::cast_possible_truncation, reason = "the range is that of a sampling parameter")]
            Some(number) if range.contains(&number) => Ok(Some(number as f32)),
            Some(_) | None => Err(ApiError::param(
                name,
                format!("{name} must be a number from {} to {}, not {value}", range.start(), range.end()),
            )),
        }
    }

    /// # Errors
    /// 400 when it is there and not a whole number within `range`.
    pub(crate) fn integer(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match whole(value) {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            Some(_) | None => Err(ApiError::param(
                name,
                format!("{name} must be a whole number from {} to {}, not {value}", range.start(), range.end()),
            )),
        }
    }
}

/// `2` and `2.0` are the same number: some languages have only floats. Those are whole and exact up to 2^53.
fn whole(value: &Value) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, not negative, under 2^53")]
    let from_float =
        |float: f64| (float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float)).then_some(float as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(from_float))
}

#[cfg(test)]
mod tests {
    use super::Fields;

    #[test]
    fn complaints_name_the_parameter_and_what_is_allowed() {
        let fields = Fields::parse(br#"{"t": 9, "n": 0, "w": 1.5, "b": "yes", "none": null}"#).unwrap();
        let says = |result: Result<(), super::ApiError>| result.unwrap_err().to_json()["error"]["message"].clone();
        assert_eq!(says(fields.number("t", 0.0..=5.0).map(drop)), "t must be a number from 0 to 5, not 9");
        assert_eq!(says(fields.integer("n", 1..=4).map(drop)), "n must be a whole number from 1 to 4, not 0");
        assert_eq!(says(fields.integer("w", 1..=4).map(drop)), "w must be a whole number from 1 to 4, not 1.5");
        assert_eq!(says(fields.boolean("b").map(drop)), "b must be true or false");
        assert_eq!(fields.number("none", 0.0..=1.0).unwrap(), None);
        assert_eq!(fields.integer("absent", 0..=1).unwrap(), None);
    }

    #[test]
    fn a_float_that_is_whole_is_a_whole_number() {
        let fields = Fields::parse(br#"{"a": 2.0, "b": 1e3, "c": -1.0, "d": 1e300, "e": 0.5, "f": -0.0}"#).unwrap();
        let read = |name: &str| fields.integer(name, 0..=u64::MAX).ok().flatten();
        assert_eq!([read("a"), read("b"), read("f")], [Some(2), Some(1000), Some(0)]);
        assert_eq!([read("c"), read("d"), read("e")], [None; 3]);
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for body in [&b"[]"[..], b"", b"{", b"\xff", b"1"] {
            assert!(Fields::parse(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
        assert!(Fields::parse("[".repeat(1 << 20).as_bytes()).is_err());
    }
}
