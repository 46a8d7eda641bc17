//! The worker's life as stories: what happens, what is done about it, where it ends.

mod story;

use plimsoll_config::limits;
use plimsoll_config::units::Millis;
use plimsoll_decide::admission::{ClosedReason, Gate};
use plimsoll_decide::lifecycle::death::{DeathClass, Exit, Hang, Traces};
use plimsoll_decide::lifecycle::{
    Action, ErrorClass, Event, Failure, Generation, Lifecycle, RequestsEnd, State, Then, WorkerEvent, backoff,
};

use story::{Story, look};

fn stopped() -> Action {
    Action::FailRequests(RequestsEnd::Stopped)
}

fn exited(exit: Exit) -> WorkerEvent {
    WorkerEvent::Exited { exit, traces: Traces::default() }
}

fn drain(story: &mut Story, span: Millis) -> Vec<Action> {
    let deadline = story.now.saturating_add(span);
    story.tell(Event::DrainAsked { deadline })
}

#[test]
fn a_start_looks_first_then_spawns_then_serves() {
    let mut story = Story::new();
    assert_eq!(story.life, Lifecycle::default());
    assert_eq!(story.life.sentence(), "no worker is running, and none was asked for");
    assert_eq!(story.tell(Event::StartAsked), [look()]);
    assert_eq!((story.life.gate(story.now), story.life.next_wake()), (Gate::Hold, None));
    assert_eq!(story.life.sentence(), "looking whether the model fits");
    assert_eq!(story.tell(Event::StartAsked), []);
    assert_eq!(story.passes(), [Action::Spawn(Generation(1))]);
    assert_eq!(story.life.sentence(), "starting the worker");
    assert_eq!(story.worker(WorkerEvent::Spawned), []);
    assert_eq!(story.worker(WorkerEvent::Hello), []);
    assert_eq!(story.worker(WorkerEvent::Loading { done_bytes: 1 << 30, total_bytes: 9 << 29 }), []);
    assert_eq!(story.life.sentence(), "loading the model: 1.00 GiB of 4.50 GiB");
    assert_eq!(story.life.gate(story.now), Gate::Hold);
    assert_eq!(story.worker(WorkerEvent::Ready), [Action::ResubmitRequests]);
    assert_eq!(
        (story.life.gate(story.now), story.life.sentence().as_str(), story.life.n_spawns()),
        (Gate::Open, "ready", 1)
    );
}

#[test]
fn a_crash_is_a_short_pause() {
    let mut story = Story::ready();
    let exit = Exit::Signal(9);
    assert_eq!(story.ends(exit), [Action::ParkRequests]);
    story.is("backoff");
    assert_eq!(story.life.gate(story.now), Gate::Hold);
    assert_eq!(story.life.last_death(), Some(&(story.now, DeathClass::Killed { signal: 9 })));
    assert!(
        story.life.sentence().contains("killed from outside by someone unknown (signal 9, SIGKILL)"),
        "{}",
        story.life.sentence()
    );
    assert_eq!(story.wait(Millis(1)), []);
    assert_eq!(story.sleep(), [look()]);
    assert_eq!(story.passes(), [Action::Spawn(Generation(2))]);
    for event in [WorkerEvent::Spawned, WorkerEvent::Hello] {
        assert_eq!(story.worker(event), []);
    }
    assert_eq!(story.worker(WorkerEvent::Ready), [Action::ResubmitRequests]);
}

#[test]
fn a_late_word_of_a_dead_worker_is_not_heard() {
    let mut story = Story::ready();
    story.ends(Exit::Signal(9));
    story.sleep();
    story.become_ready();
    for event in [exited(Exit::Signal(9)), WorkerEvent::SocketClosed { why: "late".to_owned() }] {
        assert_eq!(story.tell(Event::Worker { generation: Generation(1), event }), []);
        story.is("ready");
    }
}

#[test]
fn pauses_grow_and_end() {
    let expect = [250, 1000, 4000, 16_000, 30_000, 30_000];
    let found: Vec<u64> = (1..=6).map(|n| backoff(n).0).collect();
    assert_eq!(found, expect);
    assert_eq!((backoff(0), backoff(usize::MAX)), (limits::BACKOFF_MIN, limits::BACKOFF_MAX));
}

/// Dies until the budget is spent, each time after the pause alone. Says when the first death was.
fn spend_the_budget(story: &mut Story) -> (Millis, Vec<Action>) {
    let first = story.now;
    for n_deaths in 1..limits::MAX_DEATHS_IN_WINDOW {
        story.ends(Exit::Signal(11));
        assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(backoff(n_deaths))));
        story.sleep();
        story.become_ready();
    }
    let actions = story.ends(Exit::Signal(11));
    story.is("failed");
    (first, actions)
}

