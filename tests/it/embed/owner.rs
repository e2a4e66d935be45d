//! An app with its own device.

use crate::common::gpu::options;
use std::sync::mpsc::{Receiver, channel};
use wglm::{Gpu, GpuOptions, wgpu};

pub struct Owner {
    pub adapter: wgpu::Adapter,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
}

impl Owner {
    /// Opens a device with wglm's descriptor, modified by `change`.
    pub fn open(change: impl FnOnce(&mut wgpu::DeviceDescriptor<'static>)) -> Self {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let usual = wgpu::RequestAdapterOptions::default();
        let adapter = pollster::block_on(instance.request_adapter(&usual)).expect("a GPU driver");
        let mut descriptor = Gpu::descriptor(&adapter, &options());
        change(&mut descriptor);
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
        Self { adapter, device, queue }
    }

    pub fn new() -> Self {
        Self::open(|_| {})
    }

    pub fn lend(&self) -> wglm::Result<Gpu> {
        self.lend_with(&options())
    }

    pub fn lend_with(&self, options: &GpuOptions) -> wglm::Result<Gpu> {
        Gpu::from_wgpu(&self.adapter, self.device.clone(), self.queue.clone(), options)
    }

    pub fn buffer(&self, size: u64) -> wgpu::Buffer {
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    }

    /// Causes an error on the app's device.
    pub fn err(&self) {
        drop(self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("the app's"),
            size: 4,
            usage: wgpu::BufferUsages::empty(),
            mapped_at_creation: false,
        }));
    }

    /// The errors that reach the app's handler.
    pub fn errors(&self) -> Receiver<String> {
        let (sender, receiver) = channel();
        self.device.on_uncaptured_error(std::sync::Arc::new(move |error: wgpu::Error| {
            sender.send(error.to_string()).unwrap_or_default();
        }));
        receiver
    }
}
