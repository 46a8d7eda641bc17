//! What a worker died of, and what is learned, awaited and tried after it.

mod story;

use plimsoll_config::limits;
use plimsoll_config::units::{Bytes, Millis, Tokens};
use plimsoll_decide::admission::{ClosedReason, Gate};
use plimsoll_decide::lifecycle::death::{
    Asked, DeathClass, Evidence, Exit, Hang, LastWord, OomAccount, OomKills, Traces, classify, names_oom_kill,
};
use plimsoll_decide::lifecycle::learned::{Learned, Lowered};
use plimsoll_decide::lifecycle::{
    Action, ErrorClass, Event, Failure, Generation, Lifecycle, PlanId, RequestsEnd, State, WorkerEvent, backoff,
};
use plimsoll_decide::plan::{CapLever, Caps};

use story::{Story, look};

const KILL: Exit = Exit::Signal(9);
const SEGV: Exit = Exit::Signal(11);

fn why() -> String {
    "why".to_owned()
}

fn oom() -> Traces {
    Traces { oom_kills: Some(OomKills { before: 1, after: 2 }), ..Traces::default() }
}

fn xid(xid: u32) -> Traces {
    Traces { xid: Some(xid), ..Traces::default() }
}

/// A death that nobody asked for and that left no trace.
fn evidence(exit: Exit) -> Evidence {
    Evidence { exit, traces: Traces::default(), last_word: None, hang: None, asked: Asked::No }
}

#[test]
fn each_evidence_has_its_class_and_its_sentence() {
    let check = |evidence: Evidence, name: &str, words: &str| {
        let class = classify(&evidence);
        assert_eq!(class.name(), name, "{evidence:?}");
        assert!(class.to_string().contains(words), "{class}");
    };
    let with = |exit, traces| Evidence { traces, ..evidence(exit) };
    let says = |exit, last_word| Evidence { last_word: Some(last_word), ..evidence(exit) };
    let line = "Out of memory: Killed process 7 (plimsoll-worker)".to_owned();
    let named = Traces { kernel_log: Some(line), ..Traces::default() };
    let same = Traces { oom_kills: Some(OomKills { before: 2, after: 2 }), ..Traces::default() };
    let asked = |exit, asked| Evidence { asked, ..evidence(exit) };

    check(with(KILL, named.clone()), "kernel_oom", "ended by the kernel because memory ran out");
    check(Evidence { traces: named, ..asked(KILL, Asked::Killed) }, "kernel_oom", "memory");
    check(with(KILL, oom()), "kernel_oom", "memory");
    check(Evidence { traces: oom(), ..asked(KILL, Asked::ToEnd) }, "kernel_oom", "memory");
    check(Evidence { traces: oom(), ..asked(KILL, Asked::Killed) }, "clean", "asked");
    check(with(SEGV, oom()), "fault", "not a lack of memory");
    check(with(KILL, same), "killed", "from outside by someone unknown (signal 9, SIGKILL)");
    check(evidence(KILL), "killed", "someone unknown");
    check(evidence(Exit::Signal(40)), "killed", "(signal 40)");
    check(with(Exit::Code(1), xid(79)), "gpu_fault", "Xid 79 (the card has fallen off the bus)");
    check(with(KILL, xid(13)), "gpu_fault", "impossible access");
    check(with(KILL, xid(999)), "gpu_fault", "Xid 999");
    check(with(KILL, xid(45)), "killed", "someone unknown");
    let exhausted = |account| LastWord::Exhausted { account, why: why() };
    check(says(Exit::Code(3), exhausted(OomAccount::Vram)), "vram_exhausted", "on the card: why");
    check(says(Exit::Code(3), exhausted(OomAccount::Host)), "host_exhausted", "no host memory: why");
    check(says(Exit::Code(3), LastWord::LoadFailed { why: why() }), "load_failed", "could not load the model: why");
    let lost = || LastWord::SocketLost { why: why() };
    for exit in [Exit::Code(0), Exit::Code(5)] {
        check(says(exit, lost()), "socket_lost", "lost its socket: why");
    }
    check(says(Exit::Code(1), lost()), "exited", "exit code 1");
    check(says(Exit::Signal(15), lost()), "killed", "SIGTERM");
    check(says(SEGV, lost()), "fault", "SIGSEGV");
    let ended = |exit, asked| Evidence { asked, ..says(exit, lost()) };
    check(ended(Exit::Signal(15), Asked::ToEnd), "socket_lost", "lost its socket");
    check(ended(Exit::Code(1), Asked::ToEnd), "socket_lost", "lost its socket");
    check(ended(KILL, Asked::Killed), "socket_lost", "lost its socket");
    for signal in [4, 7, 8, 11, 31] {
        check(evidence(Exit::Signal(signal)), "fault", &format!("signal {signal} (SIG"));
    }
    check(evidence(Exit::Signal(6)), "abort", "signal 6");
    check(evidence(Exit::Signal(5)), "abort", "signal 5");
    check(evidence(Exit::Code(101)), "abort", "exit code 101: it gave up, a bug");
    for code in [2, 6, 64, 66] {
        check(evidence(Exit::Code(code)), "bad_configuration", &format!("exit code {code}: "));
    }
    check(evidence(Exit::Code(0)), "exited", "exit code 0");
    check(asked(Exit::Code(0), Asked::ToEnd), "clean", "as it was asked to");
    check(asked(Exit::Code(64), Asked::ToEnd), "clean", "");
    check(asked(Exit::Signal(15), Asked::ToEnd), "clean", "");
    check(asked(Exit::Signal(15), Asked::Killed), "clean", "");
    check(asked(KILL, Asked::Killed), "clean", "");
    check(asked(KILL, Asked::ToEnd), "killed", "someone unknown");
    check(asked(SEGV, Asked::Killed), "fault", "SIGSEGV");
    for hang in [Hang::NoHello, Hang::LoadStalled, Hang::LoadTooLong, Hang::Silent] {
        let found = Evidence { hang: Some(hang), ..asked(KILL, Asked::Killed) };
        check(found, "hang", &hang.to_string());
    }
    for exit in [Exit::Code(7), Exit::Signal(9)] {
        assert!(classify(&evidence(exit)).to_string().contains(exit.to_string().rsplit(' ').next().expect("a number")));
    }
}

