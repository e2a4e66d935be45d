//! Parses the header of a file, which is everything before the weights: magic, version, counts, metadata, tensors, and
//! the position where the data starts.

use super::metadata::{self, Metadata};
use super::reader::{ByteReader, ParseError, broken};
use super::tensor::{self, Tensors};
use super::{limits, looks};
use crate::error::{Error, Result};

const MAGIC: &[u8; 4] = b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: usize = 32;
/// The format requires a multiple of 8. A value above the largest page size in use is a mistake.
const ALIGNMENTS: std::ops::RangeInclusive<usize> = 8..=1 << 30;

/// A header that passed all checks.
pub(super) struct GgufHeader {
    pub version: u32,
    pub alignment: usize,
    pub metadata: Metadata,
    pub tensors: Tensors,
    /// The length of the header in bytes.
    pub end: usize,
}

impl GgufHeader {
    /// Parses and checks the header of a file, from its first byte on.
    pub fn parse(reader: &mut ByteReader<'_>) -> Result<Self> {
        let (file, bytes) = (reader.rest(), reader.left());
        read_magic(reader)?;
        let version = read_version(reader)?;
        let within = |place| move |error: ParseError| error.within(place);
        let tensors = reader.count("tensors", limits::TENSORS, tensor::MIN_ENTRY).map_err(within("tensor count"))?;
        let keys =
            reader.count("metadata keys", limits::KEYS, metadata::MIN_ENTRY).map_err(within("metadata count"))?;

        let metadata = Metadata::parse(reader, keys)?;
        let alignment = read_alignment(&metadata, file)?;
        let mut tensors = Tensors::parse(reader, tensors)?;
        let end = reader.at();
        // `next_multiple_of` cannot overflow: no header in memory ends within `ALIGNMENTS` of the last address.
        tensors.locate(end.next_multiple_of(alignment), bytes, alignment)?;
        Ok(Self { version, alignment, metadata, tensors, end })
    }
}

fn read_magic(reader: &mut ByteReader<'_>) -> Result<()> {
    let (first, bytes) = (reader.rest(), reader.left());
    match reader.array().as_ref() {
        Ok(MAGIC) => Ok(()),
        Ok(b"FUGG") => Err(big_endian("it begins with `FUGG`")),
        _ if bytes > 0 && MAGIC.starts_with(first) => {
            Err(broken("magic", "4 bytes", format!("{bytes} before the end of the file")))
        }
        _ => Err(Error::NotGguf { found: looks::like(first, bytes) }),
    }
}

fn read_version(reader: &mut ByteReader<'_>) -> Result<u32> {
    let version = reader.u32().map_err(|error| error.within("version"))?;
    match version {
        2 | 3 => Ok(version),
        // Big-endian files have the same magic and swap the bytes of everything after it.
        _ if (1..=3).contains(&version.swap_bytes()) => Err(big_endian("the bytes of its version are swapped")),
        1 => Err(Error::unsupported(
            "this version of GGUF",
            "version 1",
            "convert the model again with a current llama.cpp",
        )),
        _ => {
            Err(Error::unsupported("this version of GGUF", format!("version {version}"), "wglm reads versions 2 and 3"))
        }
    }
}

fn read_alignment(metadata: &Metadata, file: &[u8]) -> Result<usize> {
    let Some(alignment) = metadata.read::<u32>(file, ALIGNMENT_KEY)? else { return Ok(DEFAULT_ALIGNMENT) };
    let sane = usize::try_from(alignment).ok().filter(|n| n.is_power_of_two() && ALIGNMENTS.contains(n));
    sane.ok_or_else(|| Error::Metadata {
        key: ALIGNMENT_KEY.into(),
        expected: format!("a power of two from {} to {}", ALIGNMENTS.start(), ALIGNMENTS.end()),
        found: alignment.to_string(),
    })
}

fn big_endian(found: &str) -> Error {
    Error::unsupported(
        "a big-endian GGUF file",
        found,
        "convert it with `gguf-convert-endian` from Python's `gguf` package",
    )
}
