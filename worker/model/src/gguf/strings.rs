//! Many short strings in one allocation: a vocabulary of 262,144 tokens is two blocks of memory, not 262,144.

/// An array of byte strings. GGUF says UTF-8; vocabularies in use are not always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    bytes: Box<[u8]>,
    /// End of string i in `bytes`; it starts where string i − 1 ends.
    ends: Box<[u32]>,
}

impl StringArray {
    /// Copies strings whose bytes together are under 4 GiB; further ones are left out.
    pub(crate) fn collect<'a>(n_strings: usize, n_bytes: usize, strings: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut bytes = Vec::with_capacity(n_bytes);
        let mut ends = Vec::with_capacity(n_strings);
        for string in strings {
            bytes.extend_from_slice(string);
            match u32::try_from(bytes.len()) {
                Ok(end) => ends.push(end),
                Err(_) => break,
            }
        }
        Self { bytes: bytes.into(), ends: ends.into() }
    }

    /// From all bytes and the end of each string in them. Ends must not fall and not pass the bytes.
    pub(crate) fn from_parts(bytes: Vec<u8>, ends: Vec<u32>) -> Self {
        Self { bytes: bytes.into(), ends: ends.into() }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        Some(&self.bytes[start..end])
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let string = &self.bytes[start..*end as usize];
            start = *end as usize;
            string
        })
    }
}
