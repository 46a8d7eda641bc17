//! The files that the rules read.

use std::io;
use std::path::Path;

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A source made up by a test.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether all of the file is test code: in a crate's `tests/` or `benches/` folder, or a module named `tests`.
    /// (`tests/src` is the test crate's library: it is ordinary code.)
    pub(super) fn is_test_file(&self) -> bool {
        self.path.contains("/tests/") || self.path.contains("/benches/") || self.path.ends_with("/tests.rs")
    }
}

/// Folders that hold no sources of ours.
const SKIPPED_FOLDERS: [&str; 3] = ["target", ".git", "__pycache__"];
/// What counts as a source. Data files (golden values, lock files) are not style's business.
const ENDINGS: [&str; 13] =
    [".rs", ".toml", ".md", ".py", ".sh", ".yaml", ".yml", ".service", ".txt", ".cu", ".js", ".html", ".css"];
const NAMES: [&str; 2] = ["Makefile", "run"];

/// Every source under `root`, sorted by path.
///
/// # Errors
/// A folder or file that can't be read.
pub fn read_repository(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                folders.push(entry.path());
            } else if kind.is_file() && is_source(&name) {
                let path = entry.path();
                let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                // A data file with a source's ending may hold any bytes; the rules look for ASCII words only.
                let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
                sources.push(Source { path: relative, text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn is_source(name: &str) -> bool {
    NAMES.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}
