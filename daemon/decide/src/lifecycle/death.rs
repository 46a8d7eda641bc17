//! What a worker died of: evidence in, a class out.
//!
//! A wrong class costs: a crash that is taken for a lack of memory makes the plan smaller for nothing, and a kill from
//! outside that is taken for one accuses the machine. So each rule asks for its own evidence, the rules are a table in the
//! order of how much their evidence proves, and a SIGKILL without any is somebody unknown.
//!
//! The lifecycle gathers the [`Evidence`] (what the worker said, what we did to it, what the daemon's probes saw) and calls
//! [`classify`].

use std::fmt;

use plimsoll_config::limits;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// What the machine shows of a death. What could not be read is `None`, and proves nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    /// `oom_kill` of the worker's control group.
    pub oom_kills: Option<OomKills>,
    /// The kernel's line that names the worker's pid as killed for memory ([`names_oom_kill`]).
    pub kernel_log: Option<String>,
    /// The Xid that the driver logged for the worker's pid or its card, the gravest if there were several.
    pub xid: Option<u32>,
}

/// A counter before the worker's start and after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomKills {
    /// When it was started.
    pub before: u64,
    /// When it was gone.
    pub after: u64,
}

/// An account that memory can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OomAccount {
    /// Host memory.
    Host,
    /// A card's.
    Vram,
}

/// How we noticed that a worker hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// No first frame came.
    NoHello,
    /// No byte arrived during the load.
    LoadStalled,
    /// The load took too long.
    LoadTooLong,
    /// It was silent while it should serve.
    Silent,
}

/// The last thing that was heard of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastWord {
    /// It found no memory and ended by itself.
    Exhausted {
        /// Where.
        account: OomAccount,
        /// One sentence.
        why: String,
    },
    /// It can't load the model now.
    LoadFailed {
        /// One sentence.
        why: String,
    },
    /// Its socket closed, or carried nonsense.
    SocketLost {
        /// One sentence.
        why: String,
    },
}

/// What we did to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Nothing.
    No,
    /// A stop frame or SIGTERM.
    ToEnd,
    /// SIGKILL.
    Killed,
}

/// All that is known of a worker's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// How its process ended.
    pub exit: Exit,
    /// What the machine shows.
    pub traces: Traces,
    /// What was last heard.
    pub last_word: Option<LastWord>,
    /// Whether we found it hanging.
    pub hang: Option<Hang>,
    /// What we did to end it.
    pub asked: Asked,
}

/// What a worker died of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeathClass {
    /// The kernel ended it because memory ran out.
    KernelOom,
    /// The system gave it no host memory, and it ended by itself.
    HostExhausted {
        /// One sentence.
        why: String,
    },
    /// The card gave it no memory, and it ended by itself.
    VramExhausted {
        /// One sentence.
        why: String,
    },
    /// The driver reported a fault of the card.
    GpuFault {
        /// The driver's number for it.
        xid: u32,
    },
    /// The processor refused what it did: a bug, not capacity.
    Fault {
        /// SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGSYS.
        signal: i32,
    },
    /// It gave itself up: a bug.
    Abort(Exit),
    /// It did not go on, and we ended it.
    Hang(Hang),
    /// A signal from outside, by someone unknown.
    Killed {
        /// Which one.
        signal: i32,
    },
    /// No second try changes its exit code.
    BadConfiguration {
        /// The code.
        code: i32,
    },
    /// It can't load the model now.
    LoadFailed {
        /// One sentence.
        why: String,
    },
    /// Its process could not be made.
    SpawnFailed {
        /// One sentence.
        why: String,
    },
    /// Its socket closed or carried nonsense, and nothing else is known.
    SocketLost {
        /// One sentence.
        why: String,
    },
    /// It returned with a code that means nothing more.
    Exited {
        /// The code.
        code: i32,
    },
    /// It ended because we asked it to.
    Clean,
}

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;
const SIGSYS: i32 = 31;

/// The worker's code for "the other end of my socket is gone": it tells less than how we lost the socket.
const CODE_NO_DAEMON: i32 = 5;

/// The code of a Rust program that panicked.
const CODE_PANIC: i32 = 101;

