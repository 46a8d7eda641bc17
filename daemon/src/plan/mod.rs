//! `plimsoll plan`, and the look before each start of a worker: the header's sizes and the machine's reading become a plan
//! or a refusal. The judging is `decide`'s; here are only the readings, and in [`json`] the answer for programs.

mod json;

use std::sync::{Mutex, PoisonError};

use plimsoll_config::Config;
use plimsoll_config::config::Setting;
use plimsoll_config::limits::DEFAULT_PREFILL_CHUNK;
use plimsoll_config::units::{Bytes, Tokens, thousands};
use plimsoll_decide::ledger::reconcile::{Measured, reconcile};
use plimsoll_decide::ledger::{Account, AccountId, Object};
use plimsoll_decide::measured::{Estimate, Experience, Report, Truth};
use plimsoll_decide::plan::{Caps, DiskReading, Knobs, ModelSizes, Plan, Refusal, Shortfall, Wish, plan};
use plimsoll_decide::render;
use plimsoll_wire::{Start, WIRE_VERSION};

pub(crate) use self::json::to_json;
use crate::probe::{ProbeError, memory, sample};

/// Makes plans for one model and one configuration.
#[derive(Debug)]
pub(crate) struct Planner {
    sizes: ModelSizes,
    wish: Wish,
    model_path: String,
    n_threads: u32,
    /// The disk of the model's file, if it was measured: once, since nothing that runs here makes it another.
    disk: Option<DiskReading>,
    /// What earlier starts of this model held, beside what was planned for them.
    truth: Mutex<Truth>,
}

/// What of a plan can be held against what the worker says it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    host: Account,
    estimates: Vec<Estimate>,
}

/// What is asked of a plan beside the wish.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// What was learned from workers that ran out of memory.
    pub(crate) caps: Caps,
    /// The context that requests were promised, or that an earlier plan had: kept as far as the bounds allow, so that a
    /// request that is continued by another worker finds its room.
    pub(crate) n_ctx: Option<Tokens>,
}

/// Whether a worker may be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may.
    Fits {
        /// What is chosen.
        knobs: Knobs,
        /// What of it may be lowered.
        ours: Caps,
        /// What it said of host memory.
        planned: Option<Box<Planned>>,
    },
    /// Not now.
    Refused {
        /// One sentence for everybody: it goes out over HTTP, so it names nobody's processes.
        why: String,
        /// The whole text, for the log of this machine.
        detail: String,
    },
    /// Never with this configuration.
    Impossible {
        /// The refusal's text.
        why: String,
    },
}

impl Verdict {
    /// The machine could not be looked at: there is no ledger to tell.
    pub(crate) fn unread(why: String) -> Self {
        Self::Refused { detail: why.clone(), why }
    }
}

impl Planner {
    /// `truth` is what earlier starts of this model showed.
    pub(crate) fn new(
        config: &Config,
        sizes: ModelSizes,
        model_path: String,
        truth: Truth,
        disk: Option<DiskReading>,
    ) -> Self {
        let n_threads = match config.worker.threads {
            Setting::Exactly(n_threads) => n_threads,
            // As many as the scheduler and the control group give us; one when they don't say.
            Setting::Auto => std::thread::available_parallelism()
                .map_or(1, |n| u32::try_from(n.get()).unwrap_or(1).min(plimsoll_config::limits::MAX_THREADS)),
        };
        Self { sizes, wish: Wish::from(config), model_path, n_threads, truth: Mutex::new(truth), disk }
    }

    /// Threads that the worker computes with.
    pub(crate) fn n_threads(&self) -> u32 {
        self.n_threads
    }

    /// The plan for the machine as it is now.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn plan(&self, ask: Ask) -> Result<Result<Plan, ProbeError>, Refusal> {
        let mut wish = self.wish;
        if let (Setting::Auto, Some(n_ctx)) = (wish.context, ask.n_ctx) {
            wish.context = Setting::Exactly(ask.caps.n_ctx.map_or(n_ctx, |cap| n_ctx.min(cap)));
        }
        match memory::read() {
            Ok(mut machine) => {
                machine.caps = ask.caps;
                machine.experience = Some(Experience { model_hash: self.model_path.clone(), truth: self.truth() });
                machine.disk.clone_from(&self.disk);
                plan(&self.sizes, &machine, &wish).map(Ok)
            }
            Err(e) => Ok(Err(e)),
        }
    }

    /// The same as a verdict for the supervisor, who asks before each start: the first one, and after each death. What the
    /// machine was like then goes into the log. Reads a few small files: not for the reactor's threads.
    pub(crate) fn look(&self, ask: Ask) -> Verdict {
        if tracing::enabled!(tracing::Level::DEBUG) {
            sample::sample(Some(std::process::id())).log();
        }
        match self.plan(ask) {
            Ok(Ok(plan)) => Verdict::Fits {
                knobs: plan.knobs,
                ours: plan.ours(&self.wish),
                planned: Planned::of(&plan).map(Box::new),
            },
            Ok(Err(e)) => Verdict::unread(format!("the machine's memory could not be read: {e}")),
            Err(refusal) => {
                let why = render::refusal_text(&refusal).trim_end().to_owned();
                match refusal {
                    Refusal::KvTypeImpossible { .. } | Refusal::ModesMixed { .. } | Refusal::OverLearnedCap { .. } => {
                        Verdict::Impossible { why }
                    }
                    Refusal::DoesNotFit(shortage) => Verdict::Refused { why: brief(&shortage.shortfalls), detail: why },
                }
            }
        }
    }

    /// Holds a plan against what its worker holds, for the next plan. Reads a few small files: not for the reactor's
    /// threads.
    ///
    /// # Errors
    /// The machine's memory can't be read.
    pub(crate) fn note(&self, planned: &Planned, held: Vec<(Object, Bytes)>) -> Result<(Report, Truth), ProbeError> {
        let used = memory::read()?.host_foreign;
        let reconciled = reconcile(&planned.host, &Measured { used, objects: held });
        let mut truth = self.truth();
        let report = truth.note(&self.model_path, &planned.host, &planned.estimates, &reconciled);
        self.truth.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&truth);
        Ok((report, truth))
    }

    /// It is plain data: a thread that panicked with it has left it whole.
    fn truth(&self) -> Truth {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first frame for a worker.
    pub(crate) fn start_frame(&self, n_ctx: Tokens) -> Start {
        Start {
            wire_version: WIRE_VERSION,
            model_path: self.model_path.clone(),
            n_ctx_tokens: n_ctx.0,
            max_sessions: self.wish.max_sessions,
            kv_type: self.wish.kv_type.name().into(),
            n_threads: self.n_threads,
            prefill_chunk_tokens: DEFAULT_PREFILL_CHUNK,
        }
    }
}

impl Planned {
    fn of(plan: &Plan) -> Option<Planned> {
        let host = plan.ledger.account(AccountId::Host)?.clone();
        Some(Planned { host, estimates: plan.estimates.get(&AccountId::Host).cloned().unwrap_or_default() })
    }

    /// Whether the plan has experts beside the dense weights.
    pub(crate) fn has_experts(&self) -> bool {
        self.host.object(Object::ExpertResident).is_some()
    }
}

/// What is short and by how much, without a word about who holds the rest.
fn brief(shortfalls: &[Shortfall]) -> String {
    let short =
        |short: &Shortfall| format!("{} is short by {} MiB", short.account, thousands(short.bytes.mib_rounded_up()));
    let all: Vec<String> = shortfalls.iter().map(short).collect();
    format!("DOES NOT FIT: {}; run `plimsoll plan` for the ledger and offers", all.join(" and "))
}