#[test]
fn the_kernels_line_names_one_pid() {
    let line = "[ 12.3] Memory cgroup out of memory: Killed process 4410 (plimsoll-worke) total-vm:1kB";
    assert!(names_oom_kill(line, 4410));
    for pid in [441, 44_100, 0] {
        assert!(!names_oom_kill(line, pid), "{pid}");
    }
    assert!(names_oom_kill("Out of memory: Killed process 7, UID 0", 7));
    assert!(!names_oom_kill("Killed process 7 (x)", 7));
    assert!(!names_oom_kill("Out of memory: Killed process ", 7));
}

#[test]
fn a_card_that_needs_a_person_is_not_tried_again() {
    for (number, is_permanent) in [(79, true), (119, true), (120, true), (13, false), (31, false), (48, false)] {
        let mut story = Story::ready();
        let actions = story.ends_with(Exit::Code(1), xid(number));
        story.is(if is_permanent { "failed" } else { "backoff" });
        assert_eq!(actions.len(), if is_permanent { 2 } else { 1 }, "{actions:?}");
        assert_eq!(story.life.next_wake().is_none(), is_permanent);
        assert_eq!(story.deaths, [DeathClass::GpuFault { xid: number }]);
    }
}

#[test]
fn memory_is_awaited_before_anything_else_and_an_order_meanwhile_is_kept() {
    let releasing = || {
        let mut story = Story::ready();
        let generation = Generation(1);
        let event = WorkerEvent::Exited { exit: SEGV, traces: Traces::default() };
        let actions = story.tell(Event::Worker { generation, event });
        assert_eq!(actions, [Action::ParkRequests, Action::AwaitRelease(generation)]);
        story.is("releasing");
        assert_eq!(story.life.gate(story.now), Gate::Hold);
        assert!(story.life.sentence().contains("waiting for its memory"), "{}", story.life.sentence());
        assert_eq!(story.life.state().generation(), None);
        story
    };
    let (mut story, generation) = (releasing(), Generation(1));
    // The pause is counted from the death: memory that was awaited for longer than that costs no further wait.
    assert_eq!(story.wait(Millis(400)), []);
    assert_eq!(story.tell(Event::Released { generation: Generation(2) }), []);
    assert_eq!(story.tell(Event::ReleaseTimedOut { generation, held: "3 GiB".to_owned() }), []);
    story.is("backoff");
    assert_eq!(story.tell(Event::Tick), [look()]);

    let mut story = releasing();
    assert_eq!(story.tell(Event::StartAsked), []);
    assert!(story.life.sentence().contains("to start again"), "{}", story.life.sentence());
    assert_eq!(story.tell(Event::Released { generation }), [look()]);

    let mut story = releasing();
    assert_eq!(story.tell(Event::StopAsked), [Action::FailRequests(RequestsEnd::Stopped)]);
    assert_eq!(story.life.gate(story.now), Gate::Closed(ClosedReason::Draining));
    assert!(story.life.sentence().contains("stopped"), "{}", story.life.sentence());
    assert_eq!(story.tell(Event::StartAsked), []);
    assert_eq!(story.tell(Event::DrainAsked { deadline: story.now }), [Action::FailRequests(RequestsEnd::Stopped)]);
    assert_eq!(story.tell(Event::Released { generation }), []);
    story.is("absent");

    // Nobody answers: it goes on.
    let mut story = releasing();
    let died = story.now;
    let longest = limits::RELEASE_TIMEOUT.saturating_add(limits::RELEASE_ANSWER_GRACE);
    assert_eq!((story.sleep(), story.now.since(died)), (vec![], longest));
    story.is("backoff");
}

