//! Measures how long passes take, with the GPU's own clock.
//!
//! Timestamps are only taken at the beginning and the end of a pass. Every GPU with timestamps supports that, whereas a
//! timestamp between two dispatches makes the second wait until the first has drained, which on an H100 takes longer
//! than most dispatches.

use super::{Dispatch, Gpu, Readback};
use crate::error::{Error, Result};
use wgpu::{BufferUsages, Features};

impl Gpu {
    /// Runs passes of dispatches one after the other in one submission, and returns the duration of each in
    /// nanoseconds.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has no timestamps; errors that the driver reports.
    #[doc(hidden)]
    pub fn time(&self, passes: &[Vec<Dispatch<'_>>]) -> Result<Vec<f64>> {
        self.needs_timestamps()?;
        let (count, bytes) = (2 * passes.len() as u32, 16 * passes.len() as u64);
        let readable = self.readback("timestamps", bytes)?;
        let submission = self.record("timing", bytes, |encoder| {
            let queries = query_set(self.device(), count);
            for (dispatches, first) in passes.iter().zip((0..).step_by(2)) {
                let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
                    query_set: &queries,
                    beginning_of_pass_write_index: Some(first),
                    end_of_pass_write_index: Some(first + 1),
                });
                self.pass(encoder, timestamp_writes, dispatches.iter().copied());
            }
            resolve(self.device(), encoder, &queries, &readable);
        })?;
        let stamps = self.read(&readable, bytes, &submission)?;
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&stamps);
        let period = f64::from(self.queue_period());
        Ok(ticks.as_chunks().0.iter().map(|[begin, end]| end.saturating_sub(*begin) as f64 * period).collect())
    }

    /// Whether [`Gpu::time`] works: the device has timestamps and is not an app's software device, on which a pass
    /// would be one long submission.
    pub fn measures_passes(&self) -> bool {
        let whole = self.is_ours() || !self.report().is_software();
        whole && self.device().features().contains(Features::TIMESTAMP_QUERY)
    }

    fn needs_timestamps(&self) -> Result<()> {
        if self.device().features().contains(Features::TIMESTAMP_QUERY) {
            return Ok(());
        }
        let found = format!("`{}` has no timestamp queries", self.report().name);
        Err(Error::unsupported("timing", found, "use another GPU"))
    }
}

fn query_set(device: &wgpu::Device, count: u32) -> wgpu::QuerySet {
    let ty = wgpu::QueryType::Timestamp;
    device.create_query_set(&wgpu::QuerySetDescriptor { label: Some("passes"), ty, count })
}

/// Copies all timestamps to the buffer that the host reads.
fn resolve(device: &wgpu::Device, encoder: &mut wgpu::CommandEncoder, queries: &wgpu::QuerySet, to: &Readback) {
    let size = 8 * u64::from(queries.count());
    let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
    let label = Some("timestamps");
    let resolved = device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false });
    encoder.resolve_query_set(queries, 0..queries.count(), &resolved, 0);
    encoder.copy_buffer_to_buffer(&resolved, 0, &to.raw, 0, size);
}
