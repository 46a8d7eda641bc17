//! The engine: immutable weights on one device, and the step that computes for any mix of sessions.
//!
//! ```text
//!   ModelFile ──load──► Engine ──session()──► Session, Session, …
//!                         │
//!      segments of ids ───┴─ forward ──► logits of the rows that asked
//! ```
//!
//! A step takes prefill chunks and decodes of several sessions at once. The bits of logits, K and V are those of each
//! session alone, one token at a time: every operation works row by row, in an order that does not know the batch.

use crate::arch::Model;
use crate::load::{LoadError, LoadProgress, Loader};
use crate::sampler::Params;
use crate::session::Session;
use crate::work::Work;
use plimsoll_kernels::backend::{Backend, BackendError, KvLayer, KvType};
use plimsoll_model::facts::{LayerFacts, ModelFacts};
use plimsoll_model::file::ModelFile;
use std::fmt;
use std::ops::Range;

/// Rows of the head computed at a time. Eight rows fill a tile of the prefill kernels; a vocabulary of 262,144 then needs
/// 8 MiB of logits, whatever the chunk.
const HEAD_ROWS: usize = 8;

/// Where a step hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// After the layer of this index.
    Layer(usize),
    /// Between two experts of a layer.
    Expert,
    /// Between two groups of rows of the head.
    Head,
}

/// What the one who got a hand-over wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Give the step (or the load) up.
    Stop,
}

/// A hand-over said stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// The knobs of one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Context of one session, in tokens.
    pub n_ctx_tokens: u32,
    /// The most rows of one step, over all sessions: the work buffers are made for these.
    pub max_step_tokens: usize,
    /// Storage of K and V.
    pub kv_type: KvType,
}

/// One session's part of a step: its next `n_tokens` pending ids.
pub struct Segment<'a, B: Backend> {
    /// Whose.
    pub session: &'a mut Session<B>,
    /// How many of its pending ids.
    pub n_tokens: usize,
    /// Which of these rows need logits, counted from the segment's first.
    pub logits: Range<usize>,
}

impl<'a, B: Backend> Segment<'a, B> {
    /// The next `n_tokens` pending ids; logits for the last one when it is the session's last.
    pub fn next(session: &'a mut Session<B>, n_tokens: usize) -> Self {
        let logits = if n_tokens == session.pending().len() { n_tokens.saturating_sub(1)..n_tokens } else { 0..0 };
        Self { session, n_tokens, logits }
    }
}

/// A row of logits, as it is handed out.
#[derive(Debug, Clone, Copy)]
pub struct Logits<'a> {
    /// Index of the segment.
    pub segment: usize,
    /// Row within the segment.
    pub row: usize,
    /// One value per token of the vocabulary.
    pub values: &'a [f32],
}

/// Why a step was not computed. No session has moved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardError {
    /// A hand-over said stop.
    Stopped,
    /// An id is not in the vocabulary.
    UnknownToken {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A session would be longer than its context.
    ContextFull {
        /// Ids it would have.
        n_tokens: usize,
        /// Its context.
        n_ctx_tokens: u32,
    },
    /// The step has more rows than the engine's buffers, or a segment has more ids than are pending, or none.
    StepShape {
        /// Rows asked for.
        n_rows: usize,
        /// Rows possible.
        max_rows: usize,
    },
    /// The backend has no memory.
    Backend(BackendError),
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => write!(f, "the step was stopped"),
            Self::UnknownToken { id, n_vocab } => {
                write!(
                    f,
                    "token id {id} is not in the vocabulary of {n_vocab}: was it made with another model's tokenizer?"
                )
            }
            Self::ContextFull { n_tokens, n_ctx_tokens } => {
                write!(
                    f,
                    "{n_tokens} tokens are over the context of {n_ctx_tokens}: shorten the prompt or raise context.tokens"
                )
            }
            Self::StepShape { n_rows, max_rows } => {
                write!(f, "a step or segment of {n_rows} tokens is not possible here; from 1 to {max_rows} are")
            }
            Self::Backend(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ForwardError {}

impl From<Stopped> for ForwardError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<BackendError> for ForwardError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

/// Consecutive rows of a step that belong to one session.
pub struct Run<'a, B: Backend> {
    /// The session's cache.
    pub kv: &'a mut B::Kv,
    /// Its rows in the step.
    pub rows: Range<usize>,
    /// Position of the first row.
    pub pos: u32,
}

/// A step as the architectures see it.
pub struct Step<'a, B: Backend> {
    /// One id per row.
    pub ids: Vec<u32>,
    /// Which rows are whose.
    pub runs: Vec<Run<'a, B>>,
    hook: &'a mut dyn FnMut(Point) -> Flow,
}

