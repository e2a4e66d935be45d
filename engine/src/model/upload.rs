//! Copies weights from their files to the GPU, at the speed of the files. Each of its threads takes one group of pieces
//! after another, reads and repacks it into staging memory of its own, and lets the GPU copy it.
//!
//! A thread has two stagings: while the GPU copies from one, the thread fills the other. Reads are spread over the
//! threads as well. A few hundred kilobytes are read and repacked at a time, so that they stay in the core's cache from
//! the read until they are summed and staged. Weights that are used in place are only summed. At the end the GPU
//! computes checksums of what it has (`verify.rs`).

use super::in_place::{InPlace, Limits, PlaceInFile};
use super::progress::{LoadStage, Meter};
use super::rows::WeightRows;
use super::sums::Sums;
use super::upload_pieces::{PieceGroup, UploadPiece, groups};
use super::verify::verify;
use super::weight_table::WeightTable;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::{Buffer, BufferUse, Gpu, Mapped, PAGE, StagedCopy, Staging};
use crate::memory::resize;
use crate::plan::Weight;
use crate::shader::Pipelines;
use crate::threads::{Job, StopCheck, cores, work};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The most staging memory of all threads together.
const STAGING: usize = 128 << 20;
/// The size of one staging: large enough that submissions cost little, and small enough that a small model takes
/// several turns.
const LARGEST_STAGING: usize = 8 << 20;
const SMALLEST_STAGING: usize = 64 << 10;
/// The number of stagings of a thread.
const ROTATIONS: usize = 2;
/// The most threads. More do not load faster, because the bus is saturated.
const MAX_THREADS: usize = 32;
/// The size in bytes up to which weights share a buffer over the file. The system can then evict one buffer and keep
/// the others.
const WINDOW: usize = 1 << 30;
/// The number of bytes that are read and repacked at a time, for which the input and the output fit a core's cache
/// together.
const TILE: usize = 256 << 10;

/// The weights on the GPU.
pub(super) struct Uploaded {
    /// The buffers, indexed like the table of weights.
    pub buffers: Vec<Buffer>,
    /// The size in bytes of the weights that are used in place.
    pub in_place: u64,
    /// The checksums of the weights, indexed like the table: see `kernels/weight_sum.rs`.
    pub sums: Vec<[u32; 2]>,
}

/// Creates and fills the buffers of a model's weights, in the order of the table. With `zero_copy` the buffers are over
/// the file itself where the file has the form that the GPU needs. Then verifies that the weights arrived.
pub(super) fn upload(
    pipelines: &Pipelines,
    table: &WeightTable,
    zero_copy: bool,
    meter: &Meter,
    check_stop: &mut StopCheck<'_>,
) -> Result<Uploaded> {
    let (gpu, weights) = (pipelines.gpu(), &table.weights);
    let rows = weights.iter().map(|weight| WeightRows::of(table, weight)).collect::<Result<Vec<_>>>()?;
    let placed = if zero_copy { in_place(gpu, table, &rows) } else { InPlace::none(rows.len()) };
    // All buffers are created first, so that out of memory shows before minutes are spent on reading.
    let buffers = buffers(&table.files()[0], gpu, weights, &placed)?;
    let threads = threads();
    let staging = staging_bytes(threads, table.bytes());
    let [copied, in_place] = [false, true]
        .map(|in_place| groups(weights, staging, |weight| placed.places[weight.id.index()].is_some() == in_place));
    let (sums, next) = (Sums::of(weights.len()), AtomicUsize::new(0));
    let upload = Upload { gpu, weights, rows, buffers: &buffers, copied, in_place, sums, next, meter };
    upload.run(threads, check_stop)?;
    table.unchanged()?;
    let sums = upload.sums.finish();
    let uploaded = Uploaded { buffers, in_place: placed.bytes(), sums };
    let since = Instant::now();
    verify(pipelines, weights, &uploaded, check_stop)?;
    tracing::debug!(took = ?since.elapsed(), "the GPU summed the weights");
    Ok(uploaded)
}