#[test]
fn too_many_deaths_are_told_with_the_time_of_the_next_try() {
    let mut story = Story::ready();
    let (first, actions) = spend_the_budget(&mut story);
    let why = "5 workers died within 10 min, so none is started for 9 min 38 s after the last one, which ended by signal 11 \
               (SIGSEGV: a bug in the worker, not a lack of memory)";
    let until = first.saturating_add(limits::DEATH_WINDOW);
    let retry_after = Some(until.since(story.now));
    let end = RequestsEnd::NotReady { why: why.to_owned(), retry_after };
    assert_eq!(end.to_string(), format!("no model is ready: {why}"));
    assert_eq!(actions, [Action::ParkRequests, Action::FailRequests(end)]);
    assert_eq!(story.life.gate(story.now), Gate::Closed(ClosedReason::NotReady { why: why.to_owned(), retry_after }));
    assert_eq!((story.life.next_wake(), story.life.sentence().as_str()), (Some(until), why));
    story.wait(Millis::from_secs(60));
    let retry_after = Some(until.since(story.now));
    assert_eq!(story.life.gate(story.now), Gate::Closed(ClosedReason::NotReady { why: why.to_owned(), retry_after }));
}

#[test]
fn a_spent_budget_is_whole_again_death_by_death() {
    let mut story = Story::ready();
    spend_the_budget(&mut story);
    let until = story.life.next_wake().expect("it looks again");
    story.now = Millis(until.0 - 1);
    assert_eq!(story.tell(Event::Tick), [], "too early");
    assert_eq!(story.sleep(), [look()]);
    assert_eq!(story.life.gate(story.now), Gate::Hold);
    story.become_ready();
    // Four deaths are still in the window: the next one is the fifth. The second oldest leaves it a pause later.
    story.ends(Exit::Signal(11));
    story.is("failed");
    assert_eq!(story.life.next_wake(), Some(until.saturating_add(backoff(1))));
    assert_eq!(story.sleep(), [look()]);
    story.become_ready();
    story.now = story.now.saturating_add(limits::DEATH_WINDOW);
    story.ends(Exit::Signal(11));
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::BACKOFF_MIN)), "well for long enough");
}

#[test]
fn who_asks_gets_a_whole_budget_at_once() {
    let mut story = Story::ready();
    spend_the_budget(&mut story);
    assert_eq!(story.tell(Event::StartAsked), [look()]);
    story.become_ready();
    story.ends(Exit::Signal(11));
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::BACKOFF_MIN)), "a whole budget again");
}

#[test]
fn a_calm_time_forgives() {
    let mut story = Story::ready();
    for _ in 0..3 * limits::MAX_DEATHS_IN_WINDOW {
        story.now = story.now.saturating_add(limits::DEATH_WINDOW);
        story.ends(Exit::Code(1));
        assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::BACKOFF_MIN)));
        story.sleep();
        story.become_ready();
    }
}

#[test]
fn what_no_second_try_changes_is_not_tried_again() {
    let check = |event: WorkerEvent, expect: &str| {
        let mut story = Story::new();
        story.tell(Event::StartAsked);
        story.passes();
        let mut actions = story.worker(event);
        if story.life.state().name() == "stopping" {
            assert!(matches!(story.life.gate(story.now), Gate::Closed(ClosedReason::NotReady { .. })));
            assert_eq!(story.life.sentence(), expect);
            actions = story.ends(Exit::Code(6));
        }
        let end = RequestsEnd::NotReady { why: expect.to_owned(), retry_after: None };
        assert_eq!(actions, [Action::FailRequests(end)]);
        assert_eq!(story.life.state(), &State::Failed(Failure::Permanent { why: expect.to_owned() }));
    };
    let (class, why) = (ErrorClass::Permanent, "no such program".to_owned());
    check(WorkerEvent::SpawnFailed { class, why: why.clone() }, "no such program");
    check(WorkerEvent::LoadFailed { class, why }, "no such program");
    let ended = |code, meaning: &str| format!("the worker ended with exit code {code}: {meaning}");
    check(exited(Exit::Code(66)), &ended(66, "the model file is missing"));
    check(exited(Exit::Code(64)), &ended(64, "its configuration is wrong"));
    let damaged = "the model file is damaged or of a kind that this build does not know";
    check(exited(Exit::Code(6)), &ended(6, damaged));
    let usage = "it was called wrongly: daemon and worker are of different versions";
    check(exited(Exit::Code(2)), &ended(2, usage));

    let mut story = Story::new();
    story.tell(Event::StartAsked);
    story.tell(Event::CheckFailed { why: "no such file".to_owned() });
    assert_eq!(story.life.sentence(), "no such file");
    story.is("failed");
    assert_eq!((story.life.next_wake(), story.wait(Millis::from_secs(100_000))), (None, vec![]));
    let why = "no such file".to_owned();
    assert_eq!(story.life.gate(story.now), Gate::Closed(ClosedReason::NotReady { why, retry_after: None }));
}

