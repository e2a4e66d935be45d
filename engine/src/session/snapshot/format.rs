//! A snapshot as bytes: a header, the tokens, each layer's KV rows, the last token's logits if there were any, and a
//! checksum of all that. Numbers are little-endian.

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crc32fast::Hasher;
use std::io::{Read, Seek, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"wglmsnap";
/// It changes with the format of what follows.
const VERSION: u32 = 3;
const CHECKSUM: u64 = 4;
/// Bytes read and written at a time.
pub const PIECE: usize = 4 << 20;

/// The beginning of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Header {
    magic: [u8; 8],
    version: u32,
    /// The type of cache: the bytes of a value of the latent.
    pub cache_type: u32,
    /// The model: its file's header, and its weights.
    pub model: u64,
    /// The multi-token-prediction block: its weights. 0 if there is none.
    pub block: u64,
    /// Layers of the cache, the last of which may be that of a multi-token-prediction block.
    pub layers: u32,
    /// Bytes of a token's KV row in a layer.
    pub kv_row: u32,
    /// Tokens.
    pub tokens: u32,
    /// Logits of the last token, or 0.
    pub logits: u32,
}

impl Header {
    pub fn new([cache_type, layers, kv_row]: [u32; 3], [model, block]: [u64; 2], [tokens, logits]: [u32; 2]) -> Self {
        Self { magic: MAGIC, version: VERSION, cache_type, model, block, layers, kv_row, tokens, logits }
    }

    /// Bytes of a layer's KV rows.
    pub fn layer_bytes(&self) -> u64 {
        u64::from(self.kv_row) * u64::from(self.tokens)
    }

    /// The bytes of a whole snapshot; `None` if they cannot be counted.
    fn bytes(&self) -> Option<u64> {
        let kv_rows = self.layer_bytes().checked_mul(self.layers.into())?;
        let words = 4 * (u64::from(self.tokens) + u64::from(self.logits));
        kv_rows.checked_add(words + size_of::<Self>() as u64 + CHECKSUM)
    }
}

/// Writes a snapshot and computes its checksum.
pub struct Writer<'a> {
    to: &'a mut dyn Write,
    path: &'a Path,
    cancel: &'a Cancel,
    sum: Hasher,
}

impl<'a> Writer<'a> {
    pub fn new(to: &'a mut dyn Write, path: &'a Path, cancel: &'a Cancel) -> Self {
        Self { to, path, cancel, sum: Hasher::new() }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.cancel.check()?;
        self.sum.update(bytes);
        self.to.write_all(bytes).map_err(Error::io("write", self.path))
    }

    pub fn finish(mut self) -> Result<()> {
        let sum = self.sum.clone().finalize();
        self.write(&sum.to_le_bytes())
    }
}

/// Reads a snapshot after checking its length, checksum and version.
pub struct Reader<'a, R> {
    from: R,
    path: &'a Path,
    cancel: &'a Cancel,
    pub header: Header,
    /// The checksum of what was read since the reader was opened, including the header.
    sum: Hasher,
    /// The expected value of that checksum.
    expected: u32,
}

impl<'a, R: Read + Seek> Reader<'a, R> {
    /// Reads all of it once, so that nothing is restored from a damaged one.
    pub fn open(from: R, path: &'a Path, cancel: &'a Cancel) -> Result<Self> {
        let header = bytemuck::Zeroable::zeroed();
        let mut reader = Self { from, path, cancel, header, sum: Hasher::new(), expected: 0 };
        let length = reader.seek(std::io::SeekFrom::End(0))?;
        reader.seek(std::io::SeekFrom::Start(0))?;
        if length < size_of::<Header>() as u64 + CHECKSUM {
            return Err(damaged("its length", "a header".into(), format!("{length} bytes")));
        }
        let mut header = reader.header;
        reader.read(bytemuck::bytes_of_mut(&mut header))?;
        reader.header = header;
        reader.expected = reader.check(length)?;
        reader.seek(std::io::SeekFrom::Start(size_of::<Header>() as u64))?;
        reader.sum = Hasher::new();
        reader.sum.update(bytemuck::bytes_of(&header));
        Ok(reader)
    }

    /// Reads it to its end, and returns its checksum.
    fn check(&mut self, length: u64) -> Result<u32> {
        let header = self.header;
        if header.magic != MAGIC {
            let found = header.magic.escape_ascii();
            return Err(damaged("its first bytes", "`wglmsnap`".into(), format!("`{found}`")));
        }
        if header.version != VERSION {
            return Err(damaged("its version", VERSION.to_string(), header.version.to_string()));
        }
        if header.bytes() != Some(length) {
            let expected = header.bytes().map_or("a valid size in its header".into(), |bytes| format!("{bytes} bytes"));
            return Err(damaged("its length", expected, format!("{length} bytes")));
        }
        let mut sum = Hasher::new();
        sum.update(bytemuck::bytes_of(&header));
        let mut piece = vec![0; PIECE];
        let mut rest = length - size_of::<Header>() as u64 - CHECKSUM;
        while rest > 0 {
            let part = &mut piece[..rest.min(PIECE as u64) as usize];
            self.read(part)?;
            sum.update(part);
            rest -= part.len() as u64;
        }
        let (mut found, expected) = ([0; CHECKSUM as usize], sum.finalize());
        self.read(&mut found)?;
        let found = u32::from_le_bytes(found);
        if found == expected { Ok(expected) } else { Err(damaged("its checksum", hex(expected), hex(found))) }
    }

    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.cancel.check()?;
        self.from.read_exact(bytes).map_err(Error::io("read", self.path))?;
        self.sum.update(bytes);
        Ok(())
    }

    /// Checks after the second reading that nothing has changed since the first.
    pub fn finish(&self) -> Result<()> {
        let found = self.sum.clone().finalize();
        match found == self.expected {
            true => Ok(()),
            false => Err(damaged("its checksum, which changed while it was read", hex(self.expected), hex(found))),
        }
    }

    /// Reads words.
    pub fn words(&mut self, count: u32) -> Result<Vec<u32>> {
        let mut words = vec![0; count as usize];
        self.read(bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }

    fn seek(&mut self, to: std::io::SeekFrom) -> Result<u64> {
        self.from.seek(to).map_err(Error::io("read", self.path))
    }
}

fn hex(sum: u32) -> String {
    format!("{sum:08x}")
}

pub fn damaged(what: &'static str, expected: String, found: String) -> Error {
    Error::Snapshot { what, expected, found }
}