impl<B: Backend> Step<'_, B> {
    /// The position of each row.
    pub fn positions(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| (run.pos..).take(run.rows.len()))
    }

    /// Lets the job loop look after its socket.
    pub fn hand_over(&mut self, point: Point) -> Result<(), Stopped> {
        match (self.hook)(point) {
            Flow::Continue => Ok(()),
            Flow::Stop => Err(Stopped),
        }
    }
}

/// The work buffers are made once, for the shape of the first layer.
fn check_uniform(facts: &ModelFacts) -> Result<(), LoadError> {
    let shape = |l: &LayerFacts| (l.n_heads, l.n_kv_heads, l.k_dim, l.v_dim, l.n_ff);
    let Some(first) = facts.layers.first() else {
        return Err(LoadError::Unsupported("the model has no layers".to_owned()));
    };
    match facts.layers.iter().position(|layer| shape(layer) != shape(first)) {
        Some(i) => Err(LoadError::Unsupported(format!(
            "layer {i} has other head counts or another feed-forward width than layer 0; this build computes equal layers only"
        ))),
        None => Ok(()),
    }
}

/// A loaded model on a device.
pub struct Engine<B: Backend> {
    device: B,
    model: Model<B>,
    work: Work<B>,
    kv_layers: Vec<KvLayer>,
    options: EngineOptions,
    n_vocab: usize,
    weight_bytes: u64,
}

impl<B: Backend> Engine<B> {
    /// Takes over the weights of `file` and makes the work buffers.
    ///
    /// # Errors
    /// [`LoadError`]: a tensor that is missing, of the wrong shape or format, or unknown, by name; no memory.
    pub fn load(
        mut device: B,
        file: &ModelFile,
        facts: &ModelFacts,
        options: EngineOptions,
        progress: &mut LoadProgress<'_>,
    ) -> Result<Self, LoadError> {
        check_uniform(facts)?;
        let model = Model::load(Loader::new(&mut device, file, facts, progress))?;
        let work = Work::new(&mut device, facts, options.max_step_tokens, HEAD_ROWS)?;
        let kv_layers = (facts.layers.iter())
            .map(|l| KvLayer {
                n_kv_heads: l.n_kv_heads as usize,
                k_dim: l.k_dim as usize,
                v_dim: l.v_dim as usize,
                window: l.window,
            })
            .collect();
        let weight_bytes = file.header().tensors.iter().map(|t| t.n_bytes).sum();
        Ok(Self { device, model, work, kv_layers, options, n_vocab: facts.n_vocab as usize, weight_bytes })
    }

    /// A new, empty timeline.
    ///
    /// # Errors
    /// [`BackendError`] when the K/V type does not fit the model's heads, or there is no memory.
    pub fn session(&mut self, params: Params) -> Result<Session<B>, BackendError> {
        Ok(Session::new(self.device.kv(&self.kv_layers, self.options.kv_type)?, params))
    }