#[test]
fn a_failure_is_told_while_memory_is_awaited_and_can_be_overruled() {
    let mut story = Story::starting();
    let event = WorkerEvent::Exited { exit: Exit::Code(66), traces: Traces::default() };
    story.tell(Event::Worker { generation: Generation(1), event });
    story.is("releasing");
    assert!(story.life.sentence().ends_with("the model file is missing"), "{}", story.life.sentence());
    assert!(matches!(story.life.gate(story.now), Gate::Closed(ClosedReason::NotReady { .. })));
    story.tell(Event::StartAsked);
    assert_eq!(story.life.gate(story.now), Gate::Hold);
    assert_eq!(story.tell(Event::Released { generation: Generation(1) }), [look()]);
}

#[test]
fn a_restart_keeps_the_answers() {
    let mut story = Story::ready();
    assert_eq!(story.tell(Event::RestartAsked { at_once: false }), [Action::ParkRequests, Action::SendStop]);
    assert_eq!(story.life.gate(story.now), Gate::Hold);
    assert_eq!(story.ends(Exit::Code(0)), [look()]);
    story.become_ready();
    assert_eq!((story.deaths.len(), story.life.last_death()), (0, None));
    // A load that is given up: the machine had no room, and the next try comes after a pause.
    for (at_once, end) in [(false, Action::SendStop), (true, Action::SignalKill)] {
        let mut story = Story::starting();
        assert_eq!(story.tell(Event::RestartAsked { at_once }), [end]);
        assert_eq!(story.ends(Exit::Signal(9)), []);
        let ended = story.now;
        assert_eq!(story.sleep(), [look()]);
        assert_eq!(story.now.since(ended), limits::RECHECK_PAUSE);
    }
    let mut story = Story::ready();
    assert_eq!(story.tell(Event::RestartAsked { at_once: true }), [Action::ParkRequests, Action::SignalKill]);
    assert_eq!(story.ends(Exit::Signal(9)), [look()]);
    assert_eq!(story.life.last_death(), None, "our own kill is no death");
    let mut story = Story::ready();
    story.tell(Event::RestartAsked { at_once: false });
    assert_eq!(story.tell(Event::RestartAsked { at_once: true }), [Action::SignalKill], "it took too long");
    assert_eq!(story.tell(Event::RestartAsked { at_once: true }), []);
    for mut story in [Story::new(), {
        let mut story = Story::ready();
        story.tell(Event::StopAsked);
        story
    }] {
        let before = story.life.clone();
        assert_eq!((story.tell(Event::RestartAsked { at_once: false }), story.life), (vec![], before));
    }
}

// ---- learned limits -------------------------------------------------------------------------------------------------

fn budget(gib: u64) -> Caps {
    Caps { resident_budget: Some(Bytes::from_gib(gib)), ..Caps::default() }
}

/// Dies for want of host memory while it serves; the next look is under these bounds.
fn runs_out(story: &mut Story) -> Vec<Action> {
    let mut actions = story.ends_with(KILL, oom());
    if story.life.state().name() == "backoff" {
        actions.extend(story.sleep());
    }
    actions
}

