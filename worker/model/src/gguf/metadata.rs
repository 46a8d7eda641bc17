//! The metadata of a header: typed values under dotted keys, and getters that say what is wrong with one.

use super::strings::StringArray;
use std::sync::Arc;

/// A metadata value's type, as the format numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with the format's number `id`.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(id as usize).copied()
    }

    /// Bytes of one value, for the types of fixed size.
    pub fn fixed_bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// A word for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

/// One number or truth value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Any unsigned integer type.
    Unsigned(u64),
    /// Any signed integer type.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// Decodes a value of a fixed-size type from exactly its bytes; `None` for another length or type.
    pub(super) fn decode(ty: ValueType, bytes: &[u8]) -> Option<Self> {
        Some(match ty {
            ValueType::U8 => Self::Unsigned(u64::from(u8::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::U16 => Self::Unsigned(u64::from(u16::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::U32 => Self::Unsigned(u64::from(u32::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::U64 => Self::Unsigned(u64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I8 => Self::Signed(i64::from(i8::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::I16 => Self::Signed(i64::from(i16::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::I32 => Self::Signed(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::I64 => Self::Signed(i64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F32 => Self::Float(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
            ValueType::F64 => Self::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Bool => Self::Bool(u8::from_le_bytes(bytes.try_into().ok()?) != 0),
            ValueType::String | ValueType::Array => return None,
        })
    }

    /// As an unsigned integer, when it is one.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Self::Unsigned(v) => Some(v),
            Self::Signed(v) => u64::try_from(v).ok(),
            Self::Float(_) | Self::Bool(_) => None,
        }
    }

    /// As a float: floats and integers.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Unsigned(v) => Some(v as f64),
            Self::Signed(v) => Some(v as f64),
            Self::Float(v) => Some(v),
            Self::Bool(_) => None,
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsigned(v) => v.fmt(f),
            Self::Signed(v) => v.fmt(f),
            Self::Float(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
        }
    }
}

/// An array of numbers or truth values, kept as the file stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberArray {
    ty: ValueType,
    bytes: Box<[u8]>,
}

impl NumberArray {
    /// `bytes` must be whole elements of a fixed-size type; a rest is ignored.
    pub(super) fn new(ty: ValueType, bytes: &[u8]) -> Self {
        Self { ty, bytes: bytes.into() }
    }

    /// The elements' type.
    pub fn ty(&self) -> ValueType {
        self.ty
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.element_bytes()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn element_bytes(&self) -> usize {
        self.ty.fixed_bytes().map_or(1, |n| n as usize)
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Scalar> + '_ {
        self.bytes
            .chunks_exact(self.element_bytes())
            .map(|bytes| Scalar::decode(self.ty, bytes).unwrap_or(Scalar::Unsigned(0)))
    }
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number or truth value, with the type the file gave it.
    Scalar(ValueType, Scalar),
    /// A text.
    Text(Box<str>),
    /// Numbers.
    Numbers(NumberArray),
    /// Strings, in one allocation; shared because the tokenizer keeps them.
    Strings(Arc<StringArray>),
}

impl Value {
    /// A word for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Scalar(ty, _) => ty.name(),
            Self::Text(_) => "string",
            Self::Numbers(_) => "array of numbers",
            Self::Strings(_) => "array of strings",
        }
    }
}

/// Why a metadata value can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataError {
    /// The key is not there.
    Missing {
        /// The key.
        key: String,
    },
    /// The value has another type.
    WrongType {
        /// The key.
        key: String,
        /// The type found.
        found: &'static str,
        /// The type needed.
        wanted: &'static str,
    },
    /// The number does not fit what is asked for.
    OutOfRange {
        /// The key.
        key: String,
        /// The number, as text.
        value: String,
        /// What fits.
        wanted: &'static str,
    },
}

impl std::fmt::Display for MetadataError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { key } => write!(f, "the model's metadata lacks \"{key}\"; convert the model again"),
            Self::WrongType { key, found, wanted } => {
                write!(f, "metadata \"{key}\" is of type {found}, {wanted} is needed; convert the model again")
            }
            Self::OutOfRange { key, value, wanted } => {
                write!(f, "metadata \"{key}\" is {value}, {wanted} is needed; the file is damaged")
            }
        }
    }
}

impl std::error::Error for MetadataError {}

/// The entries of a header, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(Box<str>, Value)>,
    /// Indices into `entries`, sorted by key.
    by_key: Vec<u32>,
}

/// What a lookup of an optional key gives.
type Optional<T> = Result<Option<T>, MetadataError>;

impl Metadata {
    /// Takes entries over; the second of two equal keys and its index are the error.
    pub(super) fn new(entries: Vec<(Box<str>, Value)>) -> Result<Self, (usize, Box<str>)> {
        // Fits: the number of entries is limited to 65,536.
        let mut by_key: Vec<u32> = (0..entries.len() as u32).collect();
        by_key.sort_by(|a, b| entries[*a as usize].0.cmp(&entries[*b as usize].0));
        for pair in by_key.windows(2) {
            if entries[pair[0] as usize].0 == entries[pair[1] as usize].0 {
                let index = pair[1] as usize;
                return Err((index, entries[index].0.clone()));
            }
        }
        Ok(Self { entries, by_key })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let at = self.by_key.binary_search_by(|i| (*self.entries[*i as usize].0).cmp(key)).ok()?;
        Some(&self.entries[self.by_key[at] as usize].1)
    }

    fn need<T>(&self, key: &str, found: Option<T>) -> Result<T, MetadataError> {
        found.ok_or_else(|| MetadataError::Missing { key: key.into() })
    }

    fn wrong<T>(key: &str, value: &Value, wanted: &'static str) -> Result<T, MetadataError> {
        Err(MetadataError::WrongType { key: key.into(), found: value.type_name(), wanted })
    }

    fn opt_scalar<T>(&self, key: &str, wanted: &'static str, convert: impl Fn(Scalar) -> Option<T>) -> Optional<T> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Scalar(_, scalar)) => match convert(*scalar) {
                Some(v) => Ok(Some(v)),
                None => Err(MetadataError::OutOfRange { key: key.into(), value: scalar.to_string(), wanted }),
            },
            Some(other) => Self::wrong(key, other, wanted),
        }
    }

    /// An integer of any width that fits in 32 bits, or `None` when the key is absent.
    pub fn opt_u32(&self, key: &str) -> Optional<u32> {
        self.opt_scalar(key, "an integer of 32 bits", |s| s.as_u64().and_then(|v| u32::try_from(v).ok()))
    }

    /// An integer of any width that fits in 32 bits.
    pub fn u32(&self, key: &str) -> Result<u32, MetadataError> {
        self.opt_u32(key).and_then(|found| self.need(key, found))
    }

    /// An integer of any width, not negative, or `None` when the key is absent.
    pub fn opt_u64(&self, key: &str) -> Optional<u64> {
        self.opt_scalar(key, "an integer of 64 bits", Scalar::as_u64)
    }

    /// An integer of any width, not negative.
    pub fn u64(&self, key: &str) -> Result<u64, MetadataError> {
        self.opt_u64(key).and_then(|found| self.need(key, found))
    }

    /// A finite number, or `None` when the key is absent.
    pub fn opt_f64(&self, key: &str) -> Optional<f64> {
        self.opt_scalar(key, "a finite number", |s| s.as_f64().filter(|v| v.is_finite()))
    }

    /// A finite number in single precision, or `None` when the key is absent.
    pub fn opt_f32(&self, key: &str) -> Optional<f32> {
        self.opt_scalar(key, "a finite number", |s| s.as_f64().map(|v| v as f32).filter(|v| v.is_finite()))
    }

    /// A finite number in single precision.
    pub fn f32(&self, key: &str) -> Result<f32, MetadataError> {
        self.opt_f32(key).and_then(|found| self.need(key, found))
    }

    /// A truth value, or `None` when the key is absent.
    pub fn opt_bool(&self, key: &str) -> Optional<bool> {
        self.opt_scalar(key, "a truth value", |s| match s {
            Scalar::Bool(v) => Some(v),
            Scalar::Unsigned(v) if v < 2 => Some(v == 1),
            Scalar::Unsigned(_) | Scalar::Signed(_) | Scalar::Float(_) => None,
        })
    }

    /// A text, or `None` when the key is absent.
    pub fn opt_str(&self, key: &str) -> Optional<&str> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Self::wrong(key, other, "a string"),
        }
    }

    /// A text.
    pub fn str(&self, key: &str) -> Result<&str, MetadataError> {
        self.opt_str(key).and_then(|found| self.need(key, found))
    }

    /// An array of strings, or `None` when the key is absent.
    pub fn opt_strings(&self, key: &str) -> Optional<&Arc<StringArray>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Strings(strings)) => Ok(Some(strings)),
            Some(other) => Self::wrong(key, other, "an array of strings"),
        }
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<&Arc<StringArray>, MetadataError> {
        self.opt_strings(key).and_then(|found| self.need(key, found))
    }

    /// An array of numbers, or `None` when the key is absent.
    pub fn opt_numbers(&self, key: &str) -> Optional<&NumberArray> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Numbers(numbers)) => Ok(Some(numbers)),
            Some(other) => Self::wrong(key, other, "an array of numbers"),
        }
    }
}