/// Exit codes of the worker that no second try changes, and what they mean.
const PERMANENT_CODES: [(i32, &str); 4] = [
    (2, "it was called wrongly: daemon and worker are of different versions"),
    (6, "the model file is damaged or of a kind that this build does not know"),
    (64, "its configuration is wrong"),
    (66, "the model file is missing"),
];

/// Signals that the processor or the kernel sends to a program for what it did itself.
const FAULTS: [(i32, &str); 5] = [
    (SIGILL, "SIGILL: this processor lacks an instruction"),
    (SIGBUS, "SIGBUS: a mapped file became shorter or could not be read"),
    (SIGFPE, "SIGFPE: an impossible calculation, a bug"),
    (SIGSEGV, "SIGSEGV: a bug in the worker, not a lack of memory"),
    (SIGSYS, "SIGSYS: a system call was forbidden"),
];

/// Signals that come from outside, by name.
const OUTSIDE: [(i32, &str); 4] = [(1, "SIGHUP"), (2, "SIGINT"), (SIGKILL, "SIGKILL"), (SIGTERM, "SIGTERM")];

/// The driver's numbers that people meet. The first three need a person: a reset, a reboot or a look at the slot.
const XIDS: [(u32, bool, &str); 7] = [
    (79, true, "the card has fallen off the bus"),
    (119, true, "the card's firmware does not answer"),
    (120, true, "the card's firmware failed"),
    (13, false, "a kernel made an impossible access"),
    (31, false, "a kernel touched memory that is not there"),
    (48, false, "a memory error that could not be corrected"),
    (74, false, "an error of the link between cards"),
];

/// The driver cleans up after any process that was killed and logs it under this number: an effect, not a cause.
const XID_CLEANUP: u32 = 45;

/// The rules, the most telling evidence first. The last one always answers.
const RULES: [fn(&Evidence) -> Option<DeathClass>; 9] = [
    kernel_oom,
    gpu_fault,
    exhausted,
    found_hanging,
    load_failed,
    own_signal,
    ended_on_request,
    lost_socket,
    bad_configuration,
];

/// What a worker died of.
pub fn classify(evidence: &Evidence) -> DeathClass {
    RULES.iter().find_map(|rule| rule(evidence)).unwrap_or(match evidence.exit {
        Exit::Code(code) => DeathClass::Exited { code },
        Exit::Signal(signal) => DeathClass::Killed { signal },
    })
}

/// The kernel's line names the pid, or its counter rose and SIGKILL came from nobody that we know. A counter alone proves
/// nothing when we sent SIGKILL ourselves.
fn kernel_oom(evidence: &Evidence) -> Option<DeathClass> {
    let is_named = evidence.traces.kernel_log.is_some();
    let has_risen = evidence.traces.oom_kills.is_some_and(|kills| kills.after > kills.before);
    let is_unexplained = evidence.exit == Exit::Signal(SIGKILL) && evidence.asked != Asked::Killed;
    (is_named || (has_risen && is_unexplained)).then_some(DeathClass::KernelOom)
}

fn gpu_fault(evidence: &Evidence) -> Option<DeathClass> {
    evidence.traces.xid.filter(|xid| *xid != XID_CLEANUP).map(|xid| DeathClass::GpuFault { xid })
}

fn exhausted(evidence: &Evidence) -> Option<DeathClass> {
    match evidence.last_word.clone()? {
        LastWord::Exhausted { account: OomAccount::Host, why } => Some(DeathClass::HostExhausted { why }),
        LastWord::Exhausted { account: OomAccount::Vram, why } => Some(DeathClass::VramExhausted { why }),
        LastWord::LoadFailed { .. } | LastWord::SocketLost { .. } => None,
    }
}

fn found_hanging(evidence: &Evidence) -> Option<DeathClass> {
    evidence.hang.map(DeathClass::Hang)
}

fn load_failed(evidence: &Evidence) -> Option<DeathClass> {
    match evidence.last_word.clone()? {
        LastWord::LoadFailed { why } => Some(DeathClass::LoadFailed { why }),
        LastWord::Exhausted { .. } | LastWord::SocketLost { .. } => None,
    }
}