#[test]
fn after_an_oom_the_same_plan_is_never_tried_again() {
    let mut story = Story::ready();
    let under = |caps| Action::Look { caps, fallback: None };
    assert_eq!(runs_out(&mut story), [Action::ParkRequests, Action::StoreLearned, under(budget(28))]);
    assert_eq!(story.deaths, [DeathClass::KernelOom]);
    let step = Lowered {
        account: OomAccount::Host,
        lever: CapLever::ResidentBudget,
        from: Bytes::from_gib(32).0,
        to: Bytes::from_gib(28).0,
    };
    assert_eq!(story.life.learned(), &Learned { steps: vec![step], calm: Millis(0) });
    // Each further one is a step lower.
    story.plan = PlanId(2);
    story.ours = budget(16);
    story.become_ready();
    assert_eq!(runs_out(&mut story)[2], under(budget(14)));
    // A planner that comes with the same plan all the same is told so.
    let actions = story.passes();
    assert!(matches!(&actions[..], [Action::FailRequests(RequestsEnd::NotReady { .. })]), "{actions:?}");
    let until = story.life.next_wake().expect("it tries again after a calm time");
    assert!(matches!(story.life.state(), State::Failed(Failure::SamePlan { .. })));
    assert_eq!(story.life.last_death().map(|(at, _)| at.saturating_add(limits::LEARNED_CALM)), Some(until));
    // Somebody asks: it may.
    story.tell(Event::StartAsked);
    story.become_ready();
}

#[test]
fn what_cannot_be_lowered_is_not_tried_until_somebody_asks_or_it_was_calm() {
    let spent = || {
        let mut story = Story::ready();
        story.ours = Caps::default();
        story.worker(WorkerEvent::HeartbeatSeen);
        story.ends(SEGV);
        story.sleep();
        story.become_ready();
        let actions = story.ends_with(KILL, oom());
        assert_eq!(actions.len(), 2, "{actions:?}");
        story.is("failed");
        let words = story.life.sentence();
        assert!(words.contains("memory ran out, and nothing of its plan may be lowered"), "{words}");
        assert!(words.contains("for 2 h unless somebody asks"), "{words}");
        story
    };
    let mut story = spent();
    let died = story.now;
    assert_eq!(story.life.gate(story.now), {
        let retry_after = Some(limits::LEARNED_CALM);
        Gate::Closed(ClosedReason::NotReady { why: story.life.sentence(), retry_after })
    });
    assert_eq!((story.sleep(), story.now.since(died)), (vec![look()], limits::LEARNED_CALM));
    story.become_ready();
    let mut story = spent();
    assert_eq!(story.tell(Event::StartAsked), [look()]);
    story.become_ready();
}

#[test]
fn the_worker_may_say_itself_that_memory_ran_out() {
    for serves in [true, false] {
        let mut story = if serves { Story::ready() } else { Story::starting() };
        story.ours = Caps::default();
        let account = OomAccount::Host;
        let actions = story.worker(WorkerEvent::Exhausted { account, why: why() });
        assert_eq!(actions, if serves { vec![Action::ParkRequests] } else { vec![] });
        assert!(story.life.sentence().contains("found no host memory: why"), "{}", story.life.sentence());
        assert_eq!(story.ends(Exit::Code(3)), [Action::StoreLearned]);
        assert_eq!(story.deaths, [DeathClass::HostExhausted { why: why() }]);
    }
    // After the socket was lost it still counts; after a stop that was asked for it does not.
    let mut story = Story::ready();
    story.worker(WorkerEvent::SocketClosed { why: why() });
    story.worker(WorkerEvent::Exhausted { account: OomAccount::Host, why: why() });
    assert_eq!(story.ends(Exit::Code(3)), [Action::StoreLearned]);
    let mut story = Story::ready();
    story.tell(Event::StopAsked);
    story.worker(WorkerEvent::Exhausted { account: OomAccount::Host, why: why() });
    assert_eq!(story.ends(Exit::Code(3)), []);
    // But what the kernel did on the way out does.
    let mut story = Story::ready();
    story.tell(Event::StopAsked);
    assert_eq!(story.ends_with(KILL, oom()), [Action::StoreLearned]);
    assert_eq!(story.deaths, []);
}

