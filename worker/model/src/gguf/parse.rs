//! From bytes to [`Header`].

use super::cursor::{Cursor, Field};
use super::error::GgufError;
use super::metadata::{Metadata, NumberArray, Scalar, Value, ValueType};
use super::strings::StringArray;
use super::types::TensorType;
use super::{Header, TensorInfo};
use plimsoll_config::limits::{
    MAX_GGUF_ALIGNMENT_BYTES, MAX_GGUF_ARRAY_ELEMENTS, MAX_GGUF_DIMS, MAX_GGUF_METADATA_ENTRIES, MAX_GGUF_NAME_BYTES,
    MAX_GGUF_STRING_BYTES, MAX_GGUF_TENSORS,
};
use std::sync::Arc;

/// Alignment when the metadata has none; the specification's default.
const DEFAULT_ALIGNMENT_BYTES: u64 = 32;

/// Least bytes of an entry: key length, one byte of key, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Least bytes of a tensor: name length, one byte of name, count of dimensions, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

pub(super) fn header(bytes: &[u8]) -> Result<Header, GgufError> {
    let mut cursor = Cursor::new(bytes);
    let version = version(&mut cursor)?;
    let n_tensors = cursor.count(MAX_GGUF_TENSORS, MIN_TENSOR_BYTES, Field::Fixed("the tensor count"))?;
    let n_entries = cursor.count(MAX_GGUF_METADATA_ENTRIES, MIN_ENTRY_BYTES, Field::Fixed("the metadata count"))?;
    let metadata = metadata(&mut cursor, n_entries)?;
    let alignment_bytes = alignment(&metadata, cursor.offset_bytes())?;
    // No allocation beyond what the bytes pay for: count() saw at least MIN_TENSOR_BYTES for each tensor, but the entries
    // between used some of them.
    let n_likely = n_tensors.min(cursor.left_bytes() / MIN_TENSOR_BYTES) as usize;
    let (mut tensors, mut rows_at) = (Vec::with_capacity(n_likely), Vec::with_capacity(n_likely));
    for index in 0..n_tensors {
        rows_at.push(cursor.offset_bytes());
        tensors.push(tensor(&mut cursor, index, alignment_bytes)?);
    }
    let by_name = index_by_name(&tensors).map_err(|i| GgufError::Invalid {
        field: Field::Tensor(&tensors[i].name, "name").to_string(),
        offset_bytes: rows_at[i],
        why: "is there twice; the file is damaged".into(),
    })?;
    // No overflow: an offset in a slice plus less than 2 MiB.
    let data_offset_bytes = cursor.offset_bytes().next_multiple_of(alignment_bytes);
    check_layout(&tensors, data_offset_bytes, &rows_at)?;
    Ok(Header { version, metadata, tensors, data_offset_bytes, alignment_bytes, by_name })
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let magic = cursor.take(4, Field::Fixed("the magic number"))?;
    if magic != b"GGUF" {
        let mut found = [0; 4];
        found.copy_from_slice(magic);
        return Err(GgufError::NotGguf { found });
    }
    let version = cursor.u32(Field::Fixed("the version"))?;
    match version {
        2 | 3 => Ok(version),
        // The low half of a small big-endian number reads as 0.
        _ if version != 0 && version & 0xffff == 0 => Err(GgufError::BigEndian),
        _ => Err(GgufError::Version { version }),
    }
}

fn metadata(cursor: &mut Cursor<'_>, n_entries: u64) -> Result<Metadata, GgufError> {
    let (mut entries, mut keys_at) = (Vec::with_capacity(n_entries as usize), Vec::with_capacity(n_entries as usize));
    for index in 0..n_entries {
        let field = Field::Entry(index, "key");
        let offset_bytes = cursor.offset_bytes();
        keys_at.push(offset_bytes);
        let key = cursor.text(MAX_GGUF_NAME_BYTES, field)?;
        if key.is_empty() {
            return Err(GgufError::Invalid { field: field.to_string(), offset_bytes, why: "is empty".into() });
        }
        let value = value(cursor, key)?;
        entries.push((key.into(), value));
    }
    Metadata::new(entries).map_err(|(index, key)| GgufError::Invalid {
        field: Field::Value(&key, "key").to_string(),
        offset_bytes: keys_at[index],
        why: "is there twice; the file is damaged".into(),
    })
}

fn value_type(cursor: &mut Cursor<'_>, field: Field<'_>) -> Result<ValueType, GgufError> {
    let offset_bytes = cursor.offset_bytes();
    let id = cursor.u32(field)?;
    ValueType::from_id(id).ok_or_else(|| GgufError::Invalid {
        field: field.to_string(),
        offset_bytes,
        why: format!("is {id}, which is no type of the format"),
    })
}

