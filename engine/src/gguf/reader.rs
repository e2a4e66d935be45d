//! Reads the header of a file byte by byte. Every step is checked against the number of remaining bytes. Nothing here
//! panics, or allocates as much as a length in the file claims.

use std::fmt::Display;

use super::limits;
use crate::error::Error;

/// An error at a position of the file. It becomes an [`Error`] once the key or tensor at the position is known.
#[derive(Debug)]
pub(super) struct ParseError {
    pub at: usize,
    pub expected: String,
    pub found: String,
}

impl ParseError {
    /// Adds the name of the key, tensor or field that the error is in.
    pub fn within(self, place: impl Display) -> Error {
        broken(format!("{place}, at byte {}", self.at), self.expected, self.found)
    }
}

/// The error for a file that is not well-formed.
pub(super) fn broken(place: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::Gguf { place: place.into(), expected: expected.into(), found: found.into() }
}

/// Bytes of the file as error messages print them: quoted, escaped, and cut if they are long.
pub(super) fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("`{}{more}`", head.escape_debug())
}

/// A position in the bytes of a file.
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The size of the file, of which `bytes` may be only the beginning.
    total: usize,
    missing: Option<usize>,
}

impl<'a> ByteReader<'a> {
    /// Creates a reader of a whole file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::of_file(bytes, bytes.len())
    }

    /// Creates a reader of the first bytes of a file whose size is `total`.
    pub fn of_file(bytes: &'a [u8], total: usize) -> Self {
        Self { bytes, at: 0, total, missing: None }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// The end of the bytes that were requested and exist in the file but are not in memory yet. If there is one, the
    /// result of parsing is meaningless.
    pub fn missing(&self) -> Option<usize> {
        self.missing
    }

    /// The unread bytes that are in memory.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The number of unread bytes of the file.
    pub fn left(&self) -> usize {
        self.total.saturating_sub(self.at)
    }

    /// An error at the position `back` bytes before this one.
    pub fn error(&self, back: usize, expected: impl Into<String>, found: impl Into<String>) -> ParseError {
        ParseError { at: self.at.saturating_sub(back), expected: expected.into(), found: found.into() }
    }

    fn short(&self, wanted: u64) -> ParseError {
        self.error(0, format!("{wanted} bytes"), format!("{} before the end of the file", self.left()))
    }

    /// Reads the next `count` bytes.
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], ParseError> {
        let taken = self.peek(count)?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Returns the next `count` bytes without consuming them. For an array, this checks before the first element is
    /// read that all elements exist and do not make the header too long.
    pub fn peek(&mut self, count: u64) -> Result<&'a [u8], ParseError> {
        let fitting = usize::try_from(count).ok().filter(|count| *count <= self.left());
        let end = self.at + fitting.ok_or_else(|| self.short(count))?;
        if end > limits::HEADER {
            let limit = format!("a header of at most {} bytes", limits::HEADER);
            return Err(self.error(0, limit, format!("a header of at least {end} bytes")));
        }
        self.bytes.get(self.at..end).ok_or_else(|| {
            self.missing = Some(end);
            self.short(count)
        })
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    pub fn u32(&mut self) -> Result<u32, ParseError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, ParseError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a 64-bit count of `items`, at most `most`. Each item takes at least `least` bytes, so a count that needs
    /// more bytes than the file has left is an error too.
    pub fn count(&mut self, items: &str, most: usize, least: usize) -> Result<usize, ParseError> {
        let count = self.u64()?;
        let held = self.left() / least;
        let fitting = usize::try_from(count).ok().filter(|count| *count <= most.min(held));
        let limit = || match most <= held {
            true => format!("at most {most}, which is wglm's limit"),
            false => format!("at most {held}, because no more fit into the rest of the file"),
        };
        fitting.ok_or_else(|| self.error(8, limit(), format!("{count} {items}")))
    }

    /// Reads a string: its length, then its bytes, in any encoding.
    pub fn string(&mut self) -> Result<&'a [u8], ParseError> {
        let length = self.u64()?;
        self.take(length)
    }

    /// Reads a name: a string in UTF-8 of at most `longest` bytes.
    pub fn name(&mut self, longest: usize) -> Result<&'a str, ParseError> {
        let length = self.u64()?;
        if usize::try_from(length).is_ok_and(|length| length > longest && length <= self.left()) {
            return Err(self.error(8, format!("a name of at most {longest} bytes"), format!("{length} bytes")));
        }
        let bytes = self.take(length)?;
        let at = self.at - bytes.len();
        str::from_utf8(bytes).map_err(|_| ParseError { at, expected: "a name in UTF-8".into(), found: quoted(bytes) })
    }
}
