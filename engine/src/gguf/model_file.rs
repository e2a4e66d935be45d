//! A file with its header: a whole model, or one of the files that a model is split into.

use std::path::{Path, PathBuf};

use super::data::{Data, Remote};
use super::header::GgufHeader;
use super::limits;
use super::reader::{ByteReader, broken};
use crate::error::{Error, Result};
use crate::memory::resize;

/// The number of bytes of a file that are read first. They hold the whole header, unless the vocabulary is large.
const FIRST: usize = 1 << 20;
/// The same for files that are not on this machine, where each byte takes long.
const FIRST_REMOTE: usize = 512 << 10;

/// A long header grows by at least 1 / `PART` at a time, so that it is not parsed too often.
const PART: usize = 16;

/// A file whose header passed all checks.
pub(super) struct ModelFile {
    pub data: Data,
    pub header: GgufHeader,
    /// The bytes of the header, unless the data is in memory.
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
            None => read(data.len(), usize::MAX, &mut |at, into| data.read(at, into)),
        };
        let (header, read) = parsed.map_err(|error| error.in_file(data.path()))?;
        Ok(Self { data, header, read })
    }

    /// Reads the header of a file of `bytes` bytes that is not on this machine.
    pub fn elsewhere(path: PathBuf, bytes: u64, fetch: &mut ReadAt<'_>) -> Result<Self> {
        let most = |_| broken("size of the file", format!("at most {} bytes", usize::MAX), bytes.to_string());
        let bytes = usize::try_from(bytes).map_err(most)?;
        let (header, read) = read(bytes, FIRST_REMOTE, fetch).map_err(|error| error.in_file(Some(&path)))?;
        Ok(Self { data: Data::Remote(Remote { path, bytes }), header, read })
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

/// Adds a file to those of the same model, unless their headers become too long.
pub(super) fn add(file: ModelFile, files: &mut Vec<ModelFile>) -> Result<()> {
    let bytes = files.iter().chain([&file]).map(|file| file.header.end).fold(0, usize::saturating_add);
    if bytes > limits::HEADERS {
        let limit = format!("at most {} bytes in the headers of all files", limits::HEADERS);
        return Err(file.name(broken("header", limit, format!("{bytes} in {}", files.len() + 1))));
    }
    files.push(file);
    Ok(())
}

/// Reads bytes of a file into the slice, beginning at a position.
pub(super) type ReadAt<'a> = dyn FnMut(usize, &mut [u8]) -> Result<()> + 'a;

/// Reads the header of a file of `len` bytes. Its length is not known beforehand, so this parses the first bytes and,
/// if they end too soon, parses again with up to twice as many, but with few more than `step` more unless they are
/// known to be needed. The reader refuses a header that is too long.
fn read(len: usize, step: usize, fetch: &mut ReadAt<'_>) -> Result<(GgufHeader, Vec<u8>)> {
    let (mut bytes, mut wanted) = (Vec::new(), FIRST.min(step));
    loop {
        let there = bytes.len();
        resize(&mut bytes, wanted.min(limits::HEADER).min(len), "reading a file's header")?;
        fetch(there, &mut bytes[there..])?;
        let mut reader = ByteReader::of_file(&bytes, len);
        let parsed = GgufHeader::parse(&mut reader);
        match reader.missing() {
            Some(end) => wanted = end.max(bytes.len() + bytes.len().min(step.max(bytes.len() / PART))),
            None => {
                let header = parsed?;
                bytes.truncate(header.end);
                bytes.shrink_to_fit();
                return Ok((header, bytes));
            }
        }
    }
}
