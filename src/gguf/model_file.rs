//! A file with its header: a whole model, or one of the files that a model is split into.

use std::path::Path;

use super::data::Data;
use super::header::GgufHeader;
use super::reader::{ByteReader, broken};
use crate::error::{Error, Result};
use crate::memory::resize;

/// The number of bytes of a file that are read first. They hold the whole header, unless the vocabulary is large.
const FIRST: usize = 1 << 20;
/// The longest header that is read, in bytes: a hundred times that of the largest vocabularies.
const LONGEST: usize = 1 << 30;

/// A file whose header passed all checks.
pub(super) struct ModelFile {
    pub data: Data,
    pub header: GgufHeader,
    /// The bytes of the header, if the data is in a file.
    read: Vec<u8>,
}

impl ModelFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(Data::open(path)?)
    }

    /// Reads the header of `data`.
    pub fn of(data: Data) -> Result<Self> {
        let parsed = match data.in_memory() {
            Some(bytes) => GgufHeader::parse(&mut ByteReader::new(bytes)).map(|header| (header, Vec::new())),
            None => read(&data),
        };
        let (header, read) = parsed.map_err(|error| error.in_file(data.path()))?;
        Ok(Self { data, header, read })
    }

    /// The bytes that the positions in the header refer to.
    pub fn bytes(&self) -> &[u8] {
        self.data.in_memory().unwrap_or(&self.read)
    }

    /// The bytes of the header.
    pub fn header_bytes(&self) -> &[u8] {
        &self.bytes()[..self.header.end.min(self.bytes().len())]
    }

    /// Adds the path of the file to an error.
    pub fn name(&self, error: Error) -> Error {
        error.in_file(self.data.path())
    }
}

/// Reads the header of a file of which the length is not known beforehand: parses the first bytes, and if they end too
/// soon, parses again with at least twice as many. In all, at most a few times the length of the header is read.
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