#[test]
fn what_may_pass_is_tried_again_on_a_new_plan() {
    let check = |event: WorkerEvent, expect: &str| {
        let mut story = Story::new();
        story.tell(Event::StartAsked);
        story.passes();
        story.worker(event);
        if story.life.state().name() == "stopping" {
            assert_eq!(story.life.gate(story.now), Gate::Hold);
            story.ends(Exit::Code(0));
        }
        story.is("backoff");
        let cause = story.life.last_death().expect("it died").1.to_string();
        assert_eq!(cause, expect);
        assert_eq!(story.sleep(), [look()]);
    };
    let (class, why) = (ErrorClass::MayPass, "no memory".to_owned());
    check(WorkerEvent::SpawnFailed { class, why: why.clone() }, "could not be started: no memory");
    check(WorkerEvent::LoadFailed { class, why: why.clone() }, "could not load the model: no memory");
    check(WorkerEvent::SocketClosed { why }, "lost its socket: no memory");
    check(exited(Exit::Code(0)), "ended with exit code 0");
    check(exited(Exit::Signal(40)), "was killed from outside by someone unknown (signal 40)");
}

#[test]
fn the_exit_tells_more_than_the_socket() {
    let closed = || WorkerEvent::SocketClosed { why: "end of file".to_owned() };
    let mut story = Story::ready();
    assert_eq!(story.worker(closed()), [Action::ParkRequests]);
    assert!(story.life.sentence().contains("lost its socket: end of file"));
    assert_eq!(story.ends(Exit::Signal(7)), []);
    assert_eq!(story.life.last_death().map(|(_, cause)| cause), Some(&DeathClass::Fault { signal: 7 }));
    // One that closes its socket and stays is made to end.
    story.sleep();
    story.become_ready();
    story.worker(closed());
    assert_eq!(story.sleep(), [Action::SignalTerm]);
    assert_eq!(story.sleep(), [Action::SignalKill]);
}

#[test]
fn a_silent_worker_is_hung() {
    let mut story = Story::ready();
    let nearly = Millis(limits::HEARTBEAT_SILENCE.0 - 1);
    for _ in 0..10 {
        assert_eq!(story.wait(nearly), []);
        assert_eq!(story.worker(WorkerEvent::HeartbeatSeen), []);
        assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::HEARTBEAT_SILENCE)));
    }
    assert_eq!(story.sleep(), [Action::ParkRequests, Action::SignalTerm]);
    assert_eq!(story.wait(Millis(limits::TERM_GRACE.0 - 1)), []);
    assert_eq!(story.sleep(), [Action::SignalKill]);
    assert_eq!(story.life.next_wake(), None);
    assert_eq!(story.ends(Exit::Signal(9)), []);
    assert_eq!(story.life.last_death().map(|(_, cause)| cause), Some(&DeathClass::Hang(Hang::Silent)));
    assert_eq!(Hang::Silent.to_string(), "hung: nothing was heard of it for 1 min");
}

#[test]
fn a_start_may_be_slow_but_not_still() {
    let mut story = Story::new();
    story.tell(Event::StartAsked);
    story.passes();
    story.worker(WorkerEvent::Spawned);
    let mut step = Millis(limits::LOAD_SILENCE.0 - 1);
    story.worker(WorkerEvent::Hello);
    for done_bytes in 1..20 {
        assert_eq!(story.wait(step), []);
        story.worker(WorkerEvent::Loading { done_bytes, total_bytes: 100 });
    }
    // Neither the same bytes again nor a heartbeat are progress.
    step = Millis(limits::LOAD_SILENCE.0 / 2);
    story.wait(step);
    story.worker(WorkerEvent::Loading { done_bytes: 19, total_bytes: 100 });
    story.worker(WorkerEvent::Loading { done_bytes: 3, total_bytes: 100 });
    story.worker(WorkerEvent::HeartbeatSeen);
    assert_eq!(story.life.sentence(), "loading the model: 19 B of 100 B");
    assert_eq!(story.wait(step), [Action::SignalTerm]);
    assert!(
        matches!(story.life.state(), State::Stopping(stopping) if matches!(&stopping.then, Then::Recover(loss) if loss.hang == Some(Hang::LoadStalled)))
    );
}

