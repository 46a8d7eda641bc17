//! From the zero check to the refusal: what a verdict names is what the make-room list offers.

use plimsoll_config::units::{Bytes, Millis};
use plimsoll_decide::gpu::{Gpu, GpuMemory, GpuProcess, GpuReading, Sight};
use plimsoll_decide::ledger::AccountId;
use plimsoll_decide::plan::{Change, GpuProgram};
use plimsoll_decide::render::change_text;
use plimsoll_decide::zero_check::{Culprit, Verdict, zero_check};

use crate::fixtures::{mib, shortage, workstation, workstation_card, workstation_model, workstation_wish};

fn process(pid: u32, command: &str, bytes: Option<Bytes>) -> GpuProcess {
    let (command, user) = (Some(command.to_owned()), Some("alice".to_owned()));
    GpuProcess { pid, start_ticks: None, command, user, bytes }
}

/// The culprits of a card of 12,282 MiB, without a baseline, on which these compute.
fn culprits(compute: Vec<GpuProcess>) -> Vec<Culprit> {
    let held: Bytes = compute.iter().filter_map(|process| process.bytes).sum();
    let (total, blocked, graphics) = (mib(12_282), Vec::new(), Vec::new());
    let memory =
        GpuMemory { total, free: total.saturating_sub(held), driver_reserved: None, compute, graphics, blocked };
    let gpu = Gpu { index: 0, uuid: "GPU-0".to_owned() };
    let reading = GpuReading { gpu, at: Millis(5), sight: Sight::Seen(memory) };
    match zero_check(Millis(5), &reading, None, &[]) {
        Verdict::Dirty(dirty) => dirty.culprits,
        clean @ (Verdict::Clean(_) | Verdict::Releasing(_) | Verdict::Blind(_)) => panic!("{clean:?}"),
    }
}

#[test]
fn a_refusal_offers_what_the_verdict_names() {
    let model = workstation_model();
    let mut card = workstation_card(&model, mib(1054));
    let named = culprits(vec![
        process(812, "python3", Some(mib(2000))),
        process(813, "python3", Some(mib(560))),
        process(900, "silent", None),
    ]);
    card.programs.extend(named.iter().map(GpuProgram::from));
    let refused = shortage(&model, &workstation(card), &workstation_wish(1728));
    let closes: Vec<(String, u64, bool)> = refused
        .offers
        .iter()
        .filter(|offer| matches!(offer.change, Change::CloseProgram { account: AccountId::Vram(0), .. }))
        .map(|offer| (change_text(&offer.change), offer.frees.mib_rounded_down(), offer.is_enough))
        .collect();
    // Both processes together; nothing is promised of one whose bytes nobody knows.
    assert_eq!(closes, [("close python3 (pid 812, alice)".to_owned(), 2560, true)]);
}

#[test]
fn what_a_process_does_not_tell_has_a_word() {
    let nameless = GpuProcess { pid: 7, start_ticks: None, command: None, user: None, bytes: Some(mib(300)) };
    let [culprit] = &culprits(vec![nameless])[..] else { panic!("one process, one culprit") };
    let GpuProgram { program, is_desktop } = GpuProgram::from(culprit);
    assert_eq!((program.name.as_str(), program.user.as_str()), ("unknown program", "unknown user"));
    assert_eq!((program.pid, program.bytes, is_desktop), (7, mib(300), false));
}

/// A program that was there at the clean start, and grew: closing it gives all of it back.
#[test]
fn a_culprit_gives_back_its_part_of_the_baseline_too() {
    let grown = Culprit { beyond: mib(900), ..culprits(vec![process(1002, "chromium", Some(mib(1330)))]).remove(0) };
    assert_eq!(GpuProgram::from(&grown).program.bytes, mib(1330));
}
