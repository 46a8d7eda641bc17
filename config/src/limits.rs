//! Every bound of the system, with its reason. A queue, cache, retry or loop that has none is a bug.

use crate::units::{Bytes, Millis, Tokens};

// ---- wire -----------------------------------------------------------------------------------------------------------

/// Longest frame between daemon and worker. It holds the ids of a whole [`MAX_CONTEXT`], 14 MiB of JSON, and stops a corrupt
/// length from asking for memory.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

// ---- configuration --------------------------------------------------------------------------------------------------

/// Longest configuration file. The commented examples are under 4 KiB; more than 256 KiB is the wrong file.
pub const MAX_CONFIG_BYTES: usize = 256 << 10;

/// Most problems reported for one file: a page. More of them have one cause.
pub const MAX_CONFIG_PROBLEMS: usize = 50;

/// The port that local model servers usually have, so that clients find it unchanged.
pub const DEFAULT_PORT: u16 = 8080;

/// Most compute threads. Larger than any workstation; a typing error of one digit too many is caught.
pub const MAX_THREADS: u32 = 512;

/// Most sessions at once. One person and a few agents; each session costs a whole context of KV.
pub const MAX_SESSIONS: u32 = 64;

/// Sessions by default: a person's chat and the title or tag request that web clients fire beside it. Each one costs a
/// context of KV, so more is for those who ask.
pub const DEFAULT_SESSIONS: u32 = 2;

/// Most tokens of context: twice the 1,048,576 that the longest models in use were trained for. The ids of a prompt and its
/// answer together fit one frame: at most six digits and a comma each, for a vocabulary of up to a million tokens.
pub const MAX_CONTEXT: Tokens = Tokens(2_097_152);

/// Fewest tokens of context: below this a chat template and a sentence do not fit.
pub const MIN_CONTEXT: Tokens = Tokens(64);

/// Largest context that `context.tokens: auto` takes, per session. Long enough for chats and short documents; the KV of
/// more is gigabytes, which nobody should get without asking.
pub const AUTO_CONTEXT_CAP: Tokens = Tokens(8192);

/// Smallest context that `auto` goes down to before the plan is refused: a shorter one answers, but forgets the question.
pub const AUTO_CONTEXT_FLOOR: Tokens = Tokens(1024);

// ---- memory ---------------------------------------------------------------------------------------------------------

/// Share of the effective limit that stays above the host line, in percent.
pub const HOST_MARGIN_PERCENT: u64 = 12;

/// Least memory above the host line: under it the kernel starts to reclaim what is in use.
pub const HOST_MARGIN_MIN: Bytes = Bytes::from_gib(1);

/// Most memory above the host line: on large machines 12 % would idle more than a burst of growth needs.
pub const HOST_MARGIN_MAX: Bytes = Bytes::from_gib(7);

/// Smallest host line that may be written: the smallest models in use, and what both processes hold beside them.
pub const HOST_LINE_MIN: Bytes = Bytes::from_mib(256);

/// What both processes hold beside tensors: code, thread stacks, the vocabulary twice, requests in flight. An estimate.
pub const SERVICE_ESTIMATE: Bytes = Bytes::from_mib(128);

/// Programs named in a refusal: the few that matter.
pub const MAX_PROGRAM_OFFERS: usize = 3;

/// A program that holds less is not worth closing.
pub const MIN_PROGRAM_OFFER: Bytes = Bytes::from_mib(64);

// ---- requests -------------------------------------------------------------------------------------------------------

/// Requests that may wait, by default: eight tabs that fire four requests each.
pub const DEFAULT_WAITING: u32 = 32;

/// Most requests that may be configured to wait: each holds its prompt's ids, 1 MiB at 262,144 tokens.
pub const MAX_WAITING: u32 = 1024;

/// What a client is told to wait when the queue is full: about the time of a short answer on a CPU.
pub const QUEUE_RETRY_AFTER: Millis = Millis::from_secs(5);

/// What a client is told to wait while there is no worker: about the time of a load.
pub const NOT_READY_RETRY_AFTER: Millis = Millis::from_secs(2);

/// How often one request is given to a new worker after the old one died with it. A request that kills every worker
/// must not take the others' answers with it for ever.
pub const MAX_RESUBMISSIONS: u32 = 2;

/// Longest head of an HTTP request, all headers together. Browsers stop near 16 KiB.
pub const MAX_HTTP_HEADER_BYTES: usize = 32 << 10;

/// Longest body of an HTTP request: a prompt of 262,144 tokens is about 1 MiB of text, eight times that in escapes.
pub const MAX_HTTP_BODY_BYTES: usize = 8 << 20;

/// How long a client may take to send its request's head and body.
pub const HTTP_READ_DEADLINE: Millis = Millis::from_secs(30);

/// Connections open at once: every waiting and running request, health checks and a browser's spares.
pub const MAX_HTTP_CONNECTIONS: usize = 2048;

