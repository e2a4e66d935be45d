//! Verifies that the weights arrived on the GPU: it compares their checksums there with those of the host.
//!
//! A driver may drop a submission without reporting it, as Metal does if memory runs out while it runs. If that happens
//! to a part of the upload, the weights are zeros, or whatever the memory held before. So at the end of the load the
//! GPU reads each buffer once, at the speed of its memory.

use super::upload::Uploaded;
use crate::error::{Error, Result};
use crate::gpu::{Buffer, Fetch, Submission};
use crate::kernels::SUM_TILE;
use crate::plan::{BufferRef, Builder, Executor, LocalId, Plan, Purpose, Target, Weight};
use crate::shader::Pipelines;
use std::ops::Range;
use std::sync::Arc;

/// The most bytes that one dispatch sums, so that none takes longer than a few milliseconds.
const RANGE: u64 = 256 << 20;
/// The number of bytes that one submission sums, so that an app can draw between two of them.
const SUBMISSION: u64 = 1 << 30;
/// The size in bytes of the checksum of a weight, which consists of two sums.
const PAIR: u64 = 8;

/// Computes the checksums of the weights' buffers on the GPU, and compares them with those of the host. `check_stop` is
/// called before every submission.
///
/// # Errors
/// [`Error::Upload`] if a weight is not what was sent, [`Error::NoResult`] if the GPU returned no checksums; the error
/// of `check_stop`; any error from the device.
pub(super) fn verify(
    pipelines: &Pipelines,
    weights: &Arc<Vec<Weight>>,
    uploaded: &Uploaded,
    check_stop: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let sum_plan = SumPlan::of(weights, pipelines.gpu().capabilities().max_binding)?;
    let sums = sum_plan.run(pipelines, &uploaded.buffers, check_stop)?;
    let pairs = weights.iter().zip(sums.iter().zip(&uploaded.sums));
    let mut wrong = pairs.filter(|(_, (there, sent))| there != sent).map(|(weight, _)| weight);
    let Some(first) = wrong.next() else { return Ok(()) };
    Err(Error::Upload { tensor: first.name.to_string(), count: 1 + wrong.count(), total: weights.len() })
}

/// The bytes that verification takes on the device besides the weights.
pub(super) fn verify_memory(weights: &Arc<Vec<Weight>>, max_binding: u64) -> Result<u64> {
    let sum_plan = SumPlan::of(weights, max_binding)?;
    let read = Fetch::memory(PAIR * weights.len() as u64, sum_plan.submissions().len() + 1);
    Ok(sum_plan.plan.params_memory() + sum_plan.plan.local_memory(Purpose::State) + read)
}

/// The plan that sums all weights, with a step for each range of a buffer.
struct SumPlan {
    plan: Plan,
    /// The buffer of the sums, which are in the order of the weights.
    sums: LocalId,
}

impl SumPlan {
    fn of(weights: &Arc<Vec<Weight>>, max_binding: u64) -> Result<Self> {
        let tile = 4 * SUM_TILE as u64;
        let most = RANGE.min(max_binding / tile * tile).max(tile);
        let mut b = Builder::new(&Target::default(), 1).with_weights(weights);
        let sums = b.setting("sums", PAIR * weights.len() as u64);
        for weight in weights.iter() {
            for start in (0..weight.bytes()).step_by(most as usize) {
                let range = start..weight.bytes().min(start + most);
                b.weight_sum(&weight.name, weight.buffer(), range, (BufferRef::Local(sums), weight.id.index()))?;
            }
        }
        Ok(Self { plan: b.finish(), sums })
    }

    fn run(
        &self,
        pipelines: &Pipelines,
        buffers: &[Buffer],
        check_stop: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<[u32; 2]>> {
        let gpu = pipelines.gpu();
        pipelines.prepare_while(&self.plan.variants, check_stop)?;
        let executor = Executor::new(pipelines, &self.plan, buffers)?;
        let (bytes, submissions) = (PAIR * self.plan.weights.len() as u64, self.submissions());
        let mut fetch = Fetch::with_capacity(gpu, bytes, submissions.len() + 1)?;
        let mut newest: Option<Submission> = None;
        for steps in submissions {
            check_stop()?;
            let submission = fetch.submit(&[], |copies| executor.submit(steps, copies))?;
            // The GPU computes one submission while the host records the next.
            newest.replace(submission).map_or(Ok(()), |before| gpu.wait(&before))?;
        }
        let read = fetch.read(executor.local(self.sums), 0, bytes)?;
        Ok(read.chunks_exact(PAIR as usize).map(bytemuck::pod_read_unaligned).collect())
    }

    /// The steps of each submission.
    fn submissions(&self) -> Vec<Range<usize>> {
        let (mut submissions, mut first, mut bytes) = (Vec::new(), 0, 0);
        for (index, step) in self.plan.steps.iter().enumerate() {
            if bytes + step.cost.weights > SUBMISSION {
                submissions.push(first..index);
                (first, bytes) = (index, 0);
            }
            bytes += step.cost.weights;
        }
        submissions.push(first..self.plan.steps.len());
        submissions
    }
}

#[cfg(test)]
mod tests {
    use super::super::sums::Sums;
    use super::*;
    use crate::gpu::{BufferUse, Gpu, GpuOptions};
    use crate::quant::{F32, QUANTS};

    /// Weights on a device, and what they hold.
    struct There {
        pipelines: Pipelines,
        weights: Arc<Vec<Weight>>,
        contents: Vec<Vec<u8>>,
        uploaded: Uploaded,
    }

