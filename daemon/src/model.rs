//! The model as the daemon needs it: its sizes for the plan, its words for the API. From the header alone; no tensor is read.

use std::path::Path;

use plimsoll::sizes::sizes;
use plimsoll_config::config::KvType;
use plimsoll_config::units::Bytes;
use plimsoll_decide::plan::ModelSizes;
use plimsoll_model::facts::ModelFacts;
use plimsoll_model::file::{HeaderFile, ModelFile};
use plimsoll_model::gguf::Header;

use crate::http::ModelCard;
use crate::setup::SetupError;
use crate::text::Text;

/// A model for `plan`.
#[derive(Debug)]
pub(crate) struct Sized {
    /// One line for a person.
    pub(crate) title: String,
    /// For the ledger.
    pub(crate) sizes: ModelSizes,
    /// What is missing, if the file is shorter than its table of tensors says.
    pub(crate) cut: Option<Cut>,
}

/// A file that is not all there: enough for a plan, not for `serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// What is there of the parts' bytes that are needed.
    pub(crate) there: Bytes,
    /// Where the last tensor of each part ends, added up.
    pub(crate) needed: Bytes,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the file is cut: {} of {} are there; serve would refuse it", self.there, self.needed)
    }
}

/// A model for `serve`.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// One line for a person.
    pub(crate) title: String,
    /// For the ledger.
    pub(crate) sizes: ModelSizes,
    /// Tokenizer and chat template.
    pub(crate) text: Text,
    /// For `/v1/models` and every answer.
    pub(crate) card: ModelCard,
}

/// Reads the header. The data need not be there.
///
/// # Errors
/// The file is missing, damaged, or of a kind that this build does not know.
pub(crate) fn read_sizes(path: &Path) -> Result<Sized, SetupError> {
    let file = ModelFile::open_header(path).map_err(SetupError::Open)?;
    let facts = facts_of(path, file.header())?;
    Ok(Sized {
        title: title(path, &facts, file.file_bytes()),
        sizes: sizes(file.header(), &facts, file.file_bytes()),
        cut: cut(&file),
    })
}

/// Reads the header with its vocabulary and template, and checks that the data is there in full.
///
/// # Errors
/// As [`read_sizes`], and a file that was cut.
pub(crate) fn load(path: &Path, kv_type: KvType) -> Result<Loaded, SetupError> {
    let file = ModelFile::open(path).map_err(SetupError::Open)?;
    let facts = facts_of(path, file.header())?;
    let text = Text::from_header(file.header()).map_err(|e| bad(path, e))?;
    let sizes = sizes(file.header(), &facts, file.file_bytes());
    let id = path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned());
    let card = ModelCard {
        fingerprint: fingerprint(&id, file.file_bytes(), kv_type),
        id,
        n_ctx_train: facts.n_ctx_train,
        n_vocab: facts.n_vocab,
        kv_type: kv_type.name(),
        file_bytes: file.file_bytes(),
    };
    Ok(Loaded { title: title(path, &facts, file.file_bytes()), sizes, text, card })
}

fn cut(file: &HeaderFile) -> Option<Cut> {
    let mut ends: Vec<u64> = vec![0; file.parts().len()];
    for tensor in &file.header().tensors {
        if let (Some(end), Some(part)) = (ends.get_mut(tensor.part), file.parts().get(tensor.part)) {
            *end = (*end).max(part.data_offset_bytes + tensor.offset_bytes + tensor.n_bytes); // the parser checked the sum
        }
    }
    let there = file.parts().iter().zip(&ends).map(|(part, end)| part.file_bytes.min(*end)).sum();
    let cut = Cut { there: Bytes(there), needed: Bytes(ends.iter().sum()) };
    (cut.there < cut.needed).then_some(cut)
}

fn facts_of(path: &Path, header: &Header) -> Result<ModelFacts, SetupError> {
    ModelFacts::from_header(header).map_err(|e| bad(path, e))
}

fn bad(path: &Path, why: impl std::fmt::Display) -> SetupError {
    SetupError::Model { path: path.to_owned(), why: why.to_string() }
}

/// `SmolLM2 135M Instruct · llama · Q4_1 · 93.8 MiB`, as far as the header knows.
fn title(path: &Path, facts: &ModelFacts, file_bytes: u64) -> String {
    let name = facts.name.clone().unwrap_or_else(|| path.display().to_string());
    let kind = facts.file_type_name().map_or_else(String::new, |kind| format!(" · {kind}"));
    format!("{name} · {}{kind} · {}", facts.arch.name(), Bytes(file_bytes))
}

/// Says whether two answers came from the same build, file and KV type: FNV-1a over them. Not a proof, a hint.
fn fingerprint(id: &str, file_bytes: u64, kv_type: KvType) -> String {
    let text = format!("{} {id} {file_bytes} {}", env!("CARGO_PKG_VERSION"), kv_type.name());
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("plimsoll-{}-{:08x}", env!("CARGO_PKG_VERSION"), hash >> 32)
}
