//! Opening a model: one file or all parts of a split one, mapped for the worker or read for the daemon.

use crate::gguf::{GgufError, Header, MetadataError, TensorInfo};
use crate::map;
use crate::split::PartName;
use plimsoll_config::limits::{MAX_GGUF_HEADER_BYTES, MAX_GGUF_PARTS};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that live as long as somebody reads them: a mapped part.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Why a model can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A file is not there, or what is there is not a regular file.
    Missing {
        /// The path that was asked for.
        path: PathBuf,
        /// What was looked for, and what is there instead.
        looked_for: String,
    },
    /// Reading failed.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not a GGUF this build reads.
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: GgufError,
    },
    /// The parts of a split model do not fit one another.
    Parts {
        /// The file.
        path: PathBuf,
        /// What is wrong, as a sentence.
        why: String,
    },
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { path, looked_for } => write!(f, "no model at {}: {looked_for}", path.display()),
            Self::Io { path, error } => write!(f, "{} can't be read: {error}", path.display()),
            Self::Gguf { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Parts { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Gguf { error, .. } => Some(error),
            Self::Missing { .. } | Self::Parts { .. } => None,
        }
    }
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub file_bytes: u64,
    /// Where its data section starts.
    pub data_offset_bytes: u64,
}

/// A model's header, read without mapping anything: for planning. The data need not be there.
#[derive(Debug, Clone)]
pub struct HeaderFile {
    header: Header,
    parts: Vec<Part>,
}

impl HeaderFile {
    /// The header: metadata of part 1, tensors of all parts.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The files, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.file_bytes).sum()
    }
}

/// Where a tensor's bytes are.
#[derive(Clone, Debug)]
pub struct TensorRef<'a> {
    /// The row of the header's table.
    pub info: &'a TensorInfo,
    /// The part that holds the bytes: see [`ModelFile::part_bytes`].
    pub part: usize,
    /// Where in the part's bytes.
    pub range: Range<usize>,
}

/// A model with all its data mapped. Cheap to share: parts are behind [`Arc`]s.
pub struct ModelFile {
    file: HeaderFile,
    maps: Vec<SharedBytes>,
}

impl std::fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelFile").field("parts", &self.file.parts).finish_non_exhaustive()
    }
}

impl ModelFile {
    /// Opens and maps the model at `path`, which may be any part of a split one. Every tensor's bytes are there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let mut maps: Vec<SharedBytes> = Vec::new();
        let file = open_parts(path, |path, file| {
            let map = map::map(file).map_err(|error| OpenError::Io { path: path.into(), error })?;
            let parsed = Header::parse(&map).and_then(|header| {
                header.check_data(map.len() as u64)?;
                Ok(header)
            });
            let header = parsed.map_err(|error| OpenError::Gguf { path: path.into(), error })?;
            maps.push(Arc::new(map));
            Ok(header)
        })?;
        Ok(Self { file, maps })
    }

    /// Reads only the header of the model at `path`: its data may be missing, sparse or still on its way.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_header(path: &Path) -> Result<HeaderFile, OpenError> {
        open_parts(path, read_header)
    }

    /// The header: metadata of part 1, tensors of all parts.
    pub fn header(&self) -> &Header {
        &self.file.header
    }

    /// The files, in order.
    pub fn parts(&self) -> &[Part] {
        &self.file.parts
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.file.file_bytes()
    }

    /// The tensor called `name`, or `None` when the model has none.
    pub fn tensor(&self, name: &str) -> Option<TensorRef<'_>> {
        let info = self.file.header.tensor(name)?;
        let range = Header::file_range(info, self.file.parts.get(info.part)?.data_offset_bytes)?;
        Some(TensorRef { info, part: info.part, range })
    }

    /// The bytes of part `i`; none past the last part.
    pub fn part_bytes(&self, i: usize) -> SharedBytes {
        self.maps.get(i).cloned().unwrap_or_else(|| Arc::new([]))
    }

    /// The bytes of a tensor of this file; none for a tensor of another file that does not fit.
    pub fn tensor_bytes(&self, tensor: &TensorRef<'_>) -> &[u8] {
        self.maps.get(tensor.part).and_then(|map| (**map).as_ref().get(tensor.range.clone())).unwrap_or(&[])
    }
}

/// How `read` gets the header of one opened file.
type ReadHeader<'a> = &'a mut dyn FnMut(&Path, &File) -> Result<Header, OpenError>;

