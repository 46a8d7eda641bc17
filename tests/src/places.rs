//! Where things are: the checkout, the build folder, the models.

use std::path::{Path, PathBuf};

/// The root of the repository's checkout.
#[must_use]
pub fn repository_root() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder).to_path_buf()
}

/// Cargo's build folder: the one that the running test is in.
#[must_use]
pub fn target_folder() -> PathBuf {
    let running = std::env::current_exe().unwrap_or_default();
    // Cargo marks the root of a build folder as a cache.
    let marked = running.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    marked.map_or_else(|| repository_root().join("target"), Path::to_path_buf)
}

/// A model that the scripts fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// SmolLM2-135M-Instruct Q4_1.
    SmolLm2,
    /// Gemma 3 270M Q4_K_M.
    Gemma3,
}

impl Model {
    /// File name, as tests/scripts/models.py gives it.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::SmolLm2 => "smollm2-135m-instruct-q4_1.gguf",
            Self::Gemma3 => "gemma-3-270m-q4_k_m.gguf",
        }
    }

    /// Its path.
    ///
    /// # Panics
    /// When it is not there: a test that needs it fails with what to do, it is not skipped.
    #[must_use]
    pub fn path(self) -> PathBuf {
        let path = models_folder().join(self.file_name());
        assert!(path.is_file(), "{} is missing: run `make fetch-test-models`", path.display());
        path
    }
}

/// `$PLIMSOLL_TEST_MODELS`, else `plimsoll/models` in the user's cache folder.
fn models_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || {
        let home = set("HOME").unwrap_or_default();
        set("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("plimsoll/models")
    };
    set("PLIMSOLL_TEST_MODELS").unwrap_or_else(cache)
}