#[test]
fn a_load_that_never_ends_is_ended() {
    let mut story = Story::new();
    story.tell(Event::StartAsked);
    story.passes();
    story.worker(WorkerEvent::Spawned);
    let started = story.now;
    for done_bytes in 1.. {
        story.worker(WorkerEvent::Loading { done_bytes, total_bytes: u64::MAX });
        if story.wait(Millis::from_secs(30)) == [Action::SignalTerm] {
            break;
        }
    }
    assert_eq!(story.now.since(started), limits::LOAD_DEADLINE);
    assert!(story.life.sentence().ends_with("was not ready after 30 min of loading"), "{}", story.life.sentence());
}

#[test]
fn a_worker_that_says_nothing_is_ended() {
    let mut story = Story::new();
    story.tell(Event::StartAsked);
    story.passes();
    story.worker(WorkerEvent::Spawned);
    assert_eq!(story.sleep(), [Action::SignalTerm]);
    assert!(story.life.sentence().ends_with("said nothing for 10 s after its start"), "{}", story.life.sentence());
    assert!(Hang::LoadStalled.to_string().ends_with("loaded nothing for 1 min"));
}

#[test]
fn a_refused_plan_is_looked_at_again_and_parked_requests_wait_for_a_while() {
    let mut story = Story::ready();
    story.ends(Exit::Signal(9));
    story.sleep();
    let refuse = |story: &mut Story| story.tell(Event::CheckRefused { why: "short by 5 MiB".to_owned() });
    let began = story.now;
    let mut failed_at = None;
    let retry_after = Some(limits::NOT_READY_RETRY_AFTER);
    let closed = Gate::Closed(ClosedReason::NotReady { why: "short by 5 MiB".to_owned(), retry_after });
    for _ in 0..1_450 {
        assert_eq!(refuse(&mut story), []);
        assert_eq!(story.life.sentence(), "short by 5 MiB");
        let gate = || if failed_at.is_none() { Gate::Hold } else { closed.clone() };
        assert_eq!(story.life.gate(story.now), gate(), "who comes now waits as long as the parked ones do");
        let mut actions = story.sleep();
        assert_eq!(actions.pop(), Some(look()));
        let gate = if actions.is_empty() { gate() } else { closed.clone() };
        assert_eq!(story.life.gate(story.now), gate, "no flicker while it looks again");
        if let Some(action) = actions.pop() {
            let end = RequestsEnd::NotReady { why: "short by 5 MiB".to_owned(), retry_after };
            assert_eq!((action, failed_at), (Action::FailRequests(end), None));
            failed_at = Some(story.now.since(began));
        }
    }
    assert_eq!(failed_at, Some(limits::PARK_DEADLINE));
    // Somebody who made room need not wait for the next look.
    refuse(&mut story);
    assert_eq!(story.tell(Event::StartAsked), [look()]);
    assert_eq!(story.passes(), [Action::Spawn(Generation(2))]);
}

#[test]
fn a_drain_waits_for_the_last_answer() {
    let mut story = Story::ready();
    assert_eq!(drain(&mut story, Millis::from_secs(30)), []);
    assert_eq!(story.life.gate(story.now), Gate::Closed(ClosedReason::Draining));
    assert_eq!(story.worker(WorkerEvent::HeartbeatSeen), []);
    assert_eq!(story.wait(Millis::from_secs(10)), []);
    assert_eq!(story.tell(Event::Drained), [Action::SendStop]);
    assert_eq!(
        (story.life.gate(story.now), story.life.sentence().as_str()),
        (Gate::Closed(ClosedReason::Draining), "stopping")
    );
    assert_eq!(story.ends(Exit::Code(0)), []);
    story.is("absent");
    assert_eq!(story.life.last_death(), None);
}

#[test]
fn a_drain_ends_at_its_deadline() {
    let mut story = Story::ready();
    drain(&mut story, Millis::from_secs(30));
    drain(&mut story, Millis::from_secs(5)); // a second order counts
    let end = RequestsEnd::DrainDeadline;
    assert_eq!(end.to_string(), "the server is ending and this answer took longer than it may wait");
    let asked = story.now;
    assert_eq!(story.sleep(), [Action::FailRequests(end), Action::SendStop]);
    assert_eq!(story.now.since(asked), Millis::from_secs(5));
    assert_eq!(story.sleep(), [Action::SignalTerm]);
    assert_eq!(story.sleep(), [Action::SignalKill]);
    assert_eq!(story.ends(Exit::Signal(9)), []);
    story.is("absent");
}

