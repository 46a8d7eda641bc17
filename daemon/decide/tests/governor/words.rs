//! What the log says.

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::governor::{Alarm, Lever, Move, MoveId, Note, RULES, Signal, Why};
use plimsoll_decide::ledger::AccountId;

use crate::bench::{GPU, gib, mib};

fn alarm(id: &str, value: i64) -> Alarm {
    let rule = RULES.iter().find(|rule| rule.id == id).expect("the rule exists");
    Alarm { rule: *rule, value }
}

fn budget() -> Move {
    Move { id: MoveId(1), lever: Lever::ResidentBudget, account: AccountId::Host, from: gib(32), to: gib(24) }
}

#[test]
fn each_event_is_a_sentence() {
    let cache = Move { id: MoveId(2), lever: Lever::ExpertCache, account: GPU, from: mib(1024), to: mib(2048) };
    let quiet = Why::Quiet(Millis(240_000));
    let cases = [
        (
            Note::Moved(budget(), Why::Alarm(alarm("H2", 1_800))),
            "lever resident_budget 32.00 GiB → 24.00 GiB  because host.time_to_limit 1.8 s < 2.5 s (rule H2)  promised \
             8.00 GiB",
        ),
        (
            Note::WouldMove(budget(), Why::Alarm(alarm("H4", -(512 << 20)))),
            "would: lever resident_budget 32.00 GiB → 24.00 GiB  because host.room −0.50 GiB < 0 B (rule H4)  promised \
             8.00 GiB",
        ),
        (
            Note::Relief { moved: budget(), said: gib(8), measured: gib(7), took: Millis(212) },
            "lever resident_budget 32.00 GiB → 24.00 GiB  promised 8.00 GiB  said 8.00 GiB  got 7.00 GiB in 212 ms",
        ),
        (
            Note::Moved(cache, quiet),
            "lever expert_cache 1.00 GiB → 2.00 GiB on GPU 0  because quiet for 4 min and room again  promised 1.00 GiB",
        ),
        (
            Note::Moved(budget(), Why::FileReads { per_token: mib(80) }),
            "lever resident_budget 32.00 GiB → 24.00 GiB  because disk.file_tier_reads 80.0 MiB/token (rule D1), and host \
             room  promised 8.00 GiB",
        ),
        (Note::Late(budget()), "lever resident_budget 32.00 GiB → 24.00 GiB  has not answered in time"),
        (
            Note::Undone { account: AccountId::Host, quiet: Millis(480_000) },
            "host memory: recovery undone; the next one after 8 min of quiet",
        ),
        (
            Note::Exhausted(GPU, alarm("V2", -(100 << 20))),
            "GPU 0: no lever is left, and vram.room_at_request −100.0 MiB < 0 B (rule V2)",
        ),
        (Note::Paused(alarm("H5", 9_000)), "admission paused  because host.refaults 9000/s > 5000/s (rule H5)"),
        (Note::Resumed, "admission goes on"),
        (
            Note::Restart { account: AccountId::Host, free: mib(700), at_once: false },
            "host memory: 0.68 GiB free and no lever left: the worker is stopped cleanly, to start smaller",
        ),
        (Note::StartedUnderLine(GPU), "GPU 0: a request starts under the line: nothing more could be freed in time"),
        (
            Note::DiskBound { per_token: mib(80) },
            "disk: 80.0 MiB read from the file for each token, more than planned, and host memory has no room for more \
             experts",
        ),
        (
            Note::Paused(alarm("H6", 300 << 20)),
            "admission paused  because host.swap_growth 0.29 GiB > 0.25 GiB (rule H6)",
        ),
        (Note::Paused(alarm("H7", 300)), "admission paused  because host.stalled 300 ‰ > 200 ‰ (rule H7)"),
    ];
    for (note, words) in cases {
        assert_eq!(note.to_string(), words);
    }
}

#[test]
fn rules_have_names_of_their_own_and_a_direction() {
    for (i, rule) in RULES.iter().enumerate() {
        assert!(RULES.iter().skip(i + 1).all(|other| other.id != rule.id), "{}", rule.id);
        let evidence = [Signal::Refaults, Signal::SwapGrowth, Signal::Stalled].contains(&rule.signal);
        let measure = [Signal::TimeToLimit, Signal::MarginLeft].contains(&rule.signal);
        assert_eq!(rule.threshold > 0, evidence || measure, "{}", rule.id);
    }
    assert_eq!(Bytes::from_gib(1).rounded_up_to(mib(2)), gib(1));
}