    /// A weight of every format and some of a few values, of noise.
    fn there(subgroups: bool) -> Result<There> {
        let gpu = Gpu::open(&GpuOptions { checks: true, subgroups, ..GpuOptions::default() })?;
        let mut b = Builder::new(&Target::default(), 1);
        let shapes = QUANTS.iter().map(|quant| (*quant, [512, 27, 1]));
        let small = [1, 3, 1000, 1025].map(|columns| (&F32, [columns, 1, 1]));
        for (i, (quant, shape)) in shapes.chain(small).enumerate() {
            b.weight(&i.to_string(), quant, shape);
        }
        let weights = b.finish().weights;
        let sums = Sums::of(weights.len());
        let (mut contents, mut buffers) = (Vec::new(), Vec::new());
        for weight in weights.iter() {
            let noise = F32.sample(weight.bytes() as usize / 4, weight.id.index() as u64);
            let buffer = gpu.buffer(&weight.name, weight.bytes(), BufferUse::Storage)?;
            gpu.write(&buffer, 0, &noise)?;
            sums.add(weight.id, 0, &noise);
            contents.push(noise);
            buffers.push(buffer);
        }
        let uploaded = Uploaded { buffers, in_place: 0, sums: sums.finish() };
        Ok(There { pipelines: Pipelines::new(&gpu), weights, contents, uploaded })
    }

    impl There {
        fn verify(&self) -> Result<()> {
            verify(&self.pipelines, &self.weights, &self.uploaded, &mut || Ok(()))
        }

        /// What is found if bytes are written to a weight, which is then restored.
        fn spoilt(&self, weight: usize, at: usize, bytes: &[u8]) -> Result<String> {
            let write = |bytes: &[u8]| self.pipelines.gpu().write(&self.uploaded.buffers[weight], at as u64, bytes);
            write(bytes)?;
            let found = match self.verify() {
                Err(Error::Upload { tensor, count: 1, total }) if total == self.weights.len() => tensor,
                other => format!("{other:?}"),
            };
            write(&self.contents[weight][at..at + bytes.len()])?;
            Ok(found)
        }
    }

    #[test]
    fn weights_that_arrived_are_found_right() -> Result<()> {
        for subgroups in [true, false] {
            there(subgroups)?.verify()?;
        }
        Ok(())
    }

    #[test]
    fn a_weight_that_did_not_arrive_is_named() -> Result<()> {
        let there = there(true)?;
        for weight in there.weights.iter() {
            let (name, content) = (weight.name.to_string(), &there.contents[weight.id.index()]);
            let (piece, end) = (content.len().min(256), content.len());
            assert_eq!(there.spoilt(weight.id.index(), 0, &vec![0; piece])?, name, "a piece is missing");
            assert_eq!(
                there.spoilt(weight.id.index(), end - piece, &vec![0; piece])?,
                name,
                "the last piece is missing"
            );
            let stale = F32.sample(content.len() / 4, 100);
            assert_eq!(there.spoilt(weight.id.index(), 0, &stale)?, name, "another model's");
            if end >= 2 * piece {
                assert_eq!(
                    there.spoilt(weight.id.index(), 0, &content[end - piece..])?,
                    name,
                    "a piece in another's place"
                );
                let exchanged = [&content[end - piece..], &content[piece..end - piece], &content[..piece]].concat();
                assert_eq!(there.spoilt(weight.id.index(), 0, &exchanged)?, name, "two pieces are exchanged");
            }
        }
        there.verify()
    }

    #[test]
    fn the_first_of_several_is_named() -> Result<()> {
        let there = there(true)?;
        for weight in [9, 4, 7] {
            there.pipelines.gpu().zero(&there.uploaded.buffers[weight..=weight])?;
        }
        let found = there.verify();
        let expected = matches!(&found, Err(Error::Upload { tensor, count: 3, .. }) if tensor == "4");
        assert!(expected, "{found:?}");
        Ok(())
    }

    /// A buffer may be larger than what can be bound of it.
    #[test]
    fn sums_of_ranges_add_up() -> Result<()> {
        let there = there(true)?;
        for max_binding in [1, 4096, 10_000, 1 << 20] {
            let sum_plan = SumPlan::of(&there.weights, max_binding)?;
            let more = sum_plan.plan.steps.len() > there.weights.len();
            assert_eq!(more, max_binding < 1 << 20);
            let sums = sum_plan.run(&there.pipelines, &there.uploaded.buffers, &mut || Ok(()))?;
            assert!(sums == there.uploaded.sums, "in ranges of {max_binding} bytes");
        }
        Ok(())
    }

    #[test]
    fn a_submission_is_bounded() -> Result<()> {
        let mut b = Builder::new(&Target::default(), 1);
        let rows = [1 << 18, 700, 1 << 18, 1, 1 << 18, 1 << 19];
        for (i, rows) in rows.iter().enumerate() {
            b.weight(&i.to_string(), &F32, [1024, *rows, 1]);
        }
        let sum_plan = SumPlan::of(&b.finish().weights, u64::MAX)?;
        let submissions = sum_plan.submissions();
        let bytes =
            |steps: &Range<usize>| sum_plan.plan.steps[steps.clone()].iter().map(|step| step.cost.weights).sum();
        let each: Vec<u64> = submissions.iter().map(bytes).collect();
        let total = sum_plan.plan.weight_memory();
        assert!(each.iter().all(|bytes| (1..=SUBMISSION).contains(bytes)), "{each:?}");
        assert!(each.len() as u64 <= 2 * total / SUBMISSION && each.iter().sum::<u64>() == total, "{each:?}");
        assert!(submissions.windows(2).all(|pair| pair[0].end == pair[1].start), "{submissions:?}");
        Ok(())
    }
}