/// A signal or code that tells what the program did itself, whoever else wanted it to end.
fn own_signal(evidence: &Evidence) -> Option<DeathClass> {
    match evidence.exit {
        Exit::Signal(signal) if FAULTS.iter().any(|(known, _)| *known == signal) => Some(DeathClass::Fault { signal }),
        Exit::Signal(SIGABRT | SIGTRAP) | Exit::Code(CODE_PANIC) => Some(DeathClass::Abort(evidence.exit)),
        Exit::Signal(_) | Exit::Code(_) => None,
    }
}

/// Whatever code it returned with, and our own signals.
fn ended_on_request(evidence: &Evidence) -> Option<DeathClass> {
    let is_ours = match (evidence.exit, evidence.asked) {
        (Exit::Code(_) | Exit::Signal(_), Asked::No) => false,
        (Exit::Code(_) | Exit::Signal(SIGTERM), Asked::ToEnd | Asked::Killed) => true,
        (Exit::Signal(signal), Asked::Killed) => signal == SIGKILL,
        (Exit::Signal(_), Asked::ToEnd) => false,
    };
    if !is_ours {
        return None;
    }
    Some(lost_socket(evidence).unwrap_or(DeathClass::Clean))
}

/// How the socket was lost, where the exit tells no more than that.
fn lost_socket(evidence: &Evidence) -> Option<DeathClass> {
    let tells_less = match evidence.exit {
        Exit::Code(code) => code == 0 || code == CODE_NO_DAEMON || evidence.asked != Asked::No,
        Exit::Signal(_) => evidence.asked != Asked::No,
    };
    match evidence.last_word.clone()? {
        LastWord::SocketLost { why } if tells_less => Some(DeathClass::SocketLost { why }),
        LastWord::SocketLost { .. } | LastWord::LoadFailed { .. } | LastWord::Exhausted { .. } => None,
    }
}

fn bad_configuration(evidence: &Evidence) -> Option<DeathClass> {
    match evidence.exit {
        Exit::Code(code) if meaning(&PERMANENT_CODES, code).is_some() => Some(DeathClass::BadConfiguration { code }),
        Exit::Code(_) | Exit::Signal(_) => None,
    }
}

fn meaning(table: &[(i32, &'static str)], key: i32) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == key).map(|(_, meaning)| *meaning)
}

/// Whether a line of the kernel's log says that this process was killed for memory, machine or control group.
pub fn names_oom_kill(line: &str, pid: u32) -> bool {
    const WORDS: [&str; 2] = ["Out of memory: Killed process ", "Memory cgroup out of memory: Killed process "];
    WORDS.iter().filter_map(|words| line.split_once(words)).any(|(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits == Some(pid.to_string().as_str())
    })
}

impl DeathClass {
    /// One word, as metrics and logs write it.
    pub fn name(&self) -> &'static str {
        match self {
            DeathClass::KernelOom => "kernel_oom",
            DeathClass::HostExhausted { .. } => "host_exhausted",
            DeathClass::VramExhausted { .. } => "vram_exhausted",
            DeathClass::GpuFault { .. } => "gpu_fault",
            DeathClass::Fault { .. } => "fault",
            DeathClass::Abort(_) => "abort",
            DeathClass::Hang(_) => "hang",
            DeathClass::Killed { .. } => "killed",
            DeathClass::BadConfiguration { .. } => "bad_configuration",
            DeathClass::LoadFailed { .. } => "load_failed",
            DeathClass::SpawnFailed { .. } => "spawn_failed",
            DeathClass::SocketLost { .. } => "socket_lost",
            DeathClass::Exited { .. } => "exited",
            DeathClass::Clean => "clean",
        }
    }

    /// The account that ran out, if one did: the plan that died of it is too large.
    pub fn oom(&self) -> Option<OomAccount> {
        match self {
            DeathClass::KernelOom | DeathClass::HostExhausted { .. } => Some(OomAccount::Host),
            DeathClass::VramExhausted { .. } => Some(OomAccount::Vram),
            DeathClass::GpuFault { .. }
            | DeathClass::Fault { .. }
            | DeathClass::Abort(_)
            | DeathClass::Hang(_)
            | DeathClass::Killed { .. }
            | DeathClass::BadConfiguration { .. }
            | DeathClass::LoadFailed { .. }
            | DeathClass::SpawnFailed { .. }
            | DeathClass::SocketLost { .. }
            | DeathClass::Exited { .. }
            | DeathClass::Clean => None,
        }
    }

    /// Whether a request in the step that died may have caused it. Never what comes from outside, and not the kernel's
    /// choice of a victim.
    pub fn accuses_requests(&self) -> bool {
        match self {
            DeathClass::VramExhausted { .. }
            | DeathClass::Fault { .. }
            | DeathClass::Abort(_)
            | DeathClass::Hang(_) => true,
            DeathClass::KernelOom
            | DeathClass::HostExhausted { .. }
            | DeathClass::GpuFault { .. }
            | DeathClass::Killed { .. }
            | DeathClass::BadConfiguration { .. }
            | DeathClass::LoadFailed { .. }
            | DeathClass::SpawnFailed { .. }
            | DeathClass::SocketLost { .. }
            | DeathClass::Exited { .. }
            | DeathClass::Clean => false,
        }
    }

    /// Whether the same would happen again until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        match self {
            DeathClass::BadConfiguration { .. } => true,
            DeathClass::GpuFault { xid } => XIDS.iter().any(|(known, is_permanent, _)| known == xid && *is_permanent),
            DeathClass::KernelOom
            | DeathClass::HostExhausted { .. }
            | DeathClass::VramExhausted { .. }
            | DeathClass::Fault { .. }
            | DeathClass::Abort(_)
            | DeathClass::Hang(_)
            | DeathClass::Killed { .. }
            | DeathClass::LoadFailed { .. }
            | DeathClass::SpawnFailed { .. }
            | DeathClass::SocketLost { .. }
            | DeathClass::Exited { .. }
            | DeathClass::Clean => false,
        }
    }
}