#[test]
fn a_drain_can_be_called_off() {
    let mut story = Story::ready();
    let before = story.life.clone();
    drain(&mut story, Millis::from_secs(30));
    assert_eq!(story.tell(Event::StartAsked), []);
    assert_eq!(story.life, before);
}

#[test]
fn nothing_is_started_for_the_last_answers() {
    let hour = Millis::from_secs(3600);
    let mut story = Story::ready();
    drain(&mut story, hour);
    assert_eq!(story.ends(Exit::Signal(11)), [stopped()]);
    story.is("absent");

    let mut story = Story::ready();
    drain(&mut story, hour);
    assert_eq!(story.sleep(), [stopped(), Action::SignalTerm], "hung");
    assert_eq!(story.ends(Exit::Signal(15)), []);
    story.is("absent");

    let mut story = Story::ready();
    drain(&mut story, hour);
    assert_eq!(story.worker(WorkerEvent::SocketClosed { why: "gone".to_owned() }), [stopped()]);
    assert_eq!(story.ends(Exit::Signal(11)), []);
    story.is("absent");
}

#[test]
fn a_stop_ends_whatever_there_is() {
    assert_eq!(Story::new().tell(Event::StopAsked), []);

    let mut story = Story::ready();
    assert_eq!(story.tell(Event::StopAsked), [stopped(), Action::SendStop]);
    assert_eq!(RequestsEnd::Stopped.to_string(), "the server was stopped");
    assert_eq!(story.ends(Exit::Code(0)), []);
    story.is("absent");

    story.tell(Event::StartAsked);
    assert_eq!(story.tell(Event::StopAsked), [stopped()]);
    story.is("absent");

    story.become_ready();
    story.ends(Exit::Signal(9));
    assert_eq!(story.tell(Event::StopAsked), [stopped()]);
    story.is("absent");

    story.become_ready();
    drain(&mut story, Millis::from_secs(30));
    assert_eq!(story.tell(Event::StopAsked), [stopped(), Action::SendStop]);

    let mut story = Story::new();
    story.tell(Event::StartAsked);
    story.passes();
    story.worker(WorkerEvent::Spawned);
    story.worker(WorkerEvent::Loading { done_bytes: 1, total_bytes: 2 });
    assert_eq!(story.tell(Event::StopAsked), [stopped(), Action::SendStop]);
}

#[test]
fn a_stop_while_a_process_is_being_made_waits_for_it() {
    let mut story = Story::new();
    story.tell(Event::StartAsked);
    story.passes();
    assert_eq!(story.tell(Event::StopAsked), [stopped()]);
    assert_eq!((story.wait(Millis::from_secs(3600)), story.life.next_wake()), (vec![], None));
    assert_eq!(story.worker(WorkerEvent::Spawned), [Action::SignalTerm]);
    assert_eq!(story.ends(Exit::Signal(15)), []);
    story.is("absent");

    story.tell(Event::StartAsked);
    story.passes();
    story.tell(Event::StopAsked);
    let why = "no memory".to_owned();
    assert_eq!(story.worker(WorkerEvent::SpawnFailed { class: ErrorClass::MayPass, why }), []);
    story.is("absent");
}

#[test]
fn a_start_that_is_asked_for_during_a_stop_comes_after_it() {
    let mut story = Story::ready();
    story.tell(Event::StopAsked);
    assert_eq!(story.tell(Event::StartAsked), []);
    assert_eq!((story.life.gate(story.now), story.life.sentence().as_str()), (Gate::Hold, "stopping, to start again"));
    assert_eq!(story.ends(Exit::Code(0)), [look()]);
    // And one that is called off again does not.
    story.become_ready();
    story.tell(Event::StopAsked);
    story.tell(Event::StartAsked);
    assert_eq!(story.tell(Event::StopAsked), [stopped()]);
    assert_eq!(story.ends(Exit::Code(0)), []);
    story.is("absent");
    // A lost worker's successor comes after the pause that it earned.
    story.become_ready();
    story.sleep();
    assert_eq!(story.tell(Event::StartAsked), []);
    story.ends(Exit::Signal(15));
    story.is("backoff");
    assert_eq!(story.tell(Event::StartAsked), [look()]);
}