/// The weights that can be used in place: those in the model's file.
fn in_place(gpu: &Gpu, table: &WeightTable, rows: &[WeightRows<'_>]) -> InPlace {
    let can = gpu.capabilities();
    let number = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    let limits = Limits { page: PAGE, usual: WINDOW, most: number(can.max_buffer), alignment: number(can.alignment) };
    let range = |(rows, weight): (&WeightRows<'_>, &Weight)| {
        if table.in_model_file(weight) { rows.in_file(weight) } else { None }
    };
    InPlace::of(&rows.iter().zip(table.weights.iter()).map(range).collect::<Vec<_>>(), limits)
}

/// The buffers of the weights: parts of buffers over the file, or empty buffers of their own.
fn buffers(file: &Gguf, gpu: &Gpu, weights: &[Weight], placed: &InPlace) -> Result<Vec<Buffer>> {
    let over_file = |window: &Range<usize>| gpu.over_file("weights in the file", file, window.clone());
    let windows = placed.windows.iter().map(over_file).collect::<Result<Vec<_>>>()?;
    let make = |(weight, place): (&Weight, &Option<PlaceInFile>)| match place {
        Some(place) => windows[place.window].part(place.start as u64, place.bytes as u64),
        None => gpu.buffer(&weight.name, weight.bytes(), BufferUse::Storage),
    };
    weights.iter().zip(&placed.places).map(make).collect()
}

fn threads() -> usize {
    cores().min(MAX_THREADS)
}

/// The most staging memory in bytes for `total` bytes of weights.
pub(super) fn staging_memory(total: u64) -> u64 {
    let threads = threads();
    (staging_bytes(threads, total) * threads * ROTATIONS) as u64
}

/// The size of one staging in bytes for `total` bytes of weights.
fn staging_bytes(threads: usize, total: u64) -> usize {
    let stagings = threads * ROTATIONS;
    let several_turns = usize::try_from(total).unwrap_or(usize::MAX) / stagings / 4;
    several_turns.min(STAGING / stagings).clamp(SMALLEST_STAGING, LARGEST_STAGING)
}

/// The memory in which a thread prepares weights: the bytes that it read, and the bytes that it repacked.
#[derive(Default)]
struct Scratch {
    read: Vec<u8>,
    repacked: Vec<u8>,
}

/// The state that all threads share.
struct Upload<'a> {
    gpu: &'a Gpu,
    /// The weights, the sources of their rows, and their buffers, indexed like the table.
    weights: &'a [Weight],
    rows: Vec<WeightRows<'a>>,
    buffers: &'a [Buffer],
    /// The groups that are copied, and those that are only summed.
    copied: Vec<PieceGroup>,
    in_place: Vec<PieceGroup>,
    sums: Sums,
    /// The index of the first group that no thread has taken.
    next: AtomicUsize,
    meter: &'a Meter,
}

