//! Every bound of the system, with its reason. A queue, cache, retry or loop that has none is a bug.

mod governor;
mod probe;

use crate::units::{Bytes, Millis, Tokens};

pub use governor::*;
pub use probe::*;

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

/// What a prompt token costs a client in the queue's virtual time. The unit of all costs.
pub const COST_OF_PROMPT_TOKEN: u64 = 1;

/// And a token of its answer: on a CPU a decode step takes about twice as long for a token as prefill, with a card and experts
/// in memory ten times; between the two.
pub const COST_OF_ANSWER_TOKEN: u64 = 4;

/// An answer without a written end is charged as this many tokens: a long one, but not a whole context, which is what most
/// clients ask for without meaning it.
pub const EXPECTED_ANSWER: Tokens = Tokens(1024);

/// Clients whose place in the virtual time is remembered while they have nothing in the house.
pub const MAX_REMEMBERED_CLIENTS: usize = 1024;

/// Share of all keys and values that one client may hold while another one waits, in percent: one half, so that two always
/// get on.
pub const CLIENT_KV_SHARE_PERCENT: u64 = 50;

/// A request whose worker died twice while it ran alone, at the same place of it, is what they died of.
pub const LONE_DEATHS_AT_ONE_PLACE: u32 = 2;

/// So is one that was alone with this many deaths at any places: the bound where a place can't be met twice.
pub const MAX_LONE_DEATHS: u32 = 4;

/// A request that was in so many steps that died is not let into a common one again: it runs alone to its end.
pub const MAX_SUSPICIONS: u32 = 3;

/// Requests that are kept for replay after they were refused for the deaths of their workers, the newest.
pub const MAX_KEPT_REQUESTS: usize = 16;

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

/// Requests wait this long while the next plan is refused, then they are failed. Long, because some of them have half an
/// answer, which nobody can bring back: a job that took the card is over within an hour or two. A stream is kept alive by
/// pings, and whoever is tired of waiting closes the connection, which ends the request.
pub const PARK_DEADLINE: Millis = Millis::from_secs(2 * 60 * 60);

/// Deaths within [`DEATH_WINDOW`] after which nothing is started until the oldest of them has left it.
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

/// A tick that comes so much later than it was asked for means that the daemon itself stood still (SIGSTOP, swap): its loop
/// answers within a millisecond. What was not heard meanwhile says nothing about the worker.
pub const LATE_TICK: Millis = Millis::from_secs(5);

/// How long host memory alone is awaited after a worker that used no card: the kernel gives it back before the process can
/// be collected, so what is missing after this was taken by another program.
pub const HOST_RELEASE_TIMEOUT: Millis = Millis::from_secs(2);

/// Pause between two looks at what a worker holds: what it held before its end has to be known afterwards.
pub const HOLDINGS_INTERVAL: Millis = Millis::from_secs(1);

/// Beyond [`RELEASE_TIMEOUT`], after which nobody is waited for who should tell whether memory is back: one look that hangs
/// in a driver for as long as such calls were seen to take, 45 s.
pub const RELEASE_ANSWER_GRACE: Millis = Millis::from_secs(45);

// ---- what deaths teach ----------------------------------------------------------------------------------------------

/// Time of serving after which the latest learned limit is given up: what made memory scarce is over, or it will be learned
/// again within minutes. Shorter, and a browser that is opened twice a day would kill a worker each time.
pub const LEARNED_CALM: Millis = Millis::from_secs(2 * 60 * 60);

/// Steps that are remembered: from the longest context and the largest budget down to their floors, twice.
pub const MAX_LEARNED_STEPS: usize = 32;

/// A budget is lowered by this share of what died (an eighth): five deaths halve it.
pub const LEARNED_STEP_SHARE: u64 = 8;

/// And by this at least: less does not tell one plan from the next.
pub const LEARNED_STEP_MIN: Bytes = Bytes::from_mib(64);

// ---- planner --------------------------------------------------------------------------------------------------------

/// The line of a card: free bytes at a request's start. Under it decoding was seen to fall to a few tokens a second.
pub const VRAM_LINE_FREE: Bytes = Bytes::from_mib(512);

/// A reserve whose slack is smaller is flagged LOW: a browser's tab takes as much.
pub const VRAM_SLACK_LOW: Bytes = Bytes::from_mib(256);

/// Reserves are whole multiples of this, so that two people who compare theirs see the same figure.
pub const RESERVE_STEP: Bytes = Bytes::from_mib(64);

/// The reserve of benchmarks: the same on every machine, so that figures can be compared.
pub const BENCHMARK_RESERVE: Bytes = Bytes::from_mib(512);

/// Slots that an expert cache keeps beside the loan of a prompt's chunk: with fewer, decoding waits for every expert.
pub const MIN_CACHE_SLOTS: u64 = 64;

/// Smallest window of keys and values on a card that the planner goes down to by itself: with less, most of a usual chat
/// is streamed for every token.
pub const KV_WINDOW_FLOOR: Tokens = Tokens(4096);

/// A context is offered down to this share of the one in use (a quarter); a shorter one is another use of the model, and
/// is offered only where it is enough by itself.
pub const OFFERED_CONTEXT_SHARE: u32 = 4;

/// Buffers between tiers: two chunks of 64 experts of 2 MiB, one filling while the other is used. An estimate.
pub const STAGING_ESTIMATE: Bytes = Bytes::from_mib(256);

/// What the tiers' bandwidths promise and what was measured: × 0.55 predicted 35.6 tokens a second where 36.7 came.
pub const ROOFLINE_PERCENT: u64 = 55;

/// The usual rough table's share for a session.
pub const ROUGH_SESSION: Bytes = Bytes(Bytes::from_gib(1).0 / 5);

