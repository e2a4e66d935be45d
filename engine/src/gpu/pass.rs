//! Pipelines, what they bind, and submissions of them.

use super::wait::Done;
use super::{Buffer, BufferRange, Gpu, Readback};
use crate::error::Result;

/// A compiled kernel.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    /// The buffers that it binds, in the order of their numbers.
    pub bindings: Vec<BindingInfo>,
}

/// A buffer that a kernel binds. Its binding number is its index in [`Pipeline::bindings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingInfo {
    /// The WGSL name.
    pub name: String,
    /// How it is used.
    pub access: Access,
}

/// How a kernel uses a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A uniform buffer.
    Uniform,
    /// A storage buffer that is only read.
    Read,
    /// A storage buffer that is written, and perhaps also read.
    ReadWrite,
}

/// A range of a buffer, bound by number.
pub struct Binding<'a> {
    /// The binding number.
    pub index: u32,
    /// The buffer.
    pub buffer: &'a Buffer,
    /// The first byte of the range.
    pub offset: u64,
    /// The bytes of the range.
    pub bytes: u64,
}

/// The buffers of one dispatch.
#[derive(Debug, Clone)]
pub struct BindGroup {
    raw: wgpu::BindGroup,
}

/// One kernel run over a grid of workgroups.
#[derive(Clone, Copy)]
pub struct Dispatch<'a> {
    /// The kernel.
    pub pipeline: &'a Pipeline,
    /// Its buffers.
    pub bindings: &'a BindGroup,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
}

impl Dispatch<'_> {
    pub(super) fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        let [x, y, z] = self.grid;
        pass.set_pipeline(&self.pipeline.raw);
        pass.set_bind_group(0, &self.bindings.raw, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

/// A copy of part of a buffer to the host, after the dispatches.
pub struct ReadbackCopy<'a> {
    /// The source.
    pub from: &'a Buffer,
    /// The first byte.
    pub offset: u64,
    /// Whole words.
    pub bytes: u64,
    /// The destination.
    pub to: &'a Readback,
    /// The first byte there.
    pub at: u64,
}

/// Submitted work.
#[derive(Debug, Clone)]
pub struct Submission {
    pub(super) index: wgpu::SubmissionIndex,
    pub(super) done: Option<Done>,
}

/// Work that is recorded but not yet submitted.
#[derive(Debug)]
pub struct Prepared {
    pub(super) raw: wgpu::CommandBuffer,
}

/// A copy from one buffer to another, of whole words.
pub struct BufferCopy<'a> {
    /// The source.
    pub range: BufferRange<'a>,
    /// The destination, another buffer.
    pub to: &'a Buffer,
    /// The first byte there.
    pub at: u64,
}