#[test]
fn levers_of_an_account_are_lowered_in_order_and_to_their_floors() {
    let ours = Caps {
        resident_budget: Some(Bytes::from_mib(200)),
        n_ctx: Some(Tokens(5000)),
        expert_cache: Some(Bytes::from_mib(1024)),
        gpu_layers: Some(20),
        kv_window: Some(Tokens(16_384)),
    };
    let mut learned = Learned::default();
    let mut lower = |account, ours: &Caps| learned.lower(account, ours).map(|step| (step.lever, step.from, step.to));
    let mib = |n| Bytes::from_mib(n).0;
    let (host, vram) = (OomAccount::Host, OomAccount::Vram);
    assert_eq!(lower(host, &ours), Some((CapLever::ResidentBudget, mib(200), mib(136))));
    let none = Caps { resident_budget: None, ..ours };
    assert_eq!(lower(host, &none), Some((CapLever::Context, 5000, 4096)));
    let little = Caps { resident_budget: Some(Bytes::from_mib(64)), n_ctx: Some(Tokens(2048)), ..ours };
    assert_eq!(lower(host, &little), Some((CapLever::Context, 2048, 1024)));
    let least = Caps { n_ctx: Some(limits::AUTO_CONTEXT_FLOOR), ..little };
    assert_eq!(lower(host, &least), None);

    assert_eq!(lower(vram, &ours), Some((CapLever::ExpertCache, mib(1024), mib(896))));
    let dense = Caps { expert_cache: None, ..ours };
    assert_eq!(lower(vram, &dense), Some((CapLever::GpuLayers, 20, 18)));
    let few = Caps { gpu_layers: Some(3), ..dense };
    assert_eq!(lower(vram, &few), Some((CapLever::GpuLayers, 3, 2)));
    assert_eq!(lower(vram, &Caps { gpu_layers: Some(1), ..dense }), Some((CapLever::GpuLayers, 1, 0)));
    let window = Caps { gpu_layers: Some(0), ..dense };
    assert_eq!(lower(vram, &window), Some((CapLever::KvWindow, 16_384, 8192)));
    let narrow = Caps { kv_window: Some(Tokens(4096)), ..window };
    assert_eq!(lower(vram, &narrow), Some((CapLever::Context, 5000, 4096)));
    // The lowest bound of each counts.
    let caps = learned.caps();
    assert_eq!((caps.n_ctx, caps.gpu_layers, caps.kv_window), (Some(Tokens(1024)), Some(0), Some(Tokens(8192))));
    assert_eq!((caps.resident_budget, caps.expert_cache), (Some(Bytes::from_mib(136)), Some(Bytes::from_mib(896))));
    for _ in 0..2 * limits::MAX_LEARNED_STEPS {
        learned.lower(vram, &ours);
    }
    assert_eq!(learned.steps.len(), limits::MAX_LEARNED_STEPS);
}

#[test]
fn limits_are_given_up_step_by_step_after_a_calm_time_of_serving() {
    let step = |to| Lowered { account: OomAccount::Host, lever: CapLever::Context, from: 8192, to };
    let mut story = Story::new();
    // From an earlier daemon, half of the calm time behind it.
    let calm = Millis(limits::LEARNED_CALM.0 / 2);
    story.life = Lifecycle::with_learned(Learned { steps: vec![step(4096), step(2048)], calm });
    let caps = |n_ctx| Caps { n_ctx: Some(Tokens(n_ctx)), ..Caps::default() };
    assert_eq!(story.tell(Event::StartAsked), [Action::Look { caps: caps(2048), fallback: None }]);
    story.become_ready();
    let serve = |story: &mut Story, span: Millis| {
        let until = story.now.saturating_add(span);
        while story.now < until {
            story.now = until.min(story.now.saturating_add(Millis::from_secs(30)));
            story.worker(WorkerEvent::HeartbeatSeen);
        }
    };
    // A quarter of it, then a death that has nothing to do with memory: the calm time goes on after it.
    serve(&mut story, Millis(limits::LEARNED_CALM.0 / 4));
    assert_eq!(story.tell(Event::Tick), []);
    story.ends(SEGV);
    assert_eq!(story.life.learned().calm, Millis(limits::LEARNED_CALM.0 / 4 * 3));
    story.sleep();
    story.become_ready();
    serve(&mut story, Millis(limits::LEARNED_CALM.0 / 4 - 1));
    assert_eq!(story.tell(Event::Tick), []);
    assert_eq!(story.sleep(), [Action::StoreLearned]);
    assert_eq!(story.life.learned(), &Learned { steps: vec![step(4096)], calm: Millis(0) });
    // The other one needs a whole calm time of its own.
    serve(&mut story, Millis(limits::LEARNED_CALM.0 - 1));
    assert_eq!(story.tell(Event::Tick), []);
    story.now = story.now.saturating_add(Millis(1));
    assert_eq!(story.tell(Event::Tick), [Action::StoreLearned]);
    assert_eq!(story.life.learned(), &Learned::default());
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(Millis(limits::HEARTBEAT_SILENCE.0 - 1))));
}

// ---- fallback -------------------------------------------------------------------------------------------------------

