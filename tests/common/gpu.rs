//! One device for all tests of a program.

use std::sync::OnceLock;
use wglm::{Gpu, GpuOptions};

/// The device, whose shaders check every index.
pub fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| open(true))
}

/// A device with or without subgroup operations.
pub fn open(subgroups: bool) -> Gpu {
    let options = GpuOptions { checks: true, subgroups, ..GpuOptions::default() };
    Gpu::open(&options).expect("a GPU driver; `./test` installs a software one")
}