impl Gpu {
    /// Binds ranges of buffers to a pipeline.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if a range is not what the kernel or the device takes.
    #[doc(hidden)]
    pub fn bind(&self, label: &str, pipeline: &Pipeline, bindings: &[Binding<'_>]) -> Result<BindGroup> {
        let mut entries = Vec::with_capacity(bindings.len());
        for b in bindings {
            let (buffer, offset, size) = (&b.buffer.raw, b.buffer.start + b.offset, wgpu::BufferSize::new(b.bytes));
            let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
            entries.push(wgpu::BindGroupEntry { binding: b.index, resource });
        }
        let layout = &pipeline.layout;
        let descriptor = wgpu::BindGroupDescriptor { label: Some(label), layout, entries: &entries };
        let raw = self.attempt(&format!("binding `{label}`"), 0, |device| device.create_bind_group(&descriptor))?;
        Ok(BindGroup { raw })
    }

    /// Records the dispatches in one pass of one encoder, then the copies, and submits them. If an app draws on the
    /// device and the driver is software, each dispatch is a submission of its own: such a driver computes inside the
    /// submitting call, and a frame waits for its end.
    ///
    /// # Errors
    /// Any error that the driver reports about this work or the device.
    #[doc(hidden)]
    pub fn submit<'a>(
        &self,
        dispatches: impl IntoIterator<Item = Dispatch<'a>>,
        copies: &[ReadbackCopy<'_>],
    ) -> Result<Submission> {
        let mut dispatches = dispatches.into_iter().peekable();
        if self.report().is_software() && !self.is_ours() {
            while let Some(dispatch) = dispatches.next() {
                if dispatches.peek().is_none() {
                    return self.submit_whole([dispatch], copies);
                }
                self.submit_whole([dispatch], &[])?;
            }
        }
        self.submit_whole(dispatches, copies)
    }

    fn submit_whole<'a>(
        &self,
        dispatches: impl IntoIterator<Item = Dispatch<'a>>,
        copies: &[ReadbackCopy<'_>],
    ) -> Result<Submission> {
        self.record("a submission", 0, |encoder| self.encode(encoder, dispatches, copies))
    }

    fn encode<'a>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        dispatches: impl IntoIterator<Item = Dispatch<'a>>,
        copies: &[ReadbackCopy<'_>],
    ) {
        self.pass(encoder, None, dispatches);
        copy_to_host(encoder, copies);
    }

    /// Records what [`Gpu::submit`] would submit, for [`Gpu::submit_prepared`]. `None` if that would be several
    /// submissions.
    ///
    /// # Errors
    /// Any error that the driver reports about this work.
    #[doc(hidden)]
    pub fn prepare<'a>(
        &self,
        dispatches: impl IntoIterator<Item = Dispatch<'a>>,
        copies: &[ReadbackCopy<'_>],
    ) -> Result<Option<Prepared>> {
        if self.report().is_software() && !self.is_ours() {
            return Ok(None);
        }
        self.record_ahead(|encoder| self.encode(encoder, dispatches, copies)).map(Some)
    }

    /// Fills buffers with zeros. wgpu zeroes a new buffer only at its first use; done here, that does not delay the
    /// work that uses it.
    ///
    /// # Errors
    /// See [`Gpu::submit`].
    #[doc(hidden)]
    pub fn zero(&self, buffers: &[Buffer]) -> Result<Submission> {
        self.record("zeroing buffers", 0, |encoder| {
            for buffer in buffers {
                encoder.clear_buffer(&buffer.raw, buffer.start, Some(buffer.bytes()));
            }
        })
    }

    /// Fills buffers with repetitions of a pattern. An empty pattern fills nothing.
    ///
    /// # Errors
    /// Any error from the device.
    #[doc(hidden)]
    pub fn fill(&self, pattern: &Buffer, buffers: &[&Buffer]) -> Result<()> {
        if pattern.bytes() == 0 {
            return Ok(());
        }
        let submission = self.record("filling buffers", 0, |encoder| {
            for buffer in buffers {
                for at in (0..buffer.bytes()).step_by(pattern.bytes() as usize) {
                    let bytes = pattern.bytes().min(buffer.bytes() - at);
                    encoder.copy_buffer_to_buffer(&pattern.raw, pattern.start, &buffer.raw, buffer.start + at, bytes);
                }
            }
        })?;
        self.wait(&submission)
    }

    /// Copies between buffers, in order, after everything that was submitted before, and then to the host.
    ///
    /// # Errors
    /// Any error that the driver has reported so far.
    #[doc(hidden)]
    pub fn copy(&self, copies: &[BufferCopy<'_>], to_host: &[ReadbackCopy<'_>]) -> Result<Submission> {
        self.record("copying buffers", 0, |encoder| {
            for BufferCopy { range: BufferRange { from, offset, bytes }, to, at } in copies {
                encoder.copy_buffer_to_buffer(&from.raw, from.start + offset, &to.raw, to.start + at, *bytes);
            }
            copy_to_host(encoder, to_host);
        })
    }

    /// The nanoseconds of one tick of the GPU's clock.
    pub(super) fn queue_period(&self) -> f32 {
        self.shared.queue.get_timestamp_period()
    }
}

fn copy_to_host(encoder: &mut wgpu::CommandEncoder, copies: &[ReadbackCopy<'_>]) {
    for copy in copies {
        let (from, to) = (copy.from, &copy.to.raw);
        encoder.copy_buffer_to_buffer(&from.raw, from.start + copy.offset, to, copy.at, copy.bytes);
    }
}
