//! The table of fields: each one with how it is read. A field that is not here is refused; one that is here changes
//! [`Config`], so that nothing is accepted that nobody acts on.

use std::path::PathBuf;

use crate::config::{Config, KvType, LogFormat, LogLevel, Setting, parse_listen};
use crate::limits;
use crate::tree::Value;
use crate::units::{Bytes, Millis, Tokens, thousands};

/// A group of fields.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// A field: its name, and how its value goes into the configuration. The error is a sentence.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) read: fn(&Value, &mut Config) -> Result<(), String>,
}

/// All fields.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "model",
        fields: &[Field { name: "path", read: |value, config| set(&mut config.model.path, path(value).map(Some)) }],
    },
    Section {
        name: "server",
        fields: &[Field {
            name: "listen",
            read: |value, config| {
                let address = text(value, "an address with a port such as 127.0.0.1:8080")?;
                set(&mut config.server.listen, parse_listen(address).map_err(|error| error.to_string()))
            },
        }],
    },
    Section {
        name: "worker",
        fields: &[
            Field { name: "path", read: |value, config| set(&mut config.worker.path, path(value).map(Some)) },
            Field {
                name: "threads",
                read: |value, config| {
                    let n_threads = |value: &Value| count(value, 1, limits::MAX_THREADS, "threads");
                    set(&mut config.worker.threads, auto_or(value, n_threads))
                },
            },
            Field {
                name: "max_sessions",
                read: |value, config| {
                    set(&mut config.worker.max_sessions, count(value, 1, limits::MAX_SESSIONS, "sessions"))
                },
            },
        ],
    },
    Section {
        name: "context",
        fields: &[Field {
            name: "tokens",
            read: |value, config| {
                let (min, max) = (limits::MIN_CONTEXT.0, limits::MAX_CONTEXT.0);
                let tokens = |value: &Value| count(value, min, max, "tokens").map(Tokens);
                set(&mut config.context.tokens, auto_or(value, tokens))
            },
        }],
    },
    Section {
        name: "kv",
        fields: &[Field {
            name: "type",
            read: |value, config| set(&mut config.kv.kv_type, one_of(value, &KvType::ALL.map(|kv| (kv.name(), kv)))),
        }],
    },
    Section {
        name: "queue",
        fields: &[Field {
            name: "max_waiting",
            read: |value, config| {
                set(&mut config.queue.max_waiting, count(value, 0, limits::MAX_WAITING, "waiting requests"))
            },
        }],
    },
    Section {
        name: "stop",
        fields: &[Field {
            name: "drain_deadline",
            read: |value, config| set(&mut config.stop.drain_deadline, drain_deadline(value)),
        }],
    },
    Section {
        name: "host",
        fields: &[Field { name: "line", read: |value, config| set(&mut config.host.line, auto_or(value, host_line)) }],
    },
    Section {
        name: "log",
        fields: &[
            Field {
                name: "format",
                read: |value, config| {
                    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
                    set(&mut config.log.format, one_of(value, &formats))
                },
            },
            Field {
                name: "level",
                read: |value, config| {
                    set(&mut config.log.level, one_of(value, &LogLevel::ALL.map(|level| (level.name(), level))))
                },
            },
        ],
    },
];

/// Keeps a value that was read well.
fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// `auto`, or what `read` reads.
fn auto_or<T>(value: &Value, read: impl Fn(&Value) -> Result<T, String>) -> Result<Setting<T>, String> {
    match value {
        Value::Text(text) if text == "auto" => Ok(Setting::Auto),
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List
        | Value::Map(_) => read(value).map(Setting::Exactly).map_err(|sentence| format!("{sentence}; or write auto")),
    }
}

/// A text that is not empty.
fn text<'a>(value: &'a Value, expected: &str) -> Result<&'a str, String> {
    match value {
        Value::Text(text) if !text.is_empty() => Ok(text),
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List
        | Value::Map(_) => Err(format!("expected {expected}, found {}", value.describe())),
    }
}

/// A path, as it is. Nothing is expanded: the same file must mean the same under every user.
fn path(value: &Value) -> Result<PathBuf, String> {
    let path = text(value, "a path in quotes, such as \"/srv/models/model.gguf\"")?;
    if path.starts_with(['~', '$']) {
        return Err(format!("`{path}`: `~` and `$` are not expanded here; write the whole path"));
    }
    if path.contains(char::is_control) {
        return Err("a path can't contain control characters".to_owned());
    }
    Ok(PathBuf::from(path))
}

/// A whole number within bounds.
fn count(value: &Value, min: u32, max: u32, what: &str) -> Result<u32, String> {
    let in_range = |n: i128| u32::try_from(n).ok().filter(|n| (min..=max).contains(n));
    let range = || format!("{} to {} {what}", thousands(min.into()), thousands(max.into()));
    match value {
        Value::Integer(n) => in_range(*n).ok_or_else(|| format!("{n} is out of range: write {}", range())),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::List | Value::Map(_) => {
            Err(format!("expected a whole number, {}, found {}", range(), value.describe()))
        }
    }
}

/// One of a few names.
fn one_of<T: Copy>(value: &Value, known: &[(&str, T)]) -> Result<T, String> {
    let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let written = text(value, &format!("one of {}", names()))?;
    match known.iter().find(|(name, _)| *name == written) {
        Some((_, value)) => Ok(*value),
        None => Err(format!("`{written}` is not known here: write one of {}", names())),
    }
}

fn host_line(value: &Value) -> Result<Bytes, String> {
    let line = Bytes::parse(&unit_text(value)).map_err(|error| error.to_string())?;
    match line >= limits::HOST_LINE_MIN {
        true => Ok(line),
        false => Err(format!("{line} is too little for any model: write at least {}", limits::HOST_LINE_MIN)),
    }
}

fn drain_deadline(value: &Value) -> Result<Millis, String> {
    let deadline = Millis::parse(&unit_text(value)).map_err(|error| error.to_string())?;
    match deadline <= limits::MAX_DRAIN_DEADLINE {
        true => Ok(deadline),
        false => Err(format!("{deadline} is longer than anybody waits: write at most {}", limits::MAX_DRAIN_DEADLINE)),
    }
}

/// A size or a time as its own parser wants it: that one has the better sentence for a bare number.
fn unit_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Float(n) => n.to_string(),
        Value::Null | Value::Bool(_) | Value::List | Value::Map(_) => value.describe(),
    }
}
