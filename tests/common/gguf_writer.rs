//! Writes GGUF files for tests and examples. It checks nothing, so that it can write broken files: every count, type
//! number and shape is written as given.

// Each integration test compiles this file for itself and uses a part of it.
#![allow(dead_code)]

/// A metadata value.
#[derive(Debug, Clone)]
pub enum Meta {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Vec<u8>),
    /// The type number of the elements, and the elements, whose own type numbers are not written.
    Array(u32, Vec<Meta>),
    U64(u64),
    I64(i64),
    F64(f64),
    /// Any type number, with any bytes.
    Raw(u32, Vec<u8>),
}

impl Meta {
    pub fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(..) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
            Self::Raw(ty, _) => *ty,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(v) => out.push(*v),
            Self::I8(v) => out.extend(v.to_le_bytes()),
            Self::U16(v) => out.extend(v.to_le_bytes()),
            Self::I16(v) => out.extend(v.to_le_bytes()),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::String(v) => write_string(out, v),
            Self::Array(element, values) => {
                out.extend(element.to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.write(out));
            }
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::I64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
            Self::Raw(_, bytes) => out.extend(bytes),
        }
    }
}

/// Implements `From` for a type, and for a slice of it as an array.
macro_rules! meta_from {
    ($($ty:ty, $variant:ident, $id:literal, $convert:expr;)*) => {$(
        impl From<$ty> for Meta {
            fn from(value: $ty) -> Self {
                Self::$variant($convert(value))
            }
        }

        impl From<&[$ty]> for Meta {
            fn from(values: &[$ty]) -> Self {
                Self::Array($id, values.iter().map(|value| Meta::from(value.to_owned())).collect())
            }
        }

        impl<const N: usize> From<[$ty; N]> for Meta {
            fn from(values: [$ty; N]) -> Self {
                values.as_slice().into()
            }
        }
    )*};
}

meta_from! {
    u8, U8, 0, |v| v;
    i8, I8, 1, |v| v;
    u16, U16, 2, |v| v;
    i16, I16, 3, |v| v;
    u32, U32, 4, |v| v;
    i32, I32, 5, |v| v;
    f32, F32, 6, |v| v;
    bool, Bool, 7, |v| v;
    &str, String, 8, |v: &str| v.as_bytes().to_vec();
    u64, U64, 10, |v| v;
    i64, I64, 11, |v| v;
    f64, F64, 12, |v| v;
}

struct Tensor {
    name: String,
    dims: Vec<u64>,
    type_id: u32,
    offset: u64,
}

/// A GGUF file that is being written.
pub struct GgufWriter {
    version: u32,
    alignment: usize,
    metadata: Vec<(Vec<u8>, Meta)>,
    tensors: Vec<Tensor>,
    /// The end of the data. `data` holds the beginning of it, without the tensors that [`GgufWriter::reserve`] leaves
    /// out.
    end: u64,
    data: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    pub fn new() -> Self {
        Self { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new(), end: 0, data: Vec::new() }
    }

    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns the data and records that in `general.alignment`. Call this before the first tensor.
    pub fn alignment(mut self, alignment: usize) -> Self {
        self.alignment = alignment;
        self.meta("general.alignment", alignment as u32)
    }

    pub fn meta(self, key: &str, value: impl Into<Meta>) -> Self {
        self.raw_key(key.as_bytes(), value)
    }

    /// Adds metadata with a key that need not be UTF-8.
    pub fn raw_key(mut self, key: &[u8], value: impl Into<Meta>) -> Self {
        self.metadata.push((key.to_vec(), value.into()));
        self
    }

    /// Adds a tensor: its dimensions innermost first, GGML's number of its type, and its bytes.
    pub fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, bytes: &[u8]) -> Self {
        pad(&mut self.data, self.alignment);
        self.data.extend(bytes);
        self.reserve(name, dims, type_id, bytes.len() as u64)
    }

    /// Like [`GgufWriter::tensor`], for data that the caller writes after the [`GgufWriter::header`].
    pub fn reserve(mut self, name: &str, dims: &[u64], type_id: u32, bytes: u64) -> Self {
        let offset = self.end.next_multiple_of(self.alignment as u64);
        self.end = offset + bytes;
        self.tensors.push(Tensor { name: name.into(), dims: dims.to_vec(), type_id, offset });
        self
    }

    /// Sets the offset of the tensor that was added last, from the start of the data, to any value.
    pub fn offset(mut self, offset: u64) -> Self {
        if let Some(tensor) = self.tensors.last_mut() {
            tensor.offset = offset;
        }
        self
    }

    pub fn finish(self) -> Vec<u8> {
        let mut out = self.header();
        out.extend(self.data);
        pad(&mut out, self.alignment);
        out
    }

    /// Everything before the data.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            write_string(&mut out, key);
            out.extend(value.type_id().to_le_bytes());
            value.write(&mut out);
        }
        self.tensors.iter().for_each(|tensor| tensor.write(&mut out));
        pad(&mut out, self.alignment);
        out
    }
}

impl Tensor {
    fn write(&self, out: &mut Vec<u8>) {
        write_string(out, self.name.as_bytes());
        out.extend((self.dims.len() as u32).to_le_bytes());
        self.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(self.type_id.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
    }
}

fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}
