//! Sizes, tokens and times: what is read, what is shown, what is refused.

use plimsoll_config::units::{Bytes, Millis, Tokens, thousands};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn sizes_are_read() {
    let check = |text: &str, expect: u64| assert_eq!(Bytes::parse(text), Ok(Bytes(expect)), "{text}");
    check("32GiB", 32 * GIB);
    check("512 MiB", 512 * MIB);
    check("  1.5GiB ", GIB + GIB / 2);
    check("4096 B", 4096);
    check("0B", 0);
    check("2KiB", 2 * KIB);
    check("1TiB", 1 << 40);
    check("0.1GiB", 107_374_182); // the fraction of a byte is dropped
    check("1.999999999B", 1);
    check("18446744073709551615B", u64::MAX);
}

#[test]
fn what_is_not_a_size_is_refused_with_what_to_write() {
    let check = |text: &str, expect: &str| {
        let error = Bytes::parse(text).expect_err(text);
        assert_eq!(error.to_string(), expect, "{text}");
    };
    check("32", "`32` has no unit: write 32MiB or 32GiB, whichever is meant");
    check("32GB", "`GB` is not a unit of size here: sizes are binary, write GiB");
    check("32g", "`g` is not a unit of size here: sizes are binary, write GiB");
    check("5 bytes", "`bytes` is not a unit of size here: sizes are binary, write B");
    check("5k", "`k` is not a unit of size here: sizes are binary, write KiB");
    check("5mb", "`mb` is not a unit of size here: sizes are binary, write MiB");
    check("5T", "`T` is not a unit of size here: sizes are binary, write TiB");
    check("5 pounds", "`pounds` is not a unit of size: use B, KiB, MiB, GiB or TiB");
    for text in ["", "GiB", "-1GiB", ".5GiB", "5.GiB", "1.2.3GiB", "1e3MiB", "1,5GiB", "1234567890123456789012GiB"] {
        let error = Bytes::parse(text).expect_err(text).to_string();
        assert!(error.contains("is not a"), "{text}: {error}");
    }
    check("18446744073709551616B", "`18446744073709551616B` is more than can be counted in 64 bits");
    check("99999999999TiB", "`99999999999TiB` is more than can be counted in 64 bits");
}

#[test]
fn sizes_are_shown_as_holdings() {
    let check = |bytes: u64, expect: &str| assert_eq!(Bytes(bytes).to_string(), expect);
    check(0, "0 B");
    check(1023, "1023 B");
    check(1536, "1.5 KiB");
    check(98_357_000, "93.8 MiB");
    check(32 * GIB, "32.00 GiB");
    check(GIB * 42 / 100, "0.42 GiB");
    check(512 * MIB, "0.50 GiB");
    check(u64::MAX, "17,179,869,184.00 GiB");
    assert_eq!(format!("[{:>10}]", Bytes(32 * GIB)), "[ 32.00 GiB]");
}

#[test]
fn sizes_in_sentences_round_towards_caution() {
    assert_eq!(Bytes(MIB + 1).mib_rounded_up(), 2);
    assert_eq!(Bytes(2 * MIB - 1).mib_rounded_down(), 1);
    assert_eq!(Bytes(55 * GIB).gib_text(1), "55.0");
    assert_eq!(Bytes(55 * GIB).gib_text(0), "55");
    assert_eq!(thousands(16_640), "16,640");
    assert_eq!(thousands(999), "999");
    assert_eq!(thousands(1_000_000), "1,000,000");
    assert_eq!(Tokens(131_072).to_string(), "131,072");
    assert_eq!(Tokens(1).saturating_sub(Tokens(2)), Tokens(0));
}

#[test]
fn arithmetic_is_checked_or_says_that_it_saturates() {
    let (one, all) = (Bytes(1), Bytes(u64::MAX));
    assert_eq!(all.checked_add(one), None);
    assert_eq!(one.checked_sub(all), None);
    assert_eq!(all.checked_mul(2), None);
    assert_eq!(one.checked_add(one), Some(Bytes(2)));
    assert_eq!(Bytes(3).checked_sub(one), Some(Bytes(2)));
    assert_eq!(Bytes(3).checked_mul(2), Some(Bytes(6)));
    assert_eq!(all.saturating_add(one), all);
    assert_eq!(one.saturating_sub(all), Bytes::ZERO);
    assert_eq!(all.saturating_mul(2), all);
    assert_eq!([all, one].into_iter().sum::<Bytes>(), all);
    assert_eq!(Bytes::from_mib(1024), Bytes::from_gib(1));
    assert_eq!(Millis(5).since(Millis(7)), Millis(0));
    assert_eq!(Millis(u64::MAX).saturating_add(Millis(1)), Millis(u64::MAX));
}

#[test]
fn times_are_read_and_shown() {
    let check = |text: &str, ms: u64, shown: &str| {
        assert_eq!(Millis::parse(text), Ok(Millis(ms)), "{text}");
        assert_eq!(Millis(ms).to_string(), shown);
    };
    check("212ms", 212, "212 ms");
    check("3.8s", 3800, "3.8 s");
    check("30 s", 30_000, "30 s");
    check("2min", 120_000, "2 min");
    check("1.5 min", 90_000, "1 min 30 s");
    check("2.25h", 8_100_000, "2 h 15 min");
    check("1h", 3_600_000, "1 h");
    assert_eq!(Millis(1001).secs_rounded_up(), 2);

    let refused = |text: &str, expect: &str| assert_eq!(Millis::parse(text).expect_err(text).to_string(), expect);
    refused("30", "`30` has no unit: write 30s or 30min, whichever is meant");
    refused("30sec", "`sec` is not a unit of time: use ms, s, min or h");
    refused("soon", "`soon` is not a time: write a number and a unit, such as 30s or 500ms");
    refused("9999999999999999999h", "`9999999999999999999h` is more than can be counted in 64 bits");
}

proptest! {
    #[test]
    fn any_text_is_a_size_or_a_sentence(text in "\\PC{0,40}") {
        match Bytes::parse(&text) {
            Ok(_) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        match Millis::parse(&text) {
            Ok(_) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn whole_bytes_come_back(bytes: u64) {
        prop_assert_eq!(Bytes::parse(&format!("{bytes}B")), Ok(Bytes(bytes)));
    }

    #[test]
    fn what_is_shown_reads_back_within_its_last_digit(bytes in 0..1u64 << 50) {
        let shown = Bytes(bytes).to_string().replace(',', "");
        let back = Bytes::parse(&shown).expect("shown in a unit that is read").0;
        let step = match bytes { b if b >= GIB / 10 => GIB / 100, b if b >= MIB => MIB / 10, b if b >= KIB => KIB / 10, _ => 1 };
        prop_assert!(back.abs_diff(bytes) <= step / 2 + 1, "{} → {} → {}", bytes, shown, back);
    }

    #[test]
    fn sums_never_wrap(sizes in prop::collection::vec(any::<u64>(), 0..8)) {
        let exact: u128 = sizes.iter().map(|bytes| u128::from(*bytes)).sum();
        let sum: Bytes = sizes.iter().copied().map(Bytes).sum();
        prop_assert_eq!(u128::from(sum.0), exact.min(u128::from(u64::MAX)));
    }
}
