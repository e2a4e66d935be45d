//! A reader that checks every step against the bytes that are left. Nothing here panics or allocates by a
//! length that the file claims.

use std::fmt::Display;

use crate::error::Error;

/// Keys may have 65535 bytes by the format; tensor names, 64 there, are held to the same.
const LONGEST_NAME: usize = 65535;

/// What is wrong at a byte of the file. Becomes an [`Error`] once the key or tensor is known.
#[derive(Debug)]
pub(super) struct ParseError {
    pub at: usize,
    pub expected: String,
    pub found: String,
}

impl ParseError {
    /// Names the place the error is in.
    pub fn within(self, place: impl Display) -> Error {
        broken(format!("{place}, at byte {}", self.at), self.expected, self.found)
    }
}

/// The error for a file that is not well-formed.
pub(super) fn broken(place: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::Gguf { place: place.into(), expected: expected.into(), found: found.into() }
}

/// Bytes of the file as a message shows them: quoted, escaped, and cut where they get long.
pub(super) fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("`{}{more}`", head.escape_debug())
}

/// A position in bytes.
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of the file, of which `bytes` may be the first alone.
    total: usize,
    missing: Option<usize>,
}

impl<'a> ByteReader<'a> {
    /// For bytes that are all there are.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::of_file(bytes, bytes.len())
    }

    /// For the first bytes of a file of `total`.
    pub fn of_file(bytes: &'a [u8], total: usize) -> Self {
        Self { bytes, at: 0, total, missing: None }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// Where bytes end that were asked for, are in the file, and are not among those that are here. Whatever was said of
    /// the file meanwhile says nothing.
    pub fn missing(&self) -> Option<usize> {
        self.missing
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// How many of the file's bytes are not read yet.
    pub fn left(&self) -> usize {
        self.total.saturating_sub(self.at)
    }

    /// A error `back` bytes before the position.
    pub fn error(&self, back: usize, expected: impl Into<String>, found: impl Into<String>) -> ParseError {
        ParseError { at: self.at.saturating_sub(back), expected: expected.into(), found: found.into() }
    }

    fn short(&self, wanted: u64) -> ParseError {
        self.error(0, format!("{wanted} bytes"), format!("{} before the end of the file", self.left()))
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], ParseError> {
        let fitting = usize::try_from(count).ok().filter(|count| *count <= self.left());
        let end = self.at + fitting.ok_or_else(|| self.short(count))?;
        let Some(taken) = self.bytes.get(self.at..end) else {
            self.missing = Some(end);
            return Err(self.short(count));
        };
        self.at = end;
        Ok(taken)
    }

    /// The next `N` bytes, `N` being known.
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

    /// A 64-bit count of `items` that take `least` bytes or more each, and so cannot outnumber what is left.
    pub fn count(&mut self, items: &str, least: usize) -> Result<usize, ParseError> {
        let count = self.u64()?;
        let most = self.left() / least;
        let fitting = usize::try_from(count).ok().filter(|count| *count <= most);
        let limit = || format!("at most {most}, for which there are bytes left");
        fitting.ok_or_else(|| self.error(8, limit(), format!("{count} {items}")))
    }

    /// A string: its length, then its bytes, in any encoding.
    pub fn string(&mut self) -> Result<&'a [u8], ParseError> {
        let length = self.u64()?;
        self.take(length)
    }

    /// A string that names something: UTF-8 and of reasonable length.
    pub fn name(&mut self) -> Result<&'a str, ParseError> {
        let at = self.at;
        let bytes = self.string()?;
        let wrong = |expected: &str, found| ParseError { at, expected: expected.into(), found };
        if bytes.len() > LONGEST_NAME {
            return Err(wrong("a name of at most 65535 bytes", format!("{} bytes", bytes.len())));
        }
        str::from_utf8(bytes).map_err(|_| wrong("a name in UTF-8", quoted(bytes)))
    }
}