fn value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let ty = value_type(cursor, Field::Value(key, "type"))?;
    let field = Field::Value(key, "value");
    match ty {
        ValueType::String => Ok(Value::Text(cursor.text(MAX_GGUF_STRING_BYTES, field)?.into())),
        ValueType::Array => array(cursor, key),
        ValueType::U8
        | ValueType::I8
        | ValueType::U16
        | ValueType::I16
        | ValueType::U32
        | ValueType::I32
        | ValueType::F32
        | ValueType::Bool
        | ValueType::U64
        | ValueType::I64
        | ValueType::F64 => {
            let offset_bytes = cursor.offset_bytes();
            let bytes = cursor.take(ty.fixed_bytes().unwrap_or(1), field)?;
            let invalid = || GgufError::Invalid { field: field.to_string(), offset_bytes, why: "can't be read".into() };
            if ty == ValueType::Bool && bytes[0] > 1 {
                let why = format!("is {}, not a truth value", bytes[0]);
                return Err(GgufError::Invalid { field: field.to_string(), offset_bytes, why });
            }
            Scalar::decode(ty, bytes).map(|scalar| Value::Scalar(ty, scalar)).ok_or_else(invalid)
        }
    }
}

fn array(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let offset_bytes = cursor.offset_bytes();
    let ty = value_type(cursor, Field::Value(key, "element type"))?;
    let field = Field::Value(key, "length");
    if let Some(element_bytes) = ty.fixed_bytes() {
        let n_elements = cursor.count(MAX_GGUF_ARRAY_ELEMENTS, element_bytes, field)?;
        // No overflow: at most 2^24 elements of 8 bytes.
        let bytes = cursor.take(n_elements * element_bytes, field)?;
        return Ok(Value::Numbers(NumberArray::new(ty, bytes)));
    }
    if ty == ValueType::Array {
        return Err(GgufError::Invalid {
            field: Field::Value(key, "element type").to_string(),
            offset_bytes,
            why: "is an array of arrays, which no model in use has and this build does not read".into(),
        });
    }
    // A string has at least its length.
    let n_strings = cursor.count(MAX_GGUF_ARRAY_ELEMENTS, 8, field)?;
    strings(cursor, key, n_strings)
}

/// Two passes over the bytes, the first for the sizes: the result is exactly two allocations.
fn strings(cursor: &mut Cursor<'_>, key: &str, n_strings: u64) -> Result<Value, GgufError> {
    let start_offset = cursor.offset_bytes();
    let all = cursor.rest();
    let mut n_bytes = 0;
    for index in 0..n_strings {
        n_bytes += cursor.string(MAX_GGUF_STRING_BYTES, Field::Element(key, index))?.len();
    }
    if u32::try_from(n_bytes).is_err() {
        let field = Field::Value(key, "length").to_string();
        let limit = u64::from(u32::MAX);
        return Err(GgufError::OverLimit { field, offset_bytes: start_offset, value: n_bytes as u64, limit });
    }
    let mut at = 0;
    let strings = (0..n_strings).map_while(|_| {
        let (length, rest) = all.get(at..)?.split_first_chunk::<8>()?;
        let string = rest.get(..u64::from_le_bytes(*length) as usize)?;
        at += 8 + string.len();
        Some(string)
    });
    Ok(Value::Strings(Arc::new(StringArray::collect(n_strings as usize, n_bytes, strings))))
}

fn alignment(metadata: &Metadata, offset_bytes: u64) -> Result<u64, GgufError> {
    let field = Field::Value("general.alignment", "value");
    let found = metadata.opt_u64("general.alignment").map_err(|e| GgufError::Invalid {
        field: field.to_string(),
        offset_bytes,
        why: format!("can't be used: {e}"),
    })?;
    let alignment = found.unwrap_or(DEFAULT_ALIGNMENT_BYTES);
    if !alignment.is_power_of_two() || alignment > MAX_GGUF_ALIGNMENT_BYTES {
        let why = format!("is {alignment}; a power of two up to {MAX_GGUF_ALIGNMENT_BYTES} is needed");
        return Err(GgufError::Invalid { field: field.to_string(), offset_bytes, why });
    }
    Ok(alignment)
}

