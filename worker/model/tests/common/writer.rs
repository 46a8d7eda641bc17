//! Writes small GGUF files, valid or wrong on purpose.

/// A metadata value.
#[derive(Clone, Debug)]
pub enum V {
    U32(u32),
    U64(u64),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    Strs(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    /// A type number and raw bytes.
    Raw(u32, Vec<u8>),
}

/// A tensor: name, dims, ggml type, and its offset; `None` puts it behind the last one.
#[derive(Clone, Debug)]
pub struct T {
    pub name: String,
    pub dims: Vec<u64>,
    pub ty: u32,
    pub offset: Option<u64>,
    pub n_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    pub kv: Vec<(String, V)>,
    pub tensors: Vec<T>,
    pub n_kv: Option<u64>,
    pub n_tensors: Option<u64>,
    pub alignment: u64,
}

impl Default for Gguf {
    fn default() -> Self {
        Self { magic: *b"GGUF", version: 3, kv: vec![], tensors: vec![], n_kv: None, n_tensors: None, alignment: 32 }
    }
}

impl Gguf {
    pub fn set(mut self, key: &str, value: V) -> Self {
        self.kv.retain(|(k, _)| k != key);
        self.kv.push((key.into(), value));
        self
    }

    pub fn unset(mut self, key: &str) -> Self {
        self.kv.retain(|(k, _)| k != key);
        self
    }

    pub fn str(self, key: &str, value: &str) -> Self {
        self.set(key, V::Str(value.into()))
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.set(key, V::U32(value))
    }

    /// An f32 tensor.
    pub fn tensor(self, name: &str, dims: &[u64]) -> Self {
        let n_bytes = dims.iter().product::<u64>() * 4;
        self.tensor_of(name, dims, 0, n_bytes)
    }

    pub fn tensor_of(mut self, name: &str, dims: &[u64], ty: u32, n_bytes: u64) -> Self {
        self.tensors.retain(|t| t.name != name);
        self.tensors.push(T { name: name.into(), dims: dims.into(), ty, offset: None, n_bytes });
        self
    }

    pub fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|t| t.name != name);
        self
    }

    /// The header, padded, without data.
    pub fn header_bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_kv.unwrap_or(self.kv.len() as u64).to_le_bytes());
        for (key, value) in &self.kv {
            string(&mut out, key.as_bytes());
            write_value(&mut out, value);
        }
        let mut next = 0;
        for t in &self.tensors {
            string(&mut out, t.name.as_bytes());
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ty.to_le_bytes());
            out.extend(t.offset.unwrap_or(next).to_le_bytes());
            next = (next + t.n_bytes).next_multiple_of(self.alignment);
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }

    /// Header and data; byte i of the data is i mod 251.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header_bytes();
        let n = self.tensors.iter().fold(0, |n, t| (n + t.n_bytes).next_multiple_of(self.alignment));
        out.extend((0..n).map(|i| (i % 251) as u8));
        out
    }
}

pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn write_value(out: &mut Vec<u8>, value: &V) {
    let array = |out: &mut Vec<u8>, ty: u32, n: usize| {
        out.extend(9_u32.to_le_bytes());
        out.extend(ty.to_le_bytes());
        out.extend((n as u64).to_le_bytes());
    };
    match value {
        V::U32(v) => out.extend([4_u32.to_le_bytes(), v.to_le_bytes()].concat()),
        V::I32(v) => out.extend([5_u32.to_le_bytes(), v.to_le_bytes()].concat()),
        V::F32(v) => out.extend([6_u32.to_le_bytes(), v.to_le_bytes()].concat()),
        V::U64(v) => {
            out.extend(10_u32.to_le_bytes());
            out.extend(v.to_le_bytes());
        }
        V::Bool(v) => {
            out.extend(7_u32.to_le_bytes());
            out.push(u8::from(*v));
        }
        V::Str(v) => {
            out.extend(8_u32.to_le_bytes());
            string(out, v.as_bytes());
        }
        V::Strs(v) => {
            array(out, 8, v.len());
            v.iter().for_each(|s| string(out, s.as_bytes()));
        }
        V::F32s(v) => {
            array(out, 6, v.len());
            v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::I32s(v) => {
            array(out, 5, v.len());
            v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::U32s(v) => {
            array(out, 4, v.len());
            v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::Raw(ty, bytes) => {
            out.extend(ty.to_le_bytes());
            out.extend(bytes);
        }
    }
}
