//! One control group: what it may use, what it uses, what of that could be had back, and what happened to it.

use std::path::{Path, PathBuf};

use plimsoll_config::units::Bytes;

use crate::probe::pressure::{self, Pressure};
use crate::probe::source::{self, ProbeError};

/// The kernel's two kinds of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A group that may count memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(super) folder: PathBuf,
    pub(super) version: Version,
}

/// A group's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupReading {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Where the kernel begins to kill.
    pub(crate) limit: Option<Bytes>,
    /// Where it begins to slow the group down; version 2 alone.
    pub(crate) high: Option<Bytes>,
    /// All that is counted, page cache too.
    pub(crate) usage: Bytes,
    /// Page cache of files in it, which the kernel can drop.
    pub(crate) cache: Bytes,
    /// What happened since the group was made.
    pub(crate) events: Events,
    /// Waits for memory in the group; `None` in version 1 and where the kernel does not measure it.
    pub(crate) pressure: Option<Pressure>,
}

/// Counters. `None`: this version or kernel does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// Processes that the kernel ended for want of memory.
    pub(crate) oom_kills: Option<u64>,
    /// Times that the limit was reached; version 2 alone.
    pub(crate) limit_reached: Option<u64>,
    /// Times that it was slowed down; version 2 alone.
    pub(crate) slowed_down: Option<u64>,
}

/// Where a version has its figures.
struct Files {
    limit: &'static str,
    high: Option<&'static str>,
    usage: &'static str,
    events: &'static str,
    pressure: Option<&'static str>,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    high: None, // its soft limit slows nobody down
    usage: "memory.usage_in_bytes",
    events: "memory.oom_control",
    pressure: None,
};

const V2: Files = Files {
    limit: "memory.max",
    high: Some("memory.high"),
    usage: "memory.current",
    events: "memory.events",
    pressure: Some("memory.pressure"),
};

impl GroupReading {
    /// Where it begins to hurt: beyond `high` every allocation is slowed down until the group looks hung.
    pub(crate) fn bound(&self) -> Option<Bytes> {
        self.limit.into_iter().chain(self.high).min()
    }

    /// What can't be had back by dropping page cache.
    pub(crate) fn unreclaimable(&self) -> Bytes {
        self.usage.saturating_sub(self.cache)
    }
}

impl Group {
    fn files(&self) -> &'static Files {
        match self.version {
            Version::V1 => &V1,
            Version::V2 => &V2,
        }
    }

    /// `None` where nobody counts: the group is not to be seen here, has no controller for memory, or is version 2's own top.
    ///
    /// # Errors
    /// One of its figures can't be read.
    pub(crate) fn read(&self) -> Result<Option<GroupReading>, ProbeError> {
        let files = self.files();
        let path = |name: &str| self.folder.join(name);
        let Some(usage) = source::load_optional(&path(files.usage), parse::usage)? else { return Ok(None) };
        let bound = |name: &str| source::load_optional(&path(name), parse::limit).map(Option::flatten);
        let cache = match self.version {
            Version::V1 => parse::cache_v1,
            Version::V2 => parse::cache_v2,
        };
        let pressure = |name: &'static str| pressure::read(&path(name));
        Ok(Some(GroupReading {
            folder: self.folder.clone(),
            limit: bound(files.limit)?,
            high: files.high.map(bound).transpose()?.flatten(),
            usage,
            cache: source::load(&path("memory.stat"), cache)?,
            events: self.events()?,
            pressure: files.pressure.map(pressure).transpose()?.flatten(),
        }))
    }

    /// The counters alone: one small file.
    ///
    /// # Errors
    /// They are there and can't be read.
    pub(crate) fn events(&self) -> Result<Events, ProbeError> {
        let path: &Path = &self.folder.join(self.files().events);
        source::load_optional(path, parse::events).map(Option::unwrap_or_default)
    }
}

/// What the files say.
pub(super) mod parse {
    use plimsoll_config::units::Bytes;

    use super::Events;
    use crate::probe::fields::{Fields, number};
    use crate::probe::source::{ParseError, text};

    /// No limit, as version 1 writes it: the largest count of pages that fits, in bytes. Any page size is above this.
    const NO_LIMIT_V1: u64 = 1 << 60;

    /// `max` of version 2 and the huge number of version 1 mean that there is none.
    pub(crate) fn limit(bytes: &[u8]) -> Result<Option<Bytes>, ParseError> {
        match text(bytes).trim() {
            "max" => Ok(None),
            figure => Ok(Some(number("limit", figure)?).filter(|limit| *limit < NO_LIMIT_V1).map(Bytes)),
        }
    }

    pub(crate) fn usage(bytes: &[u8]) -> Result<Bytes, ParseError> {
        number("usage", &text(bytes)).map(Bytes)
    }

    /// Of the group and those in it, which the lines without `total_` leave out.
    pub(crate) fn cache_v1(bytes: &[u8]) -> Result<Bytes, ParseError> {
        cache(bytes, "total_inactive_file", "total_active_file")
    }

    pub(crate) fn cache_v2(bytes: &[u8]) -> Result<Bytes, ParseError> {
        cache(bytes, "inactive_file", "active_file")
    }

    fn cache(bytes: &[u8], inactive: &'static str, active: &'static str) -> Result<Bytes, ParseError> {
        let text = text(bytes);
        let fields = Fields(&text);
        Ok(Bytes(fields.needed_count(inactive)?).saturating_add(Bytes(fields.needed_count(active)?)))
    }

    /// Lines of both versions: `oom_kill` stands in `memory.oom_control` since 4.13, and in every `memory.events`.
    pub(crate) fn events(bytes: &[u8]) -> Result<Events, ParseError> {
        let text = text(bytes);
        let fields = Fields(&text);
        Ok(Events {
            oom_kills: fields.count("oom_kill")?,
            limit_reached: fields.count("max")?,
            slowed_down: fields.count("high")?,
        })
    }
}
