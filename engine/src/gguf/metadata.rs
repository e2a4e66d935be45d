//! The metadata of a header: the keys in file order, each with the position of its value.

use std::collections::HashMap;
use std::ops::Range;

use super::convert::FromValue;
use super::limits;
use super::reader::{ByteReader, broken, quoted};
use super::value::{Value, ValueType, skip};
use crate::error::{Error, Result};

/// The size in bytes of the smallest entry: an empty key, a type, and a value of one byte.
pub(super) const MIN_ENTRY: usize = 8 + 4 + 1;

/// A key, and the type and position of its value.
struct MetadataEntry {
    key: String,
    ty: ValueType,
    span: Range<usize>,
}

/// All keys, with an index by name.
#[derive(Default)]
pub(super) struct Metadata {
    entries: Vec<MetadataEntry>,
    by_key: HashMap<String, usize>,
}

impl Metadata {
    /// Parses `count` keys and checks their values.
    pub fn parse(reader: &mut ByteReader<'_>, count: usize) -> Result<Self> {
        let mut metadata = Self::default();
        for i in 0..count {
            let key =
                reader.name(limits::KEY_BYTES).map_err(|error| error.within(format!("metadata key {i} of {count}")))?;
            metadata.add(key, reader)?;
        }
        Ok(metadata)
    }

    fn add(&mut self, key: &str, reader: &mut ByteReader<'_>) -> Result<()> {
        let place = || format!("metadata key {}", quoted(key.as_bytes()));
        if self.by_key.insert(key.into(), self.entries.len()).is_some() {
            return Err(broken(place(), "each key once", "the key twice"));
        }
        let ty = ValueType::read(reader).map_err(|error| error.within(place()))?;
        let from = reader.at();
        skip(reader, ty, 0).map_err(|error| error.within(place()))?;
        self.entries.push(MetadataEntry { key: key.into(), ty, span: from..reader.at() });
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter<'a>(&'a self, file: &'a [u8]) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.entries.iter().filter_map(|entry| Some((entry.key.as_str(), entry.value(file)?)))
    }

    pub fn get<'a>(&self, file: &'a [u8], key: &str) -> Option<Value<'a>> {
        self.entries.get(*self.by_key.get(key)?)?.value(file)
    }

    /// Where in the file the value of `key` is, if the key exists.
    #[cfg(feature = "download")]
    pub fn range(&self, key: &str) -> Option<Range<usize>> {
        Some(self.entries.get(*self.by_key.get(key)?)?.span.clone())
    }

    /// The value of `key` converted to `T`, if the key exists.
    pub fn read<'a, T: FromValue<'a>>(&self, file: &'a [u8], key: &str) -> Result<Option<T>> {
        let wrong = |found| Error::Metadata { key: key.into(), expected: T::EXPECTED.into(), found };
        self.get(file, key).map(T::from_value).transpose().map_err(wrong)
    }
}

impl MetadataEntry {
    /// Decodes the value. `None` only if the bytes are not those that were parsed.
    fn value<'a>(&self, file: &'a [u8]) -> Option<Value<'a>> {
        Value::decode(self.ty, file.get(self.span.clone())?)
    }
}
