//! What the program uses: every value checked, units in the types. [`Config::default`] is the empty file.
//!
//! A field exists only if the daemon acts on it. Values that the user wrote are never overridden silently: where the
//! program may choose, the type is [`Setting`] and its default is `Auto`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::limits;
use crate::units::{Bytes, Millis, Tokens};

/// The validated configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// The model.
    pub model: Model,
    /// The public port.
    pub server: Server,
    /// The engine's process.
    pub worker: Worker,
    /// The context of one session.
    pub context: Context,
    /// Storage of keys and values.
    pub kv: Kv,
    /// Requests that wait.
    pub queue: Queue,
    /// The end of the daemon.
    pub stop: Stop,
    /// The host memory account.
    pub host: Host,
    /// The log.
    pub log: Log,
}

/// `auto`, or a value that the user wrote and nothing overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setting<T> {
    /// The program chooses, and says what it chose.
    #[default]
    Auto,
    /// As written.
    Exactly(T),
}

/// Section `model`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// The GGUF file, or the first part of a split one. `None`: it must come from the command line.
    pub path: Option<PathBuf>,
}

/// Section `server`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Address and port; always a loopback address.
    pub listen: SocketAddr,
}

impl Default for Server {
    fn default() -> Server {
        Server { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, limits::DEFAULT_PORT)) }
    }
}

/// Section `worker`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The worker's program. `None`: `plimsoll-worker` beside the daemon's own program.
    pub path: Option<PathBuf>,
    /// Compute threads; `Auto`: one for each core that the daemon may use.
    pub threads: Setting<u32>,
    /// Sessions that run at once, 1 to [`limits::MAX_SESSIONS`].
    pub max_sessions: u32,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker { path: None, threads: Setting::Auto, max_sessions: limits::DEFAULT_SESSIONS }
    }
}

/// Section `context`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// Tokens of one session, prompt and answer together; `Auto`: the largest step that fits the plan.
    pub tokens: Setting<Tokens>,
}

/// Section `kv`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kv {
    /// `kv.type`.
    pub kv_type: KvType,
}

/// Storage of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum KvType {
    /// 16-bit floats: 2 bytes an element.
    #[default]
    F16,
    /// Blocks of 32 with one scale: 34 bytes a block.
    Q8_0,
    /// Blocks of 32 with one scale: 18 bytes a block.
    Q4_0,
}

impl KvType {
    /// All types, the most exact first.
    pub const ALL: [KvType; 3] = [KvType::F16, KvType::Q8_0, KvType::Q4_0];

    /// The name in a configuration file, on the wire and in a plan.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
            KvType::Q4_0 => "q4_0",
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Section `queue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Requests that may wait for a session; one more is refused with 429. 0 to [`limits::MAX_WAITING`].
    pub max_waiting: u32,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { max_waiting: limits::DEFAULT_WAITING }
    }
}

/// Section `stop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// How long running answers may go on after SIGTERM; at most [`limits::MAX_DRAIN_DEADLINE`].
    pub drain_deadline: Millis,
}

impl Default for Stop {
    fn default() -> Stop {
        Stop { drain_deadline: limits::DEFAULT_DRAIN_DEADLINE }
    }
}

/// Section `host`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// The safe limit of host memory; `Auto`: the effective limit less 12 %, at least 1 and at most 7 GiB.
    pub line: Setting<Bytes>,
}

/// Section `log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Log {
    /// Text for a person or JSON for a machine.
    pub format: LogFormat,
    /// What is worth a line.
    pub level: LogLevel,
}

/// `log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One readable line for each event.
    #[default]
    Text,
    /// One JSON object for each event.
    Json,
}

/// `log.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what may fail soon.
    Warn,
    /// And what was done.
    #[default]
    Info,
    /// And why.
    Debug,
}

impl LogLevel {
    /// All levels, the quietest first.
    pub const ALL: [LogLevel; 4] = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    /// The name in a configuration file.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}

/// Reads a listen address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`. Port 0 lets the system choose.
///
/// # Errors
/// Not an address with a port, or not a loopback one.
pub fn parse_listen(text: &str) -> Result<SocketAddr, ListenError> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let address: SocketAddr = address.parse().map_err(|_| ListenError::NotAnAddress { text: text.to_owned() })?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(ListenError::NotLoopback { address }),
    }
}

/// Why a listen address is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenError {
    /// Not `<address>:<port>`.
    NotAnAddress {
        /// What was written.
        text: String,
    },
    /// Reachable from other machines.
    NotLoopback {
        /// What was written.
        address: SocketAddr,
    },
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::NotAnAddress { text } => {
                write!(f, "`{text}` is not an address with a port: write 127.0.0.1:8080 or [::1]:8080")
            }
            ListenError::NotLoopback { address } => write!(
                f,
                "{address} can be reached from other machines, and this build has neither keys nor encryption: \
                 listen on 127.0.0.1:{port} and put a reverse proxy in front",
                port = address.port()
            ),
        }
    }
}

impl std::error::Error for ListenError {}
