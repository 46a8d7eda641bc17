//! The messages. These are wire types: both sides convert them to their own at the edge.

use serde::{Deserialize, Serialize};

/// What the daemon says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToWorker {
    /// The first frame: the plan of this start.
    Start(Start),
    /// A request to run.
    Submit(Submit),
    /// Ends a request; answered by `Done` with [`Finish::Cancelled`]. Unknown ids are ignored: the answer may be on its way.
    Cancel {
        /// The request's id.
        request: u64,
    },
    /// End cleanly now.
    Stop,
}

/// The knobs chosen for one start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`crate::WIRE_VERSION`] of the daemon.
    pub wire_version: u32,
    /// The model file, or the first part of a split one.
    pub model_path: String,
    /// Context of one session, in tokens.
    pub n_ctx_tokens: u32,
    /// Sessions that may run at once.
    pub max_sessions: u32,
    /// Storage of K and V: `f16`, `q8_0` or `q4_0`.
    pub kv_type: String,
    /// Compute threads; at least 1.
    pub n_threads: u32,
    /// Most prompt tokens in one step.
    pub prefill_chunk_tokens: u32,
}

/// One request: continue `prompt` + `generated`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submit {
    /// The daemon's id, unique while the daemon lives.
    pub request: u64,
    /// Prompt token ids; not empty.
    pub prompt: Vec<u32>,
    /// Ids of this answer that were sent before an earlier worker died; empty on the first try.
    pub generated: Vec<u32>,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Most tokens in the whole answer, `generated` included.
    pub max_tokens: u32,
}

/// Sampling parameters. A token is a pure function of (logits, these, the ids so far, its position).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: f32,
    /// Keep the k likeliest; 0 = all.
    pub top_k: u32,
    /// Keep the smallest set with at least this probability; 1 = all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the best; 0 = all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 = off.
    pub repeat_penalty: f32,
    /// How many recent tokens the penalty looks at.
    pub repeat_last_n: u32,
    /// The seed drawn for this request.
    pub seed: u64,
}

/// What the worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromWorker {
    /// The first frame.
    Hello {
        /// [`crate::WIRE_VERSION`] of the worker.
        wire_version: u32,
        /// Its process id.
        pid: u32,
    },
    /// Progress of the load.
    Loading {
        /// Bytes of weights ready.
        done_bytes: u64,
        /// Bytes of weights in all.
        total_bytes: u64,
    },
    /// The model is loaded.
    Ready(Ready),
    /// It can't be loaded; the worker ends after this.
    LoadFailed {
        /// Whether trying again can help.
        class: LoadErrorClass,
        /// One sentence a user can act on.
        message: String,
    },
    /// Prompt tokens worked off: liveness while prefilling.
    Progress {
        /// The request's id.
        request: u64,
        /// Prompt tokens done so far.
        n_prompt_done: u32,
    },
    /// New token ids, in order. An end-of-answer token is not among them.
    Tokens {
        /// The request's id.
        request: u64,
        /// The ids.
        ids: Vec<u32>,
    },
    /// The request ended.
    Done {
        /// The request's id.
        request: u64,
        /// Why.
        finish: Finish,
        /// What it took.
        timing: Timing,
    },
    /// The request failed; others go on.
    Failed {
        /// The request's id.
        request: u64,
        /// Whose fault it is.
        class: FailureClass,
        /// One sentence.
        message: String,
    },
    /// Sent a few times a second.
    Heartbeat(Heartbeat),
}

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Device, instruction set and threads, for a person.
    pub backend: String,
    /// Bytes of weights, mapped or copied.
    pub weight_bytes: u64,
    /// Time from `Start` to here.
    pub load_ms: u64,
}

/// Why a load failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadErrorClass {
    /// No such file. Permanent.
    ModelMissing,
    /// Not a GGUF, damaged, or an architecture or format this build does not know. Permanent.
    BadModel,
    /// A knob of `Start` is impossible for this model. Permanent.
    BadPlan,
    /// Memory could not be had. A smaller plan may start.
    OutOfMemory,
    /// Reading failed. May pass.
    Io,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model chose an end-of-answer token.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
    /// `Cancel` was asked for.
    Cancelled,
}

/// Whose fault a failed request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The request asks for something impossible.
    BadRequest,
    /// Memory could not be had.
    OutOfMemory,
    /// The engine failed: NaN in the logits, a panic in a step.
    Engine,
}

/// Time and tokens of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Tokens prefilled by this worker.
    pub n_prefilled: u32,
    /// Time spent on them.
    pub prefill_us: u64,
    /// Tokens generated by this worker.
    pub n_generated: u32,
    /// Time spent on them.
    pub decode_us: u64,
}

/// How the worker is: progress and bytes by object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Steps run since the start.
    pub n_steps: u64,
    /// Requests running or waiting.
    pub n_requests: u32,
    /// Bytes of K and V pages held.
    pub kv_bytes: u64,
    /// Bytes of activation buffers held.
    pub activation_bytes: u64,
}