fn open_parts(
    path: &Path,
    mut read: impl FnMut(&Path, &File) -> Result<Header, OpenError>,
) -> Result<HeaderFile, OpenError> {
    let name = PartName::parse(path);
    let first = name.as_ref().map_or_else(|| path.to_path_buf(), |name| name.path(1));
    let (header, part) = open_one(&first, path, &mut read)?;
    let parts_error = |path: &Path, why: String| OpenError::Parts { path: path.into(), why };
    let n_parts = split_u32(&header, "split.count", &first)?.unwrap_or(1).max(1);
    if n_parts > MAX_GGUF_PARTS {
        return Err(parts_error(&first, format!("split.count is {n_parts}, over the limit of {MAX_GGUF_PARTS}")));
    }
    let mut file = HeaderFile { header, parts: vec![part] };
    let Some(name) = name else {
        return if n_parts == 1 {
            Ok(file)
        } else {
            let why = format!(
                "this is one of {n_parts} parts, but not named like one; its name must end in -00001-of-{n_parts:05}.gguf"
            );
            Err(parts_error(&first, why))
        };
    };
    if name.n_parts != n_parts {
        let why = format!("the file says it has {n_parts} parts, its name says {}", name.n_parts);
        return Err(parts_error(&first, why));
    }
    check_number(&file.header, 0, &first)?;
    for number in 2..=n_parts {
        let path = name.path(number);
        let (header, part) = open_one(&path, &path, &mut read)?;
        let index = (number - 1) as usize;
        check_number(&header, index as u32, &path)?;
        file.header
            .join(header, index)
            .map_err(|name| parts_error(&path, format!("tensor \"{name}\" is in an earlier part already")))?;
        file.parts.push(part);
    }
    if let Some(wanted) = split_u32(&file.header, "split.tensors.count", &first)?
        && wanted as usize != file.header.tensors.len()
    {
        let why = format!("the parts hold {} tensors together, {wanted} should be there", file.header.tensors.len());
        return Err(parts_error(&first, why));
    }
    Ok(file)
}

fn split_u32(header: &Header, key: &str, path: &Path) -> Result<Option<u32>, OpenError> {
    let parts = |e: MetadataError| OpenError::Parts { path: path.into(), why: e.to_string() };
    header.metadata.opt_u32(key).map_err(parts)
}

fn check_number(header: &Header, index: u32, path: &Path) -> Result<(), OpenError> {
    match split_u32(header, "split.no", path)? {
        Some(found) if found != index => {
            let why = format!("the file says it is part {}, its name says {}", u64::from(found) + 1, index + 1);
            Err(OpenError::Parts { path: path.into(), why })
        }
        Some(_) | None => Ok(()),
    }
}

fn open_one(path: &Path, asked_for: &Path, read: ReadHeader<'_>) -> Result<(Header, Part), OpenError> {
    let refuse = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path: asked_for.into(), looked_for: looked_for(path) },
        _ => OpenError::Io { path: path.into(), error },
    };
    let irregular = || {
        let near = neighbours(if path.is_dir() { path } else { folder_of(path) });
        let looked_for = format!("that is not a regular file; give the path of a GGUF file ({near})");
        OpenError::Missing { path: asked_for.into(), looked_for }
    };
    // Asked before opening: the open of a pipe waits for a writer, and that of a device may do something. A pipe that takes
    // the file's place between the two calls still waits; only whoever may write to the model's folder can do that.
    if !std::fs::metadata(path).map_err(refuse)?.is_file() {
        return Err(irregular());
    }
    let file = File::open(path).map_err(refuse)?;
    let stat = file.metadata().map_err(refuse)?;
    // Files of /proc call themselves regular and empty, but give bytes or an error when they are read.
    let is_regular = stat.is_file() && (stat.len() > 0 || matches!(file.read_at(&mut [0], 0), Ok(0)));
    if !is_regular {
        return Err(irregular());
    }
    let header = read(path, &file)?;
    let data_offset_bytes = header.data_offset_bytes;
    Ok((header, Part { path: path.into(), file_bytes: stat.len(), data_offset_bytes }))
}

fn looked_for(path: &Path) -> String {
    let folder = folder_of(path);
    if folder.is_dir() {
        format!("looked for the file {} ({})", path.display(), neighbours(folder))
    } else {
        format!("looked for the file {}, but its folder does not exist", path.display())
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// At most four GGUF files in `folder`, for a message.
fn neighbours(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else { return "its folder can't be read".into() };
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".gguf")).take(100).collect();
    names.sort();
    match names.len() {
        0 => "there is no .gguf file in that folder".into(),
        n if n > 4 => format!("that folder holds {}, and more", names[..4].join(", ")),
        _ => format!("that folder holds {}", names.join(", ")),
    }
}

/// First read of a header: holds the largest in use whole, and costs a few milliseconds from the page cache.
const FIRST_READ_BYTES: u64 = 8 << 20;

/// Reads until the header is whole, by ordinary reads: a file cut short is an error, not a signal.
fn read_header(path: &Path, file: &File) -> Result<Header, OpenError> {
    let io = |error| OpenError::Io { path: path.into(), error };
    let mut bytes = Vec::new();
    let mut want_bytes = FIRST_READ_BYTES;
    loop {
        let missing_bytes = want_bytes - bytes.len() as u64;
        let got_bytes = file.take(missing_bytes).read_to_end(&mut bytes).map_err(io)? as u64;
        match Header::parse(&bytes) {
            Err(GgufError::Truncated { .. }) if got_bytes == missing_bytes && want_bytes < MAX_GGUF_HEADER_BYTES => {
                want_bytes *= 4;
            }
            result => return result.map_err(|error| OpenError::Gguf { path: path.into(), error }),
        }
    }
}