#[test]
fn a_plan_that_never_came_up_falls_back_once_to_the_one_that_served() {
    let mut story = Story::ready();
    let fallback = Action::Look { caps: Caps::default(), fallback: Some(PlanId(1)) };
    let fails = |story: &mut Story, plan| {
        story.plan = PlanId(plan);
        story.passes();
        story.worker(WorkerEvent::Spawned);
        story.worker(WorkerEvent::LoadFailed { class: ErrorClass::MayPass, why: why() });
        story.ends(Exit::Code(3))
    };
    story.tell(Event::RestartAsked { at_once: false });
    story.ends(Exit::Code(0));
    assert_eq!(fails(&mut story, 2).first(), Some(&fallback), "without a pause");
    // It does not come up either: as usual from here on.
    assert_eq!(fails(&mut story, 1), []);
    story.is("backoff");
    assert_eq!(story.sleep(), [look()]);
    assert_eq!(fails(&mut story, 3), [], "once");
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(backoff(3))));
    story.sleep();
    // Once it has served there is another try.
    story.plan = PlanId(1);
    story.become_ready();
    story.tell(Event::RestartAsked { at_once: false });
    story.ends(Exit::Code(0));
    assert_eq!(fails(&mut story, 2), [fallback]);
}

#[test]
fn there_is_no_fallback_to_the_same_plan_nor_for_one_that_served_nor_to_one_that_ran_out() {
    let mut story = Story::ready();
    assert_eq!(story.ends(SEGV), [Action::ParkRequests]);
    story.is("backoff");
    story.sleep();
    story.passes();
    assert_eq!(story.worker(WorkerEvent::SpawnFailed { class: ErrorClass::MayPass, why: why() }), []);
    story.is("backoff");
    // The plan that served runs out of memory, the smaller one does not come up.
    story.sleep();
    story.become_ready();
    runs_out(&mut story);
    story.plan = PlanId(2);
    story.passes();
    story.worker(WorkerEvent::Spawned);
    assert_eq!(story.ends(SEGV), []);
    story.is("backoff");
}

#[test]
fn a_new_plan_that_runs_out_at_once_with_nothing_to_lower_falls_back() {
    let mut story = Story::ready();
    story.tell(Event::RestartAsked { at_once: false });
    story.ends(Exit::Code(0));
    (story.plan, story.ours) = (PlanId(2), Caps::default());
    story.passes();
    story.worker(WorkerEvent::Spawned);
    let fallback = Action::Look { caps: Caps::default(), fallback: Some(PlanId(1)) };
    assert_eq!(story.ends_with(KILL, oom()), [fallback]);
    assert!(story.life.sentence().contains("looking"));
}

// ---- a daemon that stood still --------------------------------------------------------------------------------------

#[test]
fn a_daemon_that_stood_still_does_not_take_it_for_a_hang_but_once() {
    let late = Millis(limits::HEARTBEAT_SILENCE.0 + limits::LATE_TICK.0);
    let mut story = Story::ready();
    assert_eq!(story.wait(late), []);
    story.is("ready");
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::HEARTBEAT_SILENCE)));
    // Still nothing, and late again: now it is one.
    assert_eq!(story.wait(late), [Action::ParkRequests, Action::SignalTerm]);

    // Each time that it was heard in between.
    let mut story = Story::ready();
    for _ in 0..5 {
        assert_eq!(story.wait(late), []);
        story.worker(WorkerEvent::HeartbeatSeen);
    }
    // A little late is not late.
    assert_eq!(story.wait(Millis(late.0 - 1)), [Action::ParkRequests, Action::SignalTerm]);

    let mut story = Story::ready();
    story.tell(Event::DrainAsked { deadline: Millis(u64::MAX) });
    assert_eq!(story.wait(late), []);
    story.worker(WorkerEvent::HeartbeatSeen);
    assert_eq!(story.wait(late), []);
    assert_eq!(story.wait(late).len(), 2);

    let mut story = Story::starting();
    assert_eq!(story.wait(Millis(limits::HELLO_DEADLINE.0 + limits::LATE_TICK.0)), []);
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::HELLO_DEADLINE)));
    story.worker(WorkerEvent::Hello);
    assert_eq!(story.wait(Millis(limits::LOAD_SILENCE.0 + limits::LATE_TICK.0)), []);
    assert_eq!(story.life.next_wake(), Some(story.now.saturating_add(limits::LOAD_SILENCE)));
    story.worker(WorkerEvent::Loading { done_bytes: 0, total_bytes: 9 });
    assert_eq!(story.sleep(), [Action::SignalTerm]);
}
