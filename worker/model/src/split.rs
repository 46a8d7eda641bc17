//! Names of the parts of a split model: `model-00001-of-00003.gguf`.

use std::path::{Path, PathBuf};

/// A part's name taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    folder: PathBuf,
    stem: String,
    /// This part's number, from 1.
    pub number: u32,
    /// How many parts there are.
    pub n_parts: u32,
}

impl PartName {
    /// Takes `path` apart, or `None` when it is not named like a part.
    pub fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        // "-00001-of-00003" is 15 ASCII bytes.
        let (stem, tail) = name.split_at_checked(name.len().checked_sub(15)?)?;
        let (number, n_parts) = tail.strip_prefix('-')?.split_once("-of-")?;
        let digits = |text: &str| {
            (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse::<u32>().ok())?
        };
        let (number, n_parts) = (digits(number)?, digits(n_parts)?);
        if number == 0 || number > n_parts {
            return None;
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Some(Self { folder, stem: stem.into(), number, n_parts })
    }

    /// The path of part `number`, beside this one.
    pub fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.n_parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |path: &str, expect: Option<(u32, u32)>| {
            assert_eq!(PartName::parse(Path::new(path)).map(|p| (p.number, p.n_parts)), expect, "{path}");
        };
        check("/m/x-00001-of-00003.gguf", Some((1, 3)));
        check("x-00003-of-00003.gguf", Some((3, 3)));
        check("-00001-of-00001.gguf", Some((1, 1)));
        check("/m/x.gguf", None);
        check("/m/x-00000-of-00003.gguf", None);
        check("/m/x-00004-of-00003.gguf", None);
        check("/m/x-0001-of-00003.gguf", None);
        check("/m/x-0000é-of-0003.gguf", None);
        check("/m/x-+0001-of-00003.gguf", None);
        let part = PartName::parse(Path::new("/m/x-00002-of-00003.gguf")).unwrap();
        assert_eq!(part.path(1), Path::new("/m/x-00001-of-00003.gguf"));
    }
}
