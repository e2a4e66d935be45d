//! Metadata values. Numbers are decoded, whereas strings and arrays are slices of the header.
//!
//! Two passes make this safe and cheap. [`skip`] walks over a value once, when the file is opened, and checks all of
//! it. Later accesses decode only what is requested, with the same bounds checks, so that even a header that changed in
//! between cannot cause an access out of bounds.

use std::fmt;

use super::limits::{DEPTH, ELEMENTS};
use super::reader::{ByteReader, ParseError, quoted};

/// The type of a metadata value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// An unsigned 8-bit integer.
    U8,
    /// A signed 8-bit integer.
    I8,
    /// An unsigned 16-bit integer.
    U16,
    /// A signed 16-bit integer.
    I16,
    /// An unsigned 32-bit integer.
    U32,
    /// A signed 32-bit integer.
    I32,
    /// A 32-bit float.
    F32,
    /// A byte that is 0 or 1.
    Bool,
    /// A length and that many bytes, which should be UTF-8.
    String,
    /// A type, a count and that many values of the type.
    Array,
    /// An unsigned 64-bit integer.
    U64,
    /// A signed 64-bit integer.
    I64,
    /// A 64-bit float.
    F64,
}

use ValueType as T;

/// The types by their number in files, with a name and the minimum number of bytes that a value takes.
const VALUE_TYPES: [(ValueType, &str, usize); 13] = [
    (T::U8, "u8", 1),
    (T::I8, "i8", 1),
    (T::U16, "u16", 2),
    (T::I16, "i16", 2),
    (T::U32, "u32", 4),
    (T::I32, "i32", 4),
    (T::F32, "f32", 4),
    (T::Bool, "bool", 1),
    (T::String, "string", 8),
    (T::Array, "array", 12),
    (T::U64, "u64", 8),
    (T::I64, "i64", 8),
    (T::F64, "f64", 8),
];

impl ValueType {
    /// Reads a type by its number.
    pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<Self, ParseError> {
        let id = reader.u32()?;
        let known = usize::try_from(id).ok().and_then(|id| VALUE_TYPES.get(id));
        known.map(|entry| entry.0).ok_or_else(|| reader.error(4, "a value type from 0 to 12", id.to_string()))
    }

    /// The name of the type in error messages: `u32`, `string`, `array`.
    pub fn name(self) -> &'static str {
        VALUE_TYPES[self as usize].1
    }

    /// The size of a value in bytes; for strings and arrays that of an empty one.
    fn least_bytes(self) -> usize {
        VALUE_TYPES[self as usize].2
    }
}

/// A metadata value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// A 32-bit float.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// The bytes of a string, which need not be UTF-8.
    String(&'a [u8]),
    /// Values of one type.
    Array(Array<'a>),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 64-bit float.
    F64(f64),
}

impl<'a> Value<'a> {
    /// The value of an integer of any type; `None` if it is not an integer.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Decodes a value that [`skip`] has checked. `bytes` are those of the value.
    pub(super) fn decode(ty: ValueType, bytes: &'a [u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        Self::read(ty, &mut reader).ok()
    }

    fn read(ty: ValueType, reader: &mut ByteReader<'a>) -> Result<Self, ParseError> {
        Ok(match ty {
            T::U8 => Self::U8(u8::from_le_bytes(reader.array()?)),
            T::I8 => Self::I8(i8::from_le_bytes(reader.array()?)),
            T::U16 => Self::U16(u16::from_le_bytes(reader.array()?)),
            T::I16 => Self::I16(i16::from_le_bytes(reader.array()?)),
            T::U32 => Self::U32(u32::from_le_bytes(reader.array()?)),
            T::I32 => Self::I32(i32::from_le_bytes(reader.array()?)),
            T::F32 => Self::F32(f32::from_le_bytes(reader.array()?)),
            T::Bool => Self::Bool(reader.array()? != [0]),
            T::String => Self::String(reader.string()?),
            T::Array => Self::Array(Array::read(reader)?),
            T::U64 => Self::U64(u64::from_le_bytes(reader.array()?)),
            T::I64 => Self::I64(i64::from_le_bytes(reader.array()?)),
            T::F64 => Self::F64(f64::from_le_bytes(reader.array()?)),
        })
    }

    /// The type.
    pub fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => T::U8,
            Self::I8(_) => T::I8,
            Self::U16(_) => T::U16,
            Self::I16(_) => T::I16,
            Self::U32(_) => T::U32,
            Self::I32(_) => T::I32,
            Self::F32(_) => T::F32,
            Self::Bool(_) => T::Bool,
            Self::String(_) => T::String,
            Self::Array(_) => T::Array,
            Self::U64(_) => T::U64,
            Self::I64(_) => T::I64,
            Self::F64(_) => T::F64,
        }
    }
}

/// Prints the type and the value: `u32 5`, ``string `gpt2` ``, `array of 3 f32`.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.ty().name();
        if let Some(integer) = self.integer() {
            return write!(f, "{name} {integer}");
        }
        match self {
            Self::F32(v) => write!(f, "{name} {v}"),
            Self::F64(v) => write!(f, "{name} {v}"),
            Self::Bool(v) => write!(f, "{name} {v}"),
            Self::String(v) => write!(f, "{name} {}", quoted(v)),
            Self::Array(v) => write!(f, "{name} of {} {}", v.len(), v.element_type().name()),
            _ => f.write_str(name),
        }
    }
}

/// An array of values of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Reads the type and the length of an array. The remaining bytes of the reader are those of the elements.
    fn read(reader: &mut ByteReader<'a>) -> Result<Self, ParseError> {
        let element = T::read(reader)?;
        let len = reader.count(element.name(), ELEMENTS, element.least_bytes())?;
        Ok(Self { element, len, bytes: reader.rest() })
    }

    /// The type of every element.
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// The number of elements. The file is large enough for all of them, so it is safe to allocate memory for them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements. Strings and arrays are found by walking over those before them.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let Self { element, len, bytes } = *self;
        let mut reader = ByteReader::new(bytes);
        (0..len).map_while(move |_| {
            let from = reader.at();
            skip(&mut reader, element, 0).ok()?;
            Value::decode(element, bytes.get(from..reader.at())?)
        })
    }
}

/// Walks over a value of type `ty` that is nested in `depth` arrays, and checks all of it.
pub(super) fn skip(reader: &mut ByteReader<'_>, ty: ValueType, depth: usize) -> Result<(), ParseError> {
    match ty {
        T::Bool => skip_bool(reader),
        T::String => reader.string().map(drop),
        T::Array => skip_array(reader, depth + 1),
        _ => reader.take(ty.least_bytes() as u64).map(drop),
    }
}

fn skip_bool(reader: &mut ByteReader<'_>) -> Result<(), ParseError> {
    match reader.array()? {
        [0 | 1] => Ok(()),
        [byte] => Err(reader.error(1, "a bool, 0 or 1", byte.to_string())),
    }
}

fn skip_array(reader: &mut ByteReader<'_>, depth: usize) -> Result<(), ParseError> {
    if depth > DEPTH {
        return Err(reader.error(0, format!("arrays at most {DEPTH} deep"), "a deeper one"));
    }
    let element = T::read(reader)?;
    let count = reader.count(element.name(), ELEMENTS, element.least_bytes())?;
    // The product cannot overflow, since at least that many bytes are left.
    let least = reader.peek((count * element.least_bytes()) as u64)?.len();
    match element {
        T::Bool | T::String | T::Array => (0..count).try_for_each(|_| skip(reader, element, depth)),
        // One step for all elements leaves their pages untouched.
        _ => reader.take(least as u64).map(drop),
    }
}
