//! The named holders of bytes. A ledger shows those that exist; a name alone promises nothing.

/// A named holder of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// The GPU driver's own bytes for our process.
    Context,
    /// Weights that every token uses.
    DenseWeights,
    /// Experts held in memory.
    ExpertResident,
    /// Keys and values.
    Kv,
    /// Buffers of a speculative verify window. Inside the reserve.
    VerifyArena,
    /// The drafting layer's head and logits. Inside the reserve.
    DraftHead,
    /// What a prompt's first chunk allocates on the card. Inside the reserve.
    PromptPath,
    /// What the reserve keeps free beyond the three above. Held by nobody.
    Slack,
    /// Experts held on the card.
    ExpertCache,
    /// Finished prompts, kept for the next turn.
    PrefixCache,
    /// Idle and running sessions, beside their keys and values.
    Sessions,
    /// Work buffers of a step.
    Activations,
    /// Bytes on their way between tiers.
    Staging,
    /// Code, stacks, vocabulary, requests in flight.
    Service,
    /// Everybody else.
    Foreign,
    /// What the driver keeps of a card.
    DriverReserved,
    /// In use, and of no holder that we know.
    Unattributed,
    /// The model's file in the page cache. The kernel takes it back by itself.
    PageCacheModel,
    /// The model's file.
    ModelFile,
    /// Experts read from the file for one token. A flow, not a holding.
    FileTierReads,
    /// Keys and values moved to a file.
    KvSpill,
    /// What the daemon remembers between starts.
    State,
}

impl Object {
    /// All of them, in the order in which they are declared.
    pub const ALL: [Object; 22] = [
        Object::Context,
        Object::DenseWeights,
        Object::ExpertResident,
        Object::Kv,
        Object::VerifyArena,
        Object::DraftHead,
        Object::PromptPath,
        Object::Slack,
        Object::ExpertCache,
        Object::PrefixCache,
        Object::Sessions,
        Object::Activations,
        Object::Staging,
        Object::Service,
        Object::Foreign,
        Object::DriverReserved,
        Object::Unattributed,
        Object::PageCacheModel,
        Object::ModelFile,
        Object::FileTierReads,
        Object::KvSpill,
        Object::State,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Object::Context => "context",
            Object::DenseWeights => "dense_weights",
            Object::ExpertResident => "expert_resident",
            Object::Kv => "kv",
            Object::VerifyArena => "verify_arena",
            Object::DraftHead => "draft_head",
            Object::PromptPath => "prompt_path",
            Object::Slack => "slack",
            Object::ExpertCache => "expert_cache",
            Object::PrefixCache => "prefix_cache",
            Object::Sessions => "sessions",
            Object::Activations => "activations",
            Object::Staging => "staging",
            Object::Service => "service",
            Object::Foreign => "foreign",
            Object::DriverReserved => "driver_reserved",
            Object::Unattributed => "unattributed",
            Object::PageCacheModel => "page_cache_model",
            Object::ModelFile => "model_file",
            Object::FileTierReads => "file_tier_reads",
            Object::KvSpill => "kv_spill",
            Object::State => "state",
        }
    }

    /// Whether its bytes are taken from the account: not what is kept free, what the kernel takes back by itself, or what
    /// only passes through.
    pub fn is_held(self) -> bool {
        !matches!(self, Object::Slack | Object::PageCacheModel | Object::FileTierReads)
    }

    /// Whether it is ours to shrink.
    pub fn is_ours(self) -> bool {
        !matches!(self, Object::Foreign | Object::DriverReserved | Object::Unattributed)
    }

    /// Whether it lies inside the reserve: allocated after the expert cache, or kept free.
    pub fn is_in_reserve(self) -> bool {
        matches!(self, Object::VerifyArena | Object::DraftHead | Object::PromptPath | Object::Slack)
    }
}