/// Most stop strings in one request. The API that clients were written for allows 4.
pub const MAX_STOP_STRINGS: usize = 16;

/// Longest stop string: the end of an answer is held back until it can't be the beginning of one.
pub const MAX_STOP_STRING_BYTES: usize = 256;

/// Messages in one chat: far more than a context holds.
pub const MAX_CHAT_MESSAGES: usize = 4096;

/// Chunks of an answer that wait for a slow client before its request is cancelled: seconds of text.
pub const STREAM_BUFFER_CHUNKS: usize = 256;

/// Pause after which a silent stream gets a comment ping: proxies cut connections that are idle for 30 to 60 s.
pub const STREAM_PING_INTERVAL: Millis = Millis::from_secs(10);

// ---- worker's life --------------------------------------------------------------------------------------------------

/// From the spawn to the worker's first frame: an exec and a socket write, with a disk that has to wake up.
pub const HELLO_DEADLINE: Millis = Millis::from_secs(10);

/// A load in which no byte arrives for this long is hung: disks answer or fail within 30 s.
pub const LOAD_SILENCE: Millis = Millis::from_secs(60);

/// Longest load, however much it moves: 100 GiB at 60 MB/s.
pub const LOAD_DEADLINE: Millis = Millis::from_secs(30 * 60);

/// Pause between the worker's heartbeats.
pub const HEARTBEAT_INTERVAL: Millis = Millis(250);

/// A ready worker that is silent for this long is hung. One prompt chunk of a large dense model takes two slow cores up to
/// 30 s; ending a worker that only works hard costs more than noticing a hang late.
pub const HEARTBEAT_SILENCE: Millis = Millis::from_secs(60);

/// From a stop frame to SIGTERM: a few hand-over points and the return of the memory.
pub const STOP_GRACE: Millis = Millis::from_secs(5);

/// From SIGTERM to SIGKILL.
pub const TERM_GRACE: Millis = Millis::from_secs(5);

/// How long running answers may go on after SIGTERM, by default. systemd kills after 90 s.
pub const DEFAULT_DRAIN_DEADLINE: Millis = Millis::from_secs(30);

/// Longest drain that may be configured: an hour-long answer is as good as a hang.
pub const MAX_DRAIN_DEADLINE: Millis = Millis::from_secs(60 * 60);

/// A refused plan is tried again after this pause: a program that was closed should be noticed soon.
pub const RECHECK_PAUSE: Millis = Millis::from_secs(5);

/// Requests of a dead worker wait this long while the next plan is refused, then they are failed: the pause for which a
/// start waits for room by default.
pub const PARK_DEADLINE: Millis = Millis::from_secs(60);

/// Deaths within [`DEATH_WINDOW`] after which nothing is started any more.
pub const MAX_DEATHS_IN_WINDOW: usize = 5;

/// A death counts for this long. A worker that was well for this time has a clean record.
pub const DEATH_WINDOW: Millis = Millis::from_secs(10 * 60);

/// Pause after the first death: a crash should be a short pause for the client.
pub const BACKOFF_MIN: Millis = Millis(250);

/// Each further death in the window makes the pause this much longer: 0.25, 1, 4, 16 s, so that the budget lasts long
/// enough for what passes by itself (a program that is still ending, a disk that comes back).
pub const BACKOFF_FACTOR: u64 = 4;

/// Longest pause after a death: longer than a driver takes to give memory back, shorter than a person's patience.
pub const BACKOFF_MAX: Millis = Millis::from_secs(30);

// ---- daemon ---------------------------------------------------------------------------------------------------------

/// Highest temperature: at 5 the likeliest token of a flat distribution has lost all meaning.
pub const MAX_TEMPERATURE: f64 = 5.0;

/// Bytes of request bodies that are read and parsed at the same time, all connections together: eight of the longest. Parsed,
/// a body takes a few times its bytes, and the daemon is to stay small.
pub const MAX_HTTP_BODIES_BYTES: usize = 64 << 20;

/// Templates and tokenizers that run at once: a prompt takes milliseconds, and more of them would take the engine's cores.
pub const MAX_TOKENISING: usize = 2;

/// How long a stream's head waits for the first step of its answer, so that what fails at once has its own status.
pub const STREAM_COMMIT_WAIT: Millis = Millis(250);

/// A client that has taken nothing for this long, with its buffer full, is cut: longer than a laptop's short sleep.
pub const STREAM_STALL_DEADLINE: Millis = Millis::from_secs(60);

/// Pause after a connection could not be accepted for want of descriptors: trying at once would only spin.
pub const ACCEPT_PAUSE: Millis = Millis(50);

/// How long connections may take to send what is left after the last answer has ended.
pub const CLOSE_DEADLINE: Millis = Millis::from_secs(2);

/// Events that wait for the supervisor: a step of every session, and room for a burst of requests.
pub const EVENT_QUEUE: usize = 1024;

/// Frames that wait for the worker to read them: a submit and a cancel for each session, twice. A worker that lets more of
/// them wait does not read.
pub const LINK_QUEUE_FRAMES: usize = 256;