/// And for the runtime, in percent of all the rest.
pub const ROUGH_RUNTIME_PERCENT: u64 = 15;

/// Most experts that a plan ranks: 128 layers of 4,096 are four times the largest models in use. A header that claims more
/// is planned as if it had so many.
pub const MAX_RANKED_EXPERTS: u64 = 1 << 19;

/// Most steps of one plan down the ladder: each lever has fewer than 32 halvings.
pub const MAX_LADDER_STEPS: usize = 128;

// ---- verdicts -------------------------------------------------------------------------------------------------------

/// A reading of a card that is older than this says nothing about now: it counts as none. Readings come every 100 ms while
/// somebody waits for one, and a driver that takes longer than 2 s for a call is not well.
pub const GPU_READING_MAX_AGE: Millis = Millis::from_secs(2);

/// The same for host memory: reading it takes less than a millisecond, so an old figure means that nobody read.
pub const HOST_READING_MAX_AGE: Millis = Millis::from_secs(2);

/// Foreign VRAM beyond the baseline that is no dirt: a desktop breathes by about this much, windows come and go.
pub const CLEAN_TOLERANCE_MIN: Bytes = Bytes::from_mib(256);

/// The same as a share of the card, in percent: larger cards drive larger screens.
pub const CLEAN_TOLERANCE_PERCENT: u64 = 2;

/// A program is named as a culprit from this growth on. A context alone costs 250 MiB and more; what is smaller is a
/// terminal.
pub const CULPRIT_MIN: Bytes = Bytes::from_mib(64);

/// Culprits named in one verdict: a page. The others are counted.
pub const MAX_CULPRITS: usize = 8;

/// Without a baseline, this much may be held on a card by nobody that the driver names: a desktop of 2.3 GiB outside of our
/// PID namespace and what the driver keeps. More of it is a program.
pub const FIRST_LOOK_UNSEEN_MAX: Bytes = Bytes::from_gib(3);

/// The same as a share of the card, in percent, for the small ones.
pub const FIRST_LOOK_UNSEEN_PERCENT: u64 = 25;

/// Programs kept in a baseline, the largest first. A full desktop has about twenty on the card.
pub const MAX_BASELINE_PROGRAMS: usize = 64;

/// A baseline older than this is taken anew at the next clean start: programs get other names, drivers other sizes. Not
/// more often: each renewal may take up to one tolerance in, and daily ones would creep.
pub const BASELINE_RENEWAL_AGE: Millis = Millis::from_secs(30 * 24 * 60 * 60);

/// How long a start with the policy `wait` waits for a clean card, by default: the time in which a person closes a program.
pub const START_WAIT: Millis = Millis::from_secs(60);

/// How long the memory of an ended worker may take to come back. 0.5 to 1.5 s are usual, 8 s were seen.
pub const RELEASE_TIMEOUT: Millis = Millis::from_secs(30);

/// Pause between two looks while memory is awaited.
pub const RELEASE_POLL: Millis = Millis(100);

/// A free counter that moved by less has not moved: a desktop's noise between two readings.
pub const DEPARTURE_MIN: Bytes = Bytes::from_mib(16);

/// At most this share of what the worker held may be missing when its memory counts as back, in percent, however large
/// the tolerance of the card is: of a small worker the tolerance would be all.
pub const RELEASE_MISSING_PERCENT: u64 = 25;

/// Where nobody knows how much a worker held, this much has to come back at least: a driver context alone costs 250 MiB and
/// more.
pub const UNKNOWN_DEPARTURE_MIN: Bytes = Bytes::from_mib(200);

/// And then the free counter must stand still for this long.
pub const RELEASE_SETTLE: Millis = Millis::from_secs(2);

// ---- experience -----------------------------------------------------------------------------------------------------

/// Clean starts kept for each configuration: enough for an interval, few enough that last year's driver leaves it.
pub const MAX_HEALTHY_STARTS: usize = 32;

/// Configurations with kept starts; the one that was used longest ago leaves first. A person tries a few models.
pub const MAX_CALIBRATION_KEYS: usize = 64;

/// A figure is far under its interval when it is under the low end, and this much under the middle, in percent: clean
/// starts differ by 10 %, a dirty one by 50 to 85 %. The middle, because a low end that each start may lower would creep.
pub const FAR_UNDER_PERCENT: u64 = 20;

/// Clean starts in a row, all far under the interval, after which they are the interval: the machine has changed.
pub const NEW_NORMAL_STARTS: usize = 3;

/// Measured starts kept for each object.
pub const MAX_MEASURED_STARTS: usize = 8;

/// Objects with kept starts, over all models.
pub const MAX_MEASURED_OBJECTS: usize = 1024;

/// The planner's own error of an object that is well, in thousandths: 2 %.
pub const PLAN_ERROR_TARGET_PERMILLE: u64 = 20;

/// An estimate is corrected downwards only after this many starts: one of them may have been measured before its peak.
pub const MIN_STARTS_TO_SHRINK: usize = 3;

/// Largest factor by which an estimate is corrected, either way. More is a mistake in the estimate and shown as an error,
/// not hidden by a factor.
pub const MAX_CORRECTION: u64 = 4;

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

/// Plans whose numbers are remembered: a daemon makes a handful.
pub const MAX_NUMBERED_PLANS: usize = 64;

/// Writes to our own state that wait for the disk: each request that was ever kept, at once.
pub const STATE_QUEUE: usize = MAX_KEPT_REQUESTS;

/// Longest file of our own state that is read: 32 learned steps are 4 KiB.
pub const MAX_STATE_FILE_BYTES: u64 = 64 << 10;

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