    /// Computes the next ids of each segment; `on_logits` gets the rows that were asked for, in order.
    ///
    /// `hook` is called between layers, experts and parts of the head, and may stop the step.
    ///
    /// # Errors
    /// [`ForwardError`]; the sessions then have the K and V they had, or (stopped in the middle of a window) none.
    pub fn forward(
        &mut self,
        segments: &mut [Segment<'_, B>],
        hook: &mut dyn FnMut(Point) -> Flow,
        on_logits: &mut dyn FnMut(Logits<'_>),
    ) -> Result<(), ForwardError> {
        let outcome = self.reserve(segments).and_then(|()| self.compute(segments, hook, on_logits));
        for segment in segments {
            let session = &mut *segment.session;
            match outcome {
                Ok(()) => session.n_cached += segment.n_tokens,
                Err(_) => self.device.kv_truncate(&mut session.kv, session.n_cached as u32),
            }
            // A layer with a window may have let go of what the next position needs: then the session starts again.
            if !self.device.kv_can_resume_at(&session.kv, session.n_cached as u32) {
                self.device.kv_truncate(&mut session.kv, 0);
                session.n_cached = 0;
            }
        }
        outcome
    }

    /// Checks the step and makes room in the caches.
    fn reserve(&mut self, segments: &mut [Segment<'_, B>]) -> Result<(), ForwardError> {
        let n_rows = segments.iter().map(|s| s.n_tokens).sum();
        let max_rows = self.options.max_step_tokens;
        if n_rows == 0 || n_rows > max_rows {
            return Err(ForwardError::StepShape { n_rows, max_rows });
        }
        for segment in segments {
            let n_pending = segment.session.pending().len();
            if segment.n_tokens == 0 || segment.n_tokens > n_pending || segment.logits.end > segment.n_tokens {
                return Err(ForwardError::StepShape { n_rows: segment.n_tokens, max_rows: n_pending });
            }
            let n_vocab = self.n_vocab;
            let ids = &segment.session.pending()[..segment.n_tokens];
            if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
                return Err(ForwardError::UnknownToken { id, n_vocab });
            }
            let n_tokens = segment.session.n_cached + segment.n_tokens;
            let n_ctx_tokens = self.options.n_ctx_tokens;
            match u32::try_from(n_tokens) {
                Ok(n) if n <= n_ctx_tokens => self.device.kv_reserve(&mut segment.session.kv, n)?,
                Ok(_) | Err(_) => return Err(ForwardError::ContextFull { n_tokens, n_ctx_tokens }),
            }
        }
        Ok(())
    }

    fn compute(
        &mut self,
        segments: &mut [Segment<'_, B>],
        hook: &mut dyn FnMut(Point) -> Flow,
        on_logits: &mut dyn FnMut(Logits<'_>),
    ) -> Result<(), ForwardError> {
        let mut step = Step { ids: Vec::new(), runs: Vec::new(), hook };
        // (segment, row in it, row in the step) of every row that needs logits.
        let mut wanted: Vec<(usize, usize, u32)> = Vec::new();
        for (i, segment) in segments.iter_mut().enumerate() {
            let first = step.ids.len();
            let session = &mut *segment.session;
            step.ids.extend_from_slice(&session.ids()[session.n_cached..][..segment.n_tokens]);
            wanted.extend(segment.logits.clone().map(|row| (i, row, (first + row) as u32)));
            step.runs.push(Run { pos: session.n_cached as u32, kv: &mut session.kv, rows: first..step.ids.len() });
        }
        self.model.forward(&mut self.device, &mut step, &mut self.work)?;

        let (head, w) = (self.model.head(), &mut self.work);
        for group in wanted.chunks(HEAD_ROWS) {
            let rows: Vec<u32> = group.iter().map(|&(_, _, row)| row).collect();
            self.device.select_rows(&w.x, &rows, &mut w.head.x); // x: [rows × n_embd]
            self.device.rms_norm(&w.head.x, &head.norm, head.eps, &mut w.head.h);
            self.device.prepare(&w.head.h, &mut w.head.h_acts);
            self.device.matmul(&head.output, &w.head.h_acts, &mut w.head.logits); // logits: [rows × n_vocab]
            for (r, &(segment, row, _)) in group.iter().enumerate() {
                let values = self.device.read_row(&w.head.logits, r);
                on_logits(Logits { segment, row, values: &values });
            }
            step.hand_over(Point::Head)?;
        }
        Ok(())
    }

    /// Bytes of K and V that a session holds now.
    pub fn kv_bytes(&self, session: &Session<B>) -> u64 {
        self.device.kv_bytes(&session.kv)
    }

    /// Bytes of the work buffers.
    pub fn activation_bytes(&self) -> u64 {
        self.work.n_bytes
    }

    /// Bytes of the weights in the file.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// The knobs it was started with.
    pub fn options(&self) -> EngineOptions {
        self.options
    }

    /// Device, instruction set and threads, for a person.
    pub fn describe(&self) -> String {
        self.device.describe()
    }
}
