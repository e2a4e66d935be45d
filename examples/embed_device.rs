//! An app that lets wglm compute on the app's own wgpu device: the app opens the device with everything that wglm and
//! the app itself need, and continues to use it while a reply is generated on another thread.
//!
//! `cargo run --release --example embed_device [FILE]`

use std::io::Write;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};
use wglm::{Chat, Event, Gguf, Gpu, GpuOptions, LoadOptions, Model, SamplerParams, wgpu};

/// The app's own work, in place of drawing a frame. It counts its frames on the GPU.
const FRAME: &str = "
    @group(0) @binding(0) var<storage, read_write> frames: atomic<u32>;
    @compute @workgroup_size(1) fn main() { atomicAdd(&frames, 1u); }
";

fn main() -> anyhow::Result<()> {
    let file = match std::env::args().nth(1) {
        Some(path) => Gguf::open(path)?,
        None => Gguf::from_static(wglm::DEMO_MODEL)?,
    };
    let options = GpuOptions::from_env()?;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    let mut descriptor = Gpu::descriptor(&adapter, &options);
    descriptor.label = Some("the app's"); // and the features that the app itself needs
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
    let app = App::new(device.clone(), queue.clone());

    let gpu = Gpu::from_wgpu(&adapter, device, queue, &options)?;
    let (sender, receiver) = channel();
    let worker = std::thread::spawn(move || -> wglm::Result<()> {
        let model = Model::load(&file, &gpu, &LoadOptions::default())?;
        let mut chat = Chat::new(&model)?;
        chat.options.sampling = SamplerParams::greedy();
        for event in chat.send("Tell me a story about an owl.")? {
            if sender.send(event?).is_err() {
                break; // the app has ended
            }
        }
        Ok(())
    });

    let mut longest = Duration::ZERO;
    let mut out = std::io::stdout();
    let end = loop {
        let since = Instant::now();
        app.draw();
        longest = longest.max(since.elapsed());
        match receiver.try_recv() {
            Ok(Event::Text(text)) => write!(out, "{text}")?,
            Ok(_) => {}
            Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(8)),
            Err(TryRecvError::Disconnected) => break worker.join(),
        }
        out.flush()?;
    };
    match end {
        Ok(done) => done?,
        Err(_) => anyhow::bail!("the worker died"),
    }
    writeln!(out, "\n[{} frames meanwhile, the longest {longest:.0?}]", app.frames()?)?;
    Ok(())
}

/// A compute pipeline, and the buffer that it counts in.
struct App {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
    count: wgpu::Buffer,
    readable: wgpu::Buffer,
}

impl App {
    fn new(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        use wgpu::BufferUsages as Usage;
        let source = wgpu::ShaderSource::Wgsl(FRAME.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("frame"), source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("frame"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false })
        };
        let (count, readable) = (buffer(Usage::STORAGE | Usage::COPY_SRC), buffer(Usage::MAP_READ | Usage::COPY_DST));
        let bindings = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: count.as_entire_binding() }],
        });
        Self { device, queue, pipeline, bindings, count, readable }
    }

    fn draw(&self) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        drop(pass);
        self.queue.submit([encoder.finish()]);
    }

    /// The number of frames that the GPU has counted.
    fn frames(&self) -> anyhow::Result<u32> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.count, 0, &self.readable, 0, 4);
        self.queue.submit([encoder.finish()]);
        self.readable.map_async(wgpu::MapMode::Read, .., |_| {});
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        Ok(bytemuck::pod_read_unaligned(&self.readable.get_mapped_range(..)?))
    }
}