impl Upload<'_> {
    /// Runs the threads until everything is done.
    fn run(&self, threads: usize, check_stop: &mut StopCheck<'_>) -> Result<()> {
        // The first job must get staging memory; the others leave their work to it if there is too little.
        let mut first = Some(self.staging()?);
        let mut job = |_| -> Job<'_> {
            let stagings = first.take().into_iter().collect();
            Box::new(move |check_stop| self.work(stagings, check_stop))
        };
        let jobs = (0..threads.min(self.copied.len() + self.in_place.len())).map(&mut job).collect();
        work("repacking weights", jobs, |_| Ok(()), check_stop).or_else(|error| match error {
            Error::Cancelled => Err(error),
            error => self.gpu.check().and(Err(error)), // reports a lost device, which causes many kinds of errors
        })
    }

    /// Takes groups until none is left.
    fn work(&self, mut stagings: Vec<Staging>, check_stop: &mut StopCheck<'_>) -> Result<()> {
        while stagings.len() < ROTATIONS {
            match self.staging() {
                Ok(staging) => stagings.push(staging),
                Err(Error::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        let sent = self.send_all(&mut stagings, check_stop);
        let finished = stagings.iter_mut().try_for_each(|staging| staging.finish(self.gpu));
        sent.and(finished)
    }

    /// Sends groups from the two stagings in turn.
    fn send_all(&self, stagings: &mut [Staging], check_stop: &mut StopCheck<'_>) -> Result<()> {
        let mut scratch = Scratch::default();
        for turn in (0..stagings.len()).cycle() {
            check_stop()?;
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let group = if let Some(group) = self.copied.get(next) {
                self.send(group, &mut stagings[turn], &mut scratch)?;
                group
            } else if let Some(group) = self.in_place.get(next - self.copied.len()) {
                group.pieces.iter().try_for_each(|piece| self.repack(piece, &mut scratch, &mut |_, _| Ok(())))?;
                group
            } else {
                break;
            };
            self.meter.add(LoadStage::Weights, group.pieces.iter().map(UploadPiece::bytes).sum());
        }
        Ok(())
    }

    /// Staging memory that is large enough for any group.
    fn staging(&self) -> Result<Staging> {
        let bytes = self.copied.iter().map(|group| group.bytes).max().unwrap_or(0);
        self.gpu.staging(bytes as u64)
    }

    fn send(&self, group: &PieceGroup, staging: &mut Staging, scratch: &mut Scratch) -> Result<()> {
        let copies: Vec<StagedCopy<'_>> = group.pieces.iter().flat_map(|piece| self.copies(piece)).collect();
        staging.send(self.gpu, &copies, |mapped| {
            group.pieces.iter().try_for_each(|piece| self.stage(piece, mapped, scratch))
        })
    }

    fn copies(&self, piece: &UploadPiece) -> impl Iterator<Item = StagedCopy<'_>> {
        let to = &self.buffers[piece.weight.index()];
        let parts = piece.parts.iter();
        parts.map(move |p| StagedCopy { from: p.staged as u64, to, offset: p.offset, bytes: p.bytes as u64 })
    }

    fn stage(&self, piece: &UploadPiece, mapped: &mut Mapped, scratch: &mut Scratch) -> Result<()> {
        self.repack(piece, scratch, &mut |at, bytes| mapped.write(at, bytes))?;
        for part in &piece.parts {
            let filled = part.row_bytes * piece.rows.len();
            mapped.zero(part.staged + filled, part.bytes - filled)?;
        }
        Ok(())
    }

    /// Repacks the rows of a piece, a tile at a time, and adds them to the checksum. `take` receives the bytes with
    /// their position in the staging memory.
    fn repack(
        &self,
        piece: &UploadPiece,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let rows = &self.rows[piece.weight.index()];
        rows.expect(piece.rows.clone());
        // For four rows every stream has whole words, which the checksum needs.
        let tile = (rows.at_a_time(TILE) / 4 * 4).max(4);
        for first in piece.rows.clone().step_by(tile) {
            let range = first..piece.rows.end.min(first.saturating_add(tile));
            for (part, stream) in piece.parts.iter().zip(self.tile(piece, range, scratch)?) {
                let before = part.row_bytes * (first - piece.rows.start);
                self.sums.add(piece.weight, part.offset + before as u64, stream);
                take(part.staged + before, stream)?;
            }
        }
        Ok(())
    }

    /// The part of every stream that belongs to some rows.
    fn tile<'s>(&self, piece: &UploadPiece, rows: Range<usize>, scratch: &'s mut Scratch) -> Result<Vec<&'s mut [u8]>> {
        let weight = &self.weights[piece.weight.index()];
        let Scratch { read, repacked } = scratch;
        resize(repacked, piece.parts.iter().map(|part| part.row_bytes * rows.len()).sum(), "repacking weights")?;
        let mut rest = repacked.as_mut_slice();
        let mut streams = Vec::with_capacity(piece.parts.len());
        for part in &piece.parts {
            let (stream, others) = rest.split_at_mut(part.row_bytes * rows.len());
            streams.push(stream);
            rest = others;
        }
        self.rows[piece.weight.index()].read(rows, read)?;
        weight.quant.repack(read, weight.shape[0], &mut streams)?;
        Ok(streams)
    }
}
