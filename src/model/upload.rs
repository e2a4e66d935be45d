//! Weights from a file to the GPU: cut out or decoded where they must be, repacked on all cores, written a
//! few megabytes at a time.

use super::weights::Source;
use super::{Progress, TokenPlan};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::{Buffer, BufferUse, Gpu, Submission};
use crate::plan::{Plan, Weight};
use crate::quant;
use crate::threads::joined;
use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

/// Bytes of a file repacked at a time: enough to keep all cores busy, little enough to hold twice.
const CHUNK: usize = 16 << 20;

/// Makes and fills the buffers of a plan's weights, in the plan's order.
pub(super) fn upload(
    file: &Gguf,
    gpu: &Gpu,
    planned: &TokenPlan,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<Buffer>> {
    planned.plan.check_bindings(gpu.capabilities().max_binding)?;
    let mut upload = Upload { file, gpu, before: None, done: 0, total: planned.plan.weight_memory(), progress };
    upload.all(&planned.plan, &planned.sources)
}

struct Upload<'a> {
    file: &'a Gguf,
    gpu: &'a Gpu,
    /// The submission that writes the run before.
    before: Option<Submission>,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl Upload<'_> {
    fn all(&mut self, plan: &Plan, sources: &[Source]) -> Result<Vec<Buffer>> {
        self.report(0)?;
        // All of them first: if there is no room, it shows before minutes are spent on reading.
        let make = |w: &Weight| self.gpu.buffer(&w.name, w.bytes(), BufferUse::Storage);
        let buffers = plan.weights.iter().map(make).collect::<Result<Vec<_>>>()?;
        for ((weight, source), buffer) in plan.weights.iter().zip(sources).zip(&buffers) {
            let before = self.done;
            self.one(weight, &Rows::of(self.file, weight, source)?, buffer)?;
            self.report(before + weight.bytes() - self.done)?; // what lies between the streams
        }
        self.before.take().map_or(Ok(()), |last| self.gpu.wait(&last))?;
        Ok(buffers)
    }

    fn report(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        match (self.progress)(Progress { done: self.done, total: self.total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled),
        }
    }

    /// Repacks and writes a tensor, a run of rows at a time. Runs are whole words in every stream. While one
    /// run is repacked, the one before is on its way.
    fn one(&mut self, weight: &Weight, rows: &Rows<'_>, buffer: &Buffer) -> Result<()> {
        let count = weight.shape[1] * weight.shape[2];
        let run = (CHUNK / rows.row_bytes.max(1)).max(1).next_multiple_of(4);
        let blocks = weight.quant.blocks(weight.shape[0]);
        for first in (0..count).step_by(run) {
            let range = first..count.min(first + run);
            let streams = repack(weight, &rows.get(range.clone()), range.len())?;
            for ((start, _), (info, bytes)) in
                weight.streams().into_iter().zip(weight.quant.streams.iter().zip(&streams))
            {
                self.gpu.write(buffer, start + (first * blocks * info.bytes) as u64, bytes)?;
            }
            let now = self.gpu.flush()?;
            if let Some(before) = self.before.replace(now) {
                self.gpu.wait(&before)?; // its staging memory is free again
            }
            self.report(streams.iter().map(|s| s.len() as u64).sum())?;
        }
        Ok(())
    }
}