fn tensor(cursor: &mut Cursor<'_>, index: u64, alignment_bytes: u64) -> Result<TensorInfo, GgufError> {
    let offset_bytes = cursor.offset_bytes();
    let name = cursor.text(MAX_GGUF_NAME_BYTES, Field::TensorIndex(index, "name"))?;
    let invalid = |part, offset_bytes, why| {
        let field = Field::Tensor(name, part).to_string();
        Err(GgufError::Invalid { field, offset_bytes, why })
    };
    if name.is_empty() {
        return invalid("name", offset_bytes, format!("is empty (tensor {index})"));
    }
    let dims_at = cursor.offset_bytes();
    let n_dims = cursor.u32(Field::Tensor(name, "count of dimensions"))?;
    if n_dims == 0 || n_dims > MAX_GGUF_DIMS {
        return invalid("count of dimensions", dims_at, format!("is {n_dims}; 1 to {MAX_GGUF_DIMS} are possible"));
    }
    let mut dims = Vec::with_capacity(n_dims as usize);
    let mut n_elements = 1_u64;
    for _ in 0..n_dims {
        let dim_at = cursor.offset_bytes();
        let dim = cursor.u64(Field::Tensor(name, "dimensions"))?;
        // Signed 64 bits, as ggml counts: leaves room for every sum made with it.
        let product = n_elements.checked_mul(dim).filter(|n| i64::try_from(*n).is_ok());
        match product {
            Some(n) if dim > 0 => n_elements = n,
            Some(_) | None => return invalid("dimensions", dim_at, format!("hold {dim}: no or too many elements")),
        }
        dims.push(dim);
    }
    let type_at = cursor.offset_bytes();
    let ty = match TensorType::from_id(cursor.u32(Field::Tensor(name, "type"))?) {
        Ok(ty) => ty,
        Err(why) => return invalid("type", type_at, format!("can't be used: {why}")),
    };
    if !dims[0].is_multiple_of(ty.block_elements()) {
        let why = format!("start with {}, not whole blocks of {} for {ty}", dims[0], ty.block_elements());
        return invalid("dimensions", dims_at, why);
    }
    let Some(n_bytes) = ty.bytes(n_elements).filter(|n| i64::try_from(*n).is_ok()) else {
        return invalid("dimensions", dims_at, format!("ask for more than 2^63 bytes of {ty}"));
    };
    let offset_at = cursor.offset_bytes();
    let data_at = cursor.u64(Field::Tensor(name, "offset"))?;
    if !data_at.is_multiple_of(alignment_bytes) {
        return invalid(
            "offset",
            offset_at,
            format!("is {data_at}, not a multiple of the alignment {alignment_bytes}"),
        );
    }
    if data_at.checked_add(n_bytes).and_then(|end| i64::try_from(end).ok()).is_none() {
        return invalid("offset", offset_at, format!("is {data_at}: its end is beyond 2^63"));
    }
    Ok(TensorInfo { name: name.into(), dims, ty, offset_bytes: data_at, n_bytes, part: 0 })
}

/// Indices sorted by name; the index of the second of two equal names is the error.
pub(super) fn index_by_name(tensors: &[TensorInfo]) -> Result<Vec<u32>, usize> {
    // Fits: the number of tensors is limited.
    let mut by_name: Vec<u32> = (0..tensors.len() as u32).collect();
    by_name.sort_by(|a, b| tensors[*a as usize].name.cmp(&tensors[*b as usize].name));
    for pair in by_name.windows(2) {
        if tensors[pair[0] as usize].name == tensors[pair[1] as usize].name {
            return Err(pair[1] as usize);
        }
    }
    Ok(by_name)
}

/// No two tensors may share bytes: writing one (or freeing it) would change the other.
fn check_layout(tensors: &[TensorInfo], data_offset_bytes: u64, rows_at: &[u64]) -> Result<(), GgufError> {
    let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
    order.sort_by_key(|i| tensors[*i as usize].offset_bytes);
    for pair in order.windows(2) {
        let (a, b) = (&tensors[pair[0] as usize], &tensors[pair[1] as usize]);
        // No overflow: the end of each was checked to fit in 63 bits.
        if a.offset_bytes + a.n_bytes > b.offset_bytes {
            return Err(GgufError::Invalid {
                field: Field::Tensor(&b.name, "offset").to_string(),
                offset_bytes: rows_at[pair[1] as usize],
                why: format!("is {}, inside the data of \"{}\"; the file is damaged", b.offset_bytes, a.name),
            });
        }
    }
    if let Some(index) = order.last().map(|i| *i as usize) {
        let last = &tensors[index];
        let end = (last.offset_bytes + last.n_bytes).checked_add(data_offset_bytes);
        if end.and_then(|end| i64::try_from(end).ok()).is_none() {
            return Err(GgufError::Invalid {
                field: Field::Tensor(&last.name, "offset").to_string(),
                offset_bytes: rows_at[index],
                why: "puts its end beyond 2^63".into(),
            });
        }
    }
    Ok(())
}
