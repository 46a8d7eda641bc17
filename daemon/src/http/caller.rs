//! Who asks, and how long they want to wait for their turn.
//!
//! Clients are told apart so that one with a hundred requests does not stand before one with a single one. It is no lock: the
//! port is on loopback, everybody there is this machine's, and whoever invents a new key for each request is only impolite. So
//! what a client says of itself is believed, in this order: the API key (clients always send one, programs of one kind often
//! the same), else the field `user`, else nothing: all who say nothing are one client. The peer's address would tell nothing
//! on loopback, and its port changes with each connection, which would make a browser's tabs a crowd.
//!
//! Nothing of it is kept: a number stands for it.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::{HeaderMap, header};
use plimsoll_config::units::Millis;
use plimsoll_decide::admission::ClientId;
use serde_json::Value;

use super::fields::Fields;

/// What is known of the client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) client: ClientId,
    /// `Prefer: wait=SECONDS` (RFC 7240): a request that has not begun by then is refused.
    pub(crate) wait: Option<Millis>,
}

impl Caller {
    pub(crate) fn of(headers: &HeaderMap, fields: &Fields) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| value.split_once(' ')).map(|(_, key)| key);
        let key = bearer.or_else(|| text("x-api-key")).map(str::trim).filter(|key| !key.is_empty());
        let user = fields.get("user").and_then(Value::as_str).filter(|user| !user.is_empty());
        let client = match (key, user) {
            (Some(key), _) => number(("key", key)),
            (None, Some(user)) => number(("user", user)),
            (None, None) => ClientId::default(),
        };
        Self { client, wait: text("prefer").and_then(wait) }
    }
}

fn number(name: (&str, &str)) -> ClientId {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    ClientId(hasher.finish())
}

/// The preference among others; one that is not a number of seconds is no preference.
fn wait(prefer: &str) -> Option<Millis> {
    let mut preferences = prefer.split([',', ';']).filter_map(|one| one.split_once('='));
    let (_, seconds) = preferences.find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))?;
    seconds.trim().parse().ok().map(Millis::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(headers: &[(&str, &str)], body: &str) -> Caller {
        let pairs = headers.iter().map(|(name, value)| {
            (header::HeaderName::from_bytes(name.as_bytes()).unwrap(), header::HeaderValue::from_str(value).unwrap())
        });
        Caller::of(&pairs.collect(), &Fields::parse(body.as_bytes()).unwrap())
    }

    #[test]
    fn the_key_comes_before_the_user_and_nothing_is_one_client() {
        let client = |headers: &[(&str, &str)], body| caller(headers, body).client;
        let key = client(&[("authorization", "Bearer one")], r#"{"user": "a"}"#);
        assert_eq!(key, client(&[("authorization", "Bearer one")], r#"{"user": "b"}"#));
        assert_eq!(key, client(&[("x-api-key", "one")], "{}"));
        assert_ne!(key, client(&[("authorization", "Bearer two")], "{}"));
        let user = client(&[], r#"{"user": "one"}"#);
        assert_ne!(user, key, "a user is no key");
        assert_ne!(user, client(&[], r#"{"user": "two"}"#));
        for nobody in [client(&[], "{}"), client(&[("authorization", "Bearer ")], r#"{"user": ""}"#)] {
            assert_eq!(nobody, ClientId::default());
        }
        assert_eq!(client(&[], r#"{"user": 5}"#), ClientId::default());
    }

    #[test]
    fn a_preferred_wait_is_seconds() {
        let wait = |value| caller(&[("prefer", value)], "{}").wait;
        assert_eq!(wait("wait=10"), Some(Millis(10_000)));
        assert_eq!(wait("respond-async, Wait = 3"), Some(Millis(3000)));
        assert_eq!((wait("wait=soon"), wait("handling=lenient")), (None, None));
    }
}
