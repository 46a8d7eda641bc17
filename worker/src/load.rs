//! Takes weights out of a model file, by name, with the shape that the architecture expects.
//!
//! Called by the architectures' `load` functions. On the CPU nothing is copied: a weight is a range of the mapped file.
//! Every tensor that an architecture names must be there with the right shape, and every tensor in the file must have been
//! named: a bias that nobody adds would give other text than the model's, silently.

use crate::engine::Flow;
use plimsoll_kernels::backend::{Backend, BackendError, HostMatrix};
use plimsoll_kernels::format::Format;
use plimsoll_model::facts::ModelFacts;
use plimsoll_model::file::ModelFile;
use std::collections::BTreeSet;
use std::fmt;

/// Why a model can't be loaded. Each sentence names the tensor or the knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The architecture needs a tensor that the file does not have.
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape than the header's hyperparameters say.
    Shape {
        /// Its name.
        name: String,
        /// Dimensions as GGUF orders them, columns first.
        want: Vec<u64>,
        /// What the file has.
        found: Vec<u64>,
    },
    /// A tensor is stored in a format that this build has no kernels for, or not as f32 where it must be.
    Format {
        /// Its name.
        name: String,
        /// The format's name.
        found: String,
        /// What would work.
        want: &'static str,
    },
    /// The file has a tensor that the architecture does not use.
    Unused {
        /// Its name.
        name: String,
        /// The architecture.
        architecture: String,
    },
    /// The header asks for something that the architecture's code does not do.
    Unsupported(String),
    /// The backend refused a weight or has no memory.
    Backend(BackendError),
    /// Stopped from outside.
    Stopped,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name } => {
                write!(f, "tensor {name} is missing: the file is incomplete or was made for another architecture")
            }
            Self::Shape { name, want, found } => {
                write!(f, "tensor {name} has the shape {found:?}, but the header's sizes ask for {want:?}")
            }
            Self::Format { name, found, want } => {
                write!(f, "tensor {name} is stored as {found}; this build needs {want}")
            }
            Self::Unused { name, architecture } => write!(
                f,
                "tensor {name} is in the file, but architecture {architecture} has no use for it here: its text would not be the model's"
            ),
            Self::Unsupported(what) => write!(f, "{what}"),
            Self::Backend(error) => write!(f, "{error}"),
            Self::Stopped => write!(f, "the load was stopped"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<BackendError> for LoadError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

const WEIGHT_FORMATS: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K";

/// Hears how many bytes of weights are ready, of how many, and may stop the load.
pub type LoadProgress<'a> = dyn FnMut(u64, u64) -> Flow + 'a;

/// One load: the file, the device that takes the weights, and what was taken so far.
pub struct Loader<'a, B: Backend> {
    device: &'a mut B,
    file: &'a ModelFile,
    facts: &'a ModelFacts,
    taken: BTreeSet<String>,
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut LoadProgress<'a>,
}

impl<'a, B: Backend> Loader<'a, B> {
    /// A load that has taken nothing yet.
    pub fn new(
        device: &'a mut B,
        file: &'a ModelFile,
        facts: &'a ModelFacts,
        progress: &'a mut LoadProgress<'a>,
    ) -> Self {
        let total_bytes = file.header().tensors.iter().map(|t| t.n_bytes).sum();
        Self { device, file, facts, taken: BTreeSet::new(), done_bytes: 0, total_bytes, progress }
    }