/// The GPU's streams of `count` rows, each padded to whole words, repacked on all cores.
fn repack(weight: &Weight, rows: &[u8], count: usize) -> Result<Vec<Vec<u8>>> {
    let (quant, columns) = (weight.quant, weight.shape[0]);
    let blocks = quant.blocks(columns);
    let whole = |stream: &quant::Stream| vec![0; (stream.bytes * blocks * count).next_multiple_of(4)];
    let mut streams: Vec<Vec<u8>> = quant.streams.iter().map(whole).collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let share = count.div_ceil(threads).max(1);
    let row_bytes = rows.len() / count.max(1);
    std::thread::scope(|scope| {
        let mut rests: Vec<&mut [u8]> = streams.iter_mut().map(Vec::as_mut_slice).collect();
        let mut workers = Vec::new();
        for part in rows.chunks(share * row_bytes) {
            let part_blocks = part.len() / row_bytes * blocks;
            let mut out = Vec::with_capacity(rests.len());
            for (rest, stream) in rests.iter_mut().zip(quant.streams) {
                let (head, tail) = std::mem::take(rest).split_at_mut(stream.bytes * part_blocks);
                *rest = tail;
                out.push(head);
            }
            workers.push(scope.spawn(move || quant.repack(part, columns, &mut out)));
        }
        joined(workers, "repacking weights")
    })?;
    Ok(streams)
}

/// The rows of a weight, in the format it will have: those of a tensor, or made from it.
struct Rows<'a> {
    bytes: Cow<'a, [u8]>,
    row_bytes: usize,
    /// Rows of one matrix in `bytes`, the first taken, and how many.
    per: usize,
    first: usize,
    rows: usize,
}

impl<'a> Rows<'a> {
    fn of(file: &'a Gguf, weight: &Weight, source: &Source) -> Result<Self> {
        let [columns, rows, matrices] = weight.shape;
        let row_bytes = weight.quant.row_bytes(columns).ok_or_else(|| ragged(weight))?;
        let made = |bytes: Vec<u8>| Self { bytes: Cow::Owned(bytes), row_bytes, per: rows, first: 0, rows };
        Ok(match source {
            Source::Rows { tensor, per, first, rows } => {
                let bytes = Cow::Borrowed(data(file, tensor)?);
                Self { bytes, row_bytes, per: *per, first: *first, rows: *rows }
            }
            Source::Decoded { tensor } => made(bytemuck::cast_slice(&decoded(file, tensor)?).to_vec()),
            Source::Transposed { tensor, per, rows: taken } => {
                let values = decoded(file, tensor)?;
                let order =
                    (0..matrices).flat_map(|m| (0..rows).flat_map(move |r| (0..*taken).map(move |c| (m, r, c))));
                let transposed: Vec<f32> = order.map(|(m, r, c)| values[(m * per + c) * rows + r]).collect();
                made(weight.quant.encode(&transposed)?)
            }
            Source::Zeros => made(vec![0; row_bytes * rows * matrices]),
        })
    }

    /// Rows of the weight, one after another.
    fn get(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        if self.rows == self.per {
            return Cow::Borrowed(&self.bytes[range.start * self.row_bytes..range.end * self.row_bytes]);
        }
        let place = |row: usize| (row / self.rows * self.per + self.first + row % self.rows) * self.row_bytes;
        let mut gathered = Vec::with_capacity(range.len() * self.row_bytes);
        range.for_each(|row| gathered.extend_from_slice(&self.bytes[place(row)..][..self.row_bytes]));
        Cow::Owned(gathered)
    }
}

fn ragged(weight: &Weight) -> Error {
    Error::Tensor {
        name: weight.name.to_string(),
        expected: format!("rows of whole {} blocks of {} values", weight.quant.name, weight.quant.values),
        found: format!("rows of {} values", weight.shape[0]),
    }
}

fn data<'a>(file: &'a Gguf, name: &str) -> Result<&'a [u8]> {
    let nothing = || Error::Tensor { name: name.into(), expected: "a tensor".into(), found: "nothing".into() };
    file.tensor(name).map(|info| file.data(info)).ok_or_else(nothing)
}

fn decoded(file: &Gguf, name: &str) -> Result<Vec<f32>> {
    let bytes = data(file, name)?;
    let info = file.tensor(name);
    let quant = info.and_then(|i| quant::by_id(i.ty.id)).unwrap_or(&quant::F32);
    let mut values = vec![0f32; info.map_or(0, |i| i.dims.iter().product())];
    quant.decode(bytes, &mut values)?;
    Ok(values)
}