/// Goes on after "the worker".
impl fmt::Display for DeathClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeathClass::KernelOom => write!(f, "was ended by the kernel because memory ran out"),
            DeathClass::HostExhausted { why } => write!(f, "found no host memory: {why}"),
            DeathClass::VramExhausted { why } => write!(f, "found no memory on the card: {why}"),
            DeathClass::GpuFault { xid } => match XIDS.iter().find(|(known, ..)| known == xid) {
                Some((_, _, meaning)) => write!(f, "lost its card: the driver reported Xid {xid} ({meaning})"),
                None => write!(f, "lost its card: the driver reported Xid {xid}"),
            },
            DeathClass::Fault { signal } => {
                write!(f, "ended by signal {signal} ({})", meaning(&FAULTS, *signal).unwrap_or("a fault"))
            }
            DeathClass::Abort(Exit::Signal(signal)) => {
                write!(f, "ended by signal {signal} (SIGABRT or SIGTRAP: it gave up, a bug)")
            }
            DeathClass::Abort(Exit::Code(code)) => write!(f, "ended with exit code {code}: it gave up, a bug"),
            DeathClass::Hang(hang) => write!(f, "{hang}"),
            DeathClass::Killed { signal } => match meaning(&OUTSIDE, *signal) {
                Some(name) => write!(f, "was killed from outside by someone unknown (signal {signal}, {name})"),
                None => write!(f, "was killed from outside by someone unknown (signal {signal})"),
            },
            DeathClass::BadConfiguration { code } => {
                let meaning = meaning(&PERMANENT_CODES, *code).unwrap_or("no second try changes that");
                write!(f, "ended with exit code {code}: {meaning}")
            }
            DeathClass::LoadFailed { why } => write!(f, "could not load the model: {why}"),
            DeathClass::SpawnFailed { why } => write!(f, "could not be started: {why}"),
            DeathClass::SocketLost { why } => write!(f, "lost its socket: {why}"),
            DeathClass::Exited { code } => write!(f, "ended with exit code {code}"),
            DeathClass::Clean => write!(f, "ended as it was asked to"),
        }
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hang::NoHello => write!(f, "said nothing for {} after its start", limits::HELLO_DEADLINE),
            Hang::LoadStalled => write!(f, "loaded nothing for {}", limits::LOAD_SILENCE),
            Hang::LoadTooLong => write!(f, "was not ready after {} of loading", limits::LOAD_DEADLINE),
            Hang::Silent => write!(f, "hung: nothing was heard of it for {}", limits::HEARTBEAT_SILENCE),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "ended with exit code {code}"),
            Exit::Signal(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}
