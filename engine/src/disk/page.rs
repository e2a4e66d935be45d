//! The file of a page, and its name.
//!
//! The file has a header and the KV rows of the page: those of each layer, one layer after another. Numbers are
//! little-endian.

use bytemuck::{Zeroable, bytes_of, bytes_of_mut, cast_slice};
use crc32fast::Hasher;
use sha2::{Digest, Sha256};
use std::io::{Error, ErrorKind, Read, Result, Write};

const MAGIC: [u8; 8] = *b"wglmpage";
/// It changes with the format of what follows, and with the meaning of the rows.
const VERSION: u32 = 1;
/// The end of a file's name.
const ENDING: &str = ".kv";

/// The name of a page: 128 bits of the SHA-256 of the model, the type of cache, the arithmetic, the tenant,
/// and all tokens up to the end of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageName([u8; 16]);

/// The beginning of a file.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    /// The checksum of what follows.
    checksum: u32,
    name: [u8; 16],
    /// The bytes of the rows.
    bytes: u64,
}

impl PageName {
    /// What precedes the first page: `identity` is all that the rows depend on in addition to the tokens.
    pub fn start(identity: &[u64]) -> Self {
        Self::of([&MAGIC, bytes_of(&VERSION), cast_slice(identity)])
    }

    /// The page with these tokens after this one.
    pub fn then(self, tokens: &[u32]) -> Self {
        Self::of([&self.0, cast_slice(tokens), &[]])
    }

    /// The same page with the KV rows of a multi-token-prediction block, given its number.
    pub fn with_block(self, block: u64) -> Self {
        Self::of([&self.0, bytes_of(&block), &[]])
    }

    fn of(parts: [&[u8]; 3]) -> Self {
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update(part));
        let mut name = Self([0; 16]);
        name.0.copy_from_slice(&hash.finalize()[..16]);
        name
    }

    /// The name of its file.
    pub fn file(self) -> String {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        digits.chain([ENDING.to_owned()]).collect()
    }

    /// The page of a file with this name.
    pub fn of_file(name: &str) -> Option<Self> {
        let mut page = Self([0; 16]);
        let digits = name.strip_suffix(ENDING).filter(|digits| digits.is_ascii())?;
        for (place, byte) in page.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
        }
        (page.file() == name).then_some(page)
    }
}

/// The bytes of a file with this many bytes of rows.
pub fn file_bytes(rows: usize) -> u64 {
    (size_of::<Header>() + rows) as u64
}

/// Writes a page.
///
/// # Errors
/// The system's.
pub fn write(to: &mut impl Write, name: PageName, rows: &[u8]) -> Result<()> {
    let mut header = Header { magic: MAGIC, version: VERSION, checksum: 0, name: name.0, bytes: rows.len() as u64 };
    header.checksum = checksum(&header, rows);
    to.write_all(bytes_of(&header))?;
    to.write_all(rows)
}

/// Reads a page whose rows take `bytes` bytes.
///
/// # Errors
/// The system's, and one of kind `InvalidData` or `UnexpectedEof` for a file that is damaged or of another page.
pub fn read(from: &mut impl Read, name: PageName, bytes: u64) -> Result<Vec<u8>> {
    let mut header = Header::zeroed();
    from.read_exact(bytes_of_mut(&mut header))?;
    let wanted = Header { magic: MAGIC, version: VERSION, checksum: header.checksum, name: name.0, bytes };
    if bytes_of(&header) != bytes_of(&wanted) {
        return Err(invalid("its header is that of another page".to_owned()));
    }
    let mut rows = Vec::new();
    rows.try_reserve_exact(bytes as usize).map_err(|_| ErrorKind::OutOfMemory)?;
    from.by_ref().take(bytes).read_to_end(&mut rows)?;
    if from.read(&mut [0])? > 0 {
        return Err(invalid(format!("expected {bytes} bytes of rows, found more")));
    }
    if rows.len() as u64 != bytes {
        return Err(invalid(format!("expected {bytes} bytes of rows, found {}", rows.len())));
    }
    let found = checksum(&header, &rows);
    if found == header.checksum {
        return Ok(rows);
    }
    Err(invalid(format!("expected the checksum {:08x}, found {found:08x}", header.checksum)))
}

/// The checksum of what follows it in a file.
fn checksum(header: &Header, rows: &[u8]) -> u32 {
    let mut sum = Hasher::new();
    sum.update(&header.name);
    sum.update(bytes_of(&header.bytes));
    sum.update(rows);
    sum.finalize()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_everything_before() {
        let start = PageName::start(&[1, 2]);
        let names = [
            start.then(&[1, 2]).then(&[3]),
            start.then(&[1]).then(&[2, 3]),
            start.then(&[1, 2]).then(&[4]),
            PageName::start(&[1, 3]).then(&[1, 2]).then(&[3]),
            start.then(&[1, 2]),
        ];
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{index}");
            assert_eq!(PageName::of_file(&name.file()), Some(*name));
        }
        let file = start.file();
        for other in [&file[1..], &file.to_uppercase(), &file.replace(".kv", ""), "lock", "é.kv"] {
            assert_eq!(PageName::of_file(other), None, "{other}");
        }
    }

    /// Every changed byte and every shorter or longer file is noticed.
    #[test]
    fn a_damaged_file_is_not_read() {
        let name = PageName::start(&[7]);
        let rows: Vec<u8> = (0..200).collect();
        let mut file = Vec::new();
        write(&mut file, name, &rows).unwrap();
        assert_eq!((read(&mut file.as_slice(), name, 200).unwrap(), file.len() as u64), (rows, file_bytes(200)));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(read(&mut damaged.as_slice(), name, 200).is_err(), "byte {at}");
            assert!(read(&mut &file[..at], name, 200).is_err(), "{at} bytes");
        }
        assert!(read(&mut [&file[..], &[0]].concat().as_slice(), name, 200).is_err(), "a byte more");
        assert!(read(&mut file.as_slice(), name, 199).is_err() && read(&mut file.as_slice(), name, 201).is_err());
        assert!(read(&mut file.as_slice(), name.then(&[1]), 200).is_err());
    }
}
