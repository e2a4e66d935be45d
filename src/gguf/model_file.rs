//! A file and its header: all of a model, or one of several that are.

use std::path::Path;

use super::data::Data;
use super::header::GgufHeader;
use super::reader::{ByteReader, broken};
use crate::error::{Error, Result};
use crate::memory::resize;

/// Bytes of a file that are read at first: all of the header, unless the vocabulary is large.
const FIRST: usize = 1 << 20;
/// Bytes of a header at most: a hundred times those of the largest vocabularies.
const LONGEST: usize = 1 << 30;

/// A file, its header checked.
pub(super) struct ModelFile {
    pub data: Data,
    pub header: GgufHeader,
    /// The header's bytes, where the data is in a file.
    read: Vec<u8>,
}

impl ModelFile {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(Data::open(path)?)
    }

    /// Reads the header.
    pub fn of(data: Data) -> Result<Self> {
        let parsed = match data.in_memory() {
            Some(bytes) => GgufHeader::parse(&mut ByteReader::new(bytes)).map(|header| (header, Vec::new())),
            None => read(&data),
        };
        let (header, read) = parsed.map_err(|error| error.in_file(data.path()))?;
        Ok(Self { data, header, read })
    }

    /// The bytes in which the header's parts have their places.
    pub fn bytes(&self) -> &[u8] {
        self.data.in_memory().unwrap_or(&self.read)
    }

    /// The header's bytes.
    pub fn header_bytes(&self) -> &[u8] {
        &self.bytes()[..self.header.end.min(self.bytes().len())]
    }

    /// An error with the file's name.
    pub fn name(&self, error: Error) -> Error {
        error.in_file(self.data.path())
    }
}

/// Reads as much of a file as its header turns out to take. What was well-formed is read again with what follows, twice
/// as much each time; so no more is ever read than a few times what the file has of a header.
fn read(data: &Data) -> Result<(GgufHeader, Vec<u8>)> {
    let (mut bytes, mut wanted) = (Vec::new(), FIRST);
    loop {
        if wanted > LONGEST {
            return Err(broken("header", format!("at most {LONGEST} bytes"), "more"));
        }
        let there = bytes.len();
        resize(&mut bytes, wanted.min(data.len()), "reading a file's header")?;
        data.read(there, &mut bytes[there..])?;
        let mut reader = ByteReader::of_file(&bytes, data.len());
        let parsed = GgufHeader::parse(&mut reader);
        match reader.missing() {
            Some(end) => wanted = end.max(2 * bytes.len()),
            None => {
                let header = parsed?;
                bytes.truncate(header.end);
                bytes.shrink_to_fit();
                return Ok((header, bytes));
            }
        }
    }
}
