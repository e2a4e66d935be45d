//! How long each dispatch takes, from the GPU's own clock.

use super::{Dispatch, Gpu, Readback};
use crate::error::{Error, Result};
use wgpu::{BufferUsages, Features};

/// Queries one set may hold (WebGPU).
const MOST_QUERIES: usize = 4096;

impl Gpu {
    /// Runs the dispatches in one pass, as they run otherwise, and returns what the pass took, in nanoseconds.
    ///
    /// # Errors
    /// As [`Gpu::time`].
    pub fn time_pass(&self, dispatches: &[Dispatch<'_>]) -> Result<f64> {
        self.needs_timestamps(0)?;
        let times = self.timed(2, |encoder, queries| record_whole(encoder, queries, dispatches))?;
        Ok(apart(&times, self.queue_period()).next().unwrap_or(0.0))
    }

    /// Runs the dispatches in order and returns what each took, in nanoseconds.
    ///
    /// Where timestamps exist between the dispatches of a pass, all run in one pass, as they do otherwise.
    /// Where they exist only around passes (Apple), each runs in a pass of its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has no timestamps, or there are more dispatches than queries.
    pub fn time(&self, dispatches: &[Dispatch<'_>]) -> Result<Vec<f64>> {
        self.time_each(&dispatches.iter().map(Some).collect::<Vec<_>>())
    }

    /// What [`Gpu::time`] finds for `count` dispatches that are left out: the timestamps' own time, in nanoseconds.
    ///
    /// # Errors
    /// As [`Gpu::time`].
    pub fn time_nothing(&self, count: usize) -> Result<Vec<f64>> {
        self.time_each(&vec![None; count])
    }

    fn time_each(&self, steps: &[Option<&Dispatch<'_>>]) -> Result<Vec<f64>> {
        self.needs_timestamps(steps.len())?;
        let period = self.queue_period();
        if self.device().features().contains(Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
            let ticks = self.timed(steps.len() + 1, |encoder, queries| record_within(encoder, queries, steps))?;
            return Ok(ticks.windows(2).flat_map(|pair| apart(pair, period)).collect());
        }
        let ticks = self.timed(2 * steps.len(), |encoder, queries| record_around(encoder, queries, steps))?;
        Ok(apart(&ticks, period).collect())
    }

    fn needs_timestamps(&self, steps: usize) -> Result<()> {
        if self.device().features().contains(Features::TIMESTAMP_QUERY) && 2 * steps <= MOST_QUERIES {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: "timing".into(),
            found: format!("{steps} steps on `{}`", self.report().name),
            remedy: format!("an adapter with timestamps times up to {} steps", MOST_QUERIES / 2),
        })
    }

    /// Records, submits, and reads `count` timestamps, in ticks.
    fn timed(&self, count: usize, record: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::QuerySet)) -> Result<Vec<u64>> {
        let (count, bytes) = (count as u32, 8 * count as u64);
        let readable = self.readback("timestamps", bytes)?;
        let submission = self.attempt("timing", bytes, |device| {
            let queries = query_set(device, count);
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            record(&mut encoder, &queries);
            resolve(device, &mut encoder, &queries, &readable);
            self.submit_encoder(encoder)
        })?;
        let stamps = self.read(&readable, bytes, &submission)?;
        Ok(bytemuck::pod_collect_to_vec(&stamps))
    }
}

/// Nanoseconds between the two of each pair of ticks.
fn apart(ticks: &[u64], period: f32) -> impl Iterator<Item = f64> {
    ticks.chunks_exact(2).map(move |pair| pair[1].saturating_sub(pair[0]) as f64 * f64::from(period))
}

/// One pass, a timestamp at either end.
fn record_whole(encoder: &mut wgpu::CommandEncoder, queries: &wgpu::QuerySet, dispatches: &[Dispatch<'_>]) {
    let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes: Some(ends(queries, 0)) };
    let mut pass = encoder.begin_compute_pass(&descriptor);
    dispatches.iter().for_each(|dispatch| dispatch.record(&mut pass));
}

/// Timestamps `first` and the one after, at the ends of a pass.
fn ends(query_set: &wgpu::QuerySet, first: u32) -> wgpu::ComputePassTimestampWrites<'_> {
    let (begin, end) = (Some(first), Some(first + 1));
    wgpu::ComputePassTimestampWrites { query_set, beginning_of_pass_write_index: begin, end_of_pass_write_index: end }
}

fn query_set(device: &wgpu::Device, count: u32) -> wgpu::QuerySet {
    let ty = wgpu::QueryType::Timestamp;
    device.create_query_set(&wgpu::QuerySetDescriptor { label: Some("steps"), ty, count })
}

/// Copies every timestamp to where the host reads it.
fn resolve(device: &wgpu::Device, encoder: &mut wgpu::CommandEncoder, queries: &wgpu::QuerySet, to: &Readback) {
    let size = 8 * u64::from(queries.count());
    let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
    let label = Some("timestamps");
    let resolved = device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false });
    encoder.resolve_query_set(queries, 0..queries.count(), &resolved, 0);
    encoder.copy_buffer_to_buffer(&resolved, 0, &to.raw, 0, size);
}

/// One pass, a timestamp before the first step and after each.
fn record_within(encoder: &mut wgpu::CommandEncoder, queries: &wgpu::QuerySet, steps: &[Option<&Dispatch<'_>>]) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.write_timestamp(queries, 0);
    for (step, index) in steps.iter().zip(1..) {
        step.iter().for_each(|dispatch| dispatch.record(&mut pass));
        pass.write_timestamp(queries, index);
    }
}

/// A pass a step, with a timestamp at either end.
fn record_around(encoder: &mut wgpu::CommandEncoder, queries: &wgpu::QuerySet, steps: &[Option<&Dispatch<'_>>]) {
    for (step, index) in steps.iter().zip(0..) {
        let timestamp_writes = Some(ends(queries, 2 * index));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        step.iter().for_each(|dispatch| dispatch.record(&mut pass));
    }
}