    /// The sizes that the architecture is built from.
    pub fn facts(&self) -> &'a ModelFacts {
        self.facts
    }

    /// Whether the file has a tensor.
    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// A matrix `[n_rows × n_cols]` in any format with kernels.
    ///
    /// # Errors
    /// [`LoadError`], naming the tensor.
    pub fn matrix(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<B::Weight, LoadError> {
        let host = self.host_matrix(name, &[n_cols, n_rows], n_rows, n_cols)?;
        Ok(self.device.weight(host)?)
    }

    /// A vector of `n` elements (a norm, a bias), which must be f32, as `[1 × n]`.
    ///
    /// # Errors
    /// [`LoadError`], naming the tensor.
    pub fn vector(&mut self, name: &str, n: usize) -> Result<B::Weight, LoadError> {
        let host = self.host_matrix(name, &[n], 1, n)?;
        f32_only(name, host.format)?;
        Ok(self.device.weight(host)?)
    }

    /// A small matrix that must be f32: an expert router.
    ///
    /// # Errors
    /// [`LoadError`], naming the tensor.
    pub fn f32_matrix(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<B::Weight, LoadError> {
        let host = self.host_matrix(name, &[n_cols, n_rows], n_rows, n_cols)?;
        f32_only(name, host.format)?;
        Ok(self.device.weight(host)?)
    }

    /// A vector of `n` f32 values in host memory (rope factors).
    ///
    /// # Errors
    /// [`LoadError`], naming the tensor.
    pub fn host_vector(&mut self, name: &str, n: usize) -> Result<Vec<f32>, LoadError> {
        let host = self.host_matrix(name, &[n], 1, n)?;
        f32_only(name, host.format)?;
        let bytes = (*host.owner).as_ref().get(host.range).unwrap_or_default();
        let (values, _) = bytes.as_chunks::<4>();
        Ok(values.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// The `n_experts` matrices `[n_rows × n_cols]` of a 3-D tensor, each a range of its own.
    ///
    /// # Errors
    /// [`LoadError`], naming the tensor.
    pub fn experts(
        &mut self,
        name: &str,
        n_experts: usize,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Vec<B::Weight>, LoadError> {
        let all = self.host_matrix(name, &[n_cols, n_rows, n_experts], n_rows, n_cols)?;
        let expert_bytes = all.range.len() / n_experts;
        (0..n_experts)
            .map(|e| {
                let start = all.range.start + e * expert_bytes;
                let one = HostMatrix { range: start..start + expert_bytes, ..all.clone() };
                Ok(self.device.weight(one)?)
            })
            .collect()
    }

    /// Ends the load: every tensor of the file must have been taken.
    ///
    /// # Errors
    /// [`LoadError::Unused`] with the first tensor that nobody asked for.
    pub fn finish(self) -> Result<(), LoadError> {
        match self.file.header().tensors.iter().find(|t| !self.taken.contains(&t.name)) {
            Some(t) => Err(LoadError::Unused { name: t.name.clone(), architecture: self.facts.arch.name().to_owned() }),
            None => Ok(()),
        }
    }

    /// A tensor's bytes, after checking its dimensions (GGUF order: columns first) and format, and after the hand-over.
    fn host_matrix(
        &mut self,
        name: &str,
        dims: &[usize],
        n_rows: usize,
        n_cols: usize,
    ) -> Result<HostMatrix, LoadError> {
        let tensor = self.file.tensor(name).ok_or_else(|| LoadError::Missing { name: name.to_owned() })?;
        let info = tensor.info;
        let want: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
        if info.dims != want {
            return Err(LoadError::Shape { name: name.to_owned(), want, found: info.dims.clone() });
        }
        let format = Format::from_ggml_id(info.ty.id()).ok_or_else(|| LoadError::Format {
            name: name.to_owned(),
            found: info.ty.name().to_owned(),
            want: WEIGHT_FORMATS,
        })?;
        if self.taken.insert(name.to_owned()) {
            self.done_bytes += info.n_bytes;
        }
        match (self.progress)(self.done_bytes, self.total_bytes) {
            Flow::Continue => {}
            Flow::Stop => return Err(LoadError::Stopped),
        }
        Ok(HostMatrix { owner: self.file.part_bytes(tensor.part), range: tensor.range, format, n_rows, n_cols })
    }
}

fn f32_only(name: &str, format: Format) -> Result<(), LoadError> {
    if format == Format::F32 {
        return Ok(());
    }
    Err(LoadError::Format { name: name.to_owned(), found: format.name().to_owned(), want: "F32" })
}
