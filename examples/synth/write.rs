//! Writes a file of any size on all cores at once, with a few megabytes of memory for each core.

use crate::shape::{Content, Shape, Tensor, metadata, tensors};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of bytes that are generated and written at a time.
const PIECE: u64 = 4 << 20;

/// GGUF's usual alignment.
const ALIGNMENT: u64 = 32;

/// A piece of a tensor's data, made of whole blocks.
struct Piece<'a> {
    tensor: &'a Tensor,
    /// The position in the file.
    offset: u64,
    bytes: u64,
    seed: u64,
}

/// Writes the file and returns its length in bytes. The same shape gives the same bytes everywhere. The header is
/// written last, so an unfinished file is not a GGUF file.
pub fn write(path: &Path, shape: &Shape) -> anyhow::Result<u64> {
    let tensors = tensors(shape);
    let reserve = |w: crate::gguf_writer::GgufWriter, t: &Tensor| w.reserve(&t.name, &t.dims, t.quant.id, t.bytes());
    let header = tensors.iter().fold(metadata(shape), reserve).header();
    let (pieces, end) = pieces(&tensors, header.len() as u64);
    let unwritable = || format!("cannot write {}", path.display());
    let mut file = File::create(path).with_context(unwritable)?;
    file.set_len(end).with_context(unwritable)?;
    write_pieces(path, &pieces).with_context(unwritable)?;
    file.write_all(&header).with_context(unwritable)?;
    Ok(end)
}

/// The pieces of all tensors, and the length of the file.
fn pieces(tensors: &[Tensor], start: u64) -> (Vec<Piece<'_>>, u64) {
    let (mut pieces, mut at) = (Vec::new(), start);
    for tensor in tensors {
        let most = PIECE / tensor.quant.bytes as u64 * tensor.quant.bytes as u64;
        for first in (0..tensor.bytes()).step_by(most as usize) {
            let bytes = most.min(tensor.bytes() - first);
            pieces.push(Piece { tensor, offset: at + first, bytes, seed: pieces.len() as u64 });
        }
        at = (at + tensor.bytes()).next_multiple_of(ALIGNMENT);
    }
    (pieces, at)
}

fn write_pieces(path: &Path, pieces: &[Piece<'_>]) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<()> {
        let mut file = File::options().write(true).open(path)?;
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            piece.make(&mut bytes);
            file.seek(SeekFrom::Start(piece.offset))?;
            file.write_all(&bytes)?;
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| Err(anyhow!("a thread died"))))
    })
}

impl Piece<'_> {
    fn make(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(self.bytes as usize, 0);
        match self.tensor.content {
            Content::Zeros => {}
            Content::Ones => bytes.chunks_exact_mut(4).for_each(|value| value.copy_from_slice(&1f32.to_le_bytes())),
            Content::Noise(deviation) => self.tensor.quant.fill(bytes, deviation, self.seed),
        }
    }
}