/// One read from the worker's socket.
pub const LINK_READ_BYTES: usize = 64 << 10;

/// How long the two halves of a worker's end (its socket, its process) may be apart before the first is told alone.
pub const END_HALVES_APART: Millis = Millis(500);

/// Longest command line that is shown of somebody else's process: a line of a terminal.
pub const MAX_SHOWN_COMMAND_CHARS: usize = 120;

/// Longest line of the worker's output that is kept in the log.
pub const MAX_WORKER_LINE_BYTES: usize = 4096;

/// Raise of `oom_score_adj` on the worker: high enough to be chosen before a desktop's programs, which hold less.
pub const WORKER_OOM_SCORE_RAISE: i32 = 500;

/// Ancestors of a control group that are looked at: systemd nests about 8.
pub const MAX_CGROUP_DEPTH: usize = 32;

// ---- model: what a GGUF header, a tokenizer and a chat template may ask for ----

/// Most metadata entries in a GGUF header. Real files have 20 to 80; every entry costs the parser about 100 bytes.
pub const MAX_GGUF_METADATA_ENTRIES: u64 = 65_536;
/// Most tensors in one file. The largest published models have about 2,000; experts stored one by one reach 60,000.
pub const MAX_GGUF_TENSORS: u64 = 262_144;
/// Longest metadata key or tensor name in bytes. ggml itself stops at 64 for tensors; keys are dotted words.
pub const MAX_GGUF_NAME_BYTES: u64 = 1_024;
/// Longest single string value in bytes. The longest in use are chat templates (tens of KiB) and licences (some MiB).
pub const MAX_GGUF_STRING_BYTES: u64 = 16 << 20;
/// Most elements in a metadata array: 64 times the largest vocabulary in use (262,144).
pub const MAX_GGUF_ARRAY_ELEMENTS: u64 = 1 << 24;
/// Most dimensions of a tensor; the format's own limit.
pub const MAX_GGUF_DIMS: u32 = 4;
/// Largest alignment of tensor data in bytes. Files use 32; a page of any kind in use is at most 64 KiB, a huge one 2 MiB.
pub const MAX_GGUF_ALIGNMENT_BYTES: u64 = 2 << 20;
/// Longest header that is read for planning. The largest in use, with 262,144 tokens, is under 16 MiB.
pub const MAX_GGUF_HEADER_BYTES: u64 = 256 << 20;
/// Most parts of a split model. The format has five digits; published models stop below 100.
pub const MAX_GGUF_PARTS: u32 = 1_024;
/// Most layers of a model: per-layer facts are a small vector. The deepest in use have 126.
pub const MAX_MODEL_LAYERS: u32 = 1_024;
/// Largest width, head count or head dimension of a model: keeps every product of three of them inside 64 bits.
pub const MAX_MODEL_WIDTH: u32 = 1 << 20;
/// Most experts in a layer. The largest in use has 512.
pub const MAX_MODEL_EXPERTS: u32 = 4_096;
/// Longest vocabulary in tokens. The largest in use has 262,144.
pub const MAX_VOCAB_TOKENS: usize = 1 << 22;
/// Longest token text in bytes. The longest in use are runs of 128 spaces; the limit keeps a merge's look-up short.
pub const MAX_TOKEN_BYTES: usize = 4_096;
/// Longest chat template in bytes; published ones stay below 32 KiB.
pub const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Steps a chat template may take before its input is counted. One step is about an instruction, or 64 bytes made: the
/// longest published templates take under 2,000 steps for a message.
pub const TEMPLATE_FUEL_BASE: u64 = 2_000_000;
/// Further steps per byte of messages and tools: copying, trimming and splitting each byte a few dozen times.
pub const TEMPLATE_FUEL_PER_BYTE: u64 = 4;
/// Bytes that a chat template may write beyond twice its input.
pub const TEMPLATE_OUTPUT_EXTRA_BYTES: usize = 1 << 20;

// ---- worker ---------------------------------------------------------------------------------------------------------

/// Messages between the worker's socket thread and its job loop, which empties it at each hand-over: a submit and a cancel
/// of every request that may run or wait, as configured at most. While it is full the daemon's writes wait.
pub const WORKER_INBOX_MESSAGES: usize = 2 * (MAX_WAITING + MAX_SESSIONS) as usize;

/// A daemon that has not read for this long, with a full socket buffer, is hung: the worker ends rather than wait.
pub const WORKER_WRITE_DEADLINE: Millis = Millis::from_secs(30);

/// Most prompt tokens in one step. The activations of a step grow with it; over a few hundred the speed does not.
pub const MAX_PREFILL_CHUNK: u32 = 4096;

/// Prompt tokens in one step of the offline commands, unless asked for otherwise: enough to reuse each weight from the
/// cache, and a chunk of a small model takes a fraction of a second.
pub const DEFAULT_PREFILL_CHUNK: u32 = 128;
