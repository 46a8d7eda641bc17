//! Bounds that must agree with each other, and the address rule.

use plimsoll_config::config::{KvType, LogLevel, parse_listen};
use plimsoll_config::limits::*;
use plimsoll_config::units::Millis;

#[test]
fn bounds_agree_with_each_other() {
    const {
        assert!(DEFAULT_SESSIONS <= MAX_SESSIONS);
        assert!(DEFAULT_WAITING <= MAX_WAITING);
        assert!(DEFAULT_DRAIN_DEADLINE.0 <= MAX_DRAIN_DEADLINE.0);
        assert!(AUTO_CONTEXT_FLOOR.0 <= AUTO_CONTEXT_CAP.0 && AUTO_CONTEXT_CAP.0 <= MAX_CONTEXT.0);
        assert!(MIN_CONTEXT.0 <= AUTO_CONTEXT_FLOOR.0);
        assert!(AUTO_CONTEXT_FLOOR.0.is_power_of_two() && AUTO_CONTEXT_CAP.0.is_power_of_two());
        assert!(HOST_MARGIN_MIN.0 < HOST_MARGIN_MAX.0 && HOST_MARGIN_PERCENT < 100);
        // A heartbeat may be late many times over before its silence counts.
        assert!(HEARTBEAT_INTERVAL.0 * 10 <= HEARTBEAT_SILENCE.0);
        // The ways to end a worker, one after the other, and a drain fit into the 90 s that systemd waits.
        assert!(DEFAULT_DRAIN_DEADLINE.0 + STOP_GRACE.0 + TERM_GRACE.0 < 90_000);
        assert!(LOAD_SILENCE.0 < LOAD_DEADLINE.0);
        // All pauses of a spent budget lie inside its window.
        assert!(BACKOFF_MAX.0 * (MAX_DEATHS_IN_WINDOW as u64) < DEATH_WINDOW.0);
        // A whole context of ids, prompt and answer together, is one frame: each id of the largest vocabulary in use, 262,144,
        // has six digits and a comma. What else a frame holds (parameters, brackets) has 64 KiB, of which it needs under one.
        assert!(MAX_CONTEXT.0 as usize * "262143,".len() + (64 << 10) <= MAX_FRAME_BYTES);
        assert!(STREAM_PING_INTERVAL.0 < 30_000);
    }
}

#[test]
fn only_loopback_addresses_are_listened_on() {
    let accept =
        |text: &str, expect: &str| assert_eq!(parse_listen(text).map(|a| a.to_string()), Ok(expect.to_owned()));
    accept("127.0.0.1:8080", "127.0.0.1:8080");
    accept("127.9.9.9:1", "127.9.9.9:1");
    accept("localhost:0", "127.0.0.1:0");
    accept("[::1]:80", "[::1]:80");
    for text in ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:99999", "localhost", "example.org:80", "::1:80"] {
        let error = parse_listen(text).expect_err(text).to_string();
        assert!(error.ends_with("is not an address with a port: write 127.0.0.1:8080 or [::1]:8080"), "{error}");
    }
    for text in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:127.0.0.1]:80"] {
        let error = parse_listen(text).expect_err(text).to_string();
        assert!(error.contains("neither keys nor encryption: listen on 127.0.0.1:80"), "{error}");
    }
}

#[test]
fn names_are_those_of_the_files() {
    assert_eq!(KvType::ALL.map(KvType::name), ["f16", "q8_0", "q4_0"]);
    assert_eq!(format!("[{:>5}]", KvType::Q8_0), "[ q8_0]");
    assert_eq!(LogLevel::ALL.map(LogLevel::name), ["error", "warn", "info", "debug"]);
    assert_eq!(Millis::from_secs(1), Millis(1000));
}
