//! One device a test binary.

use std::sync::OnceLock;
use wglm::{Gpu, GpuOptions};

/// The device, with every index checked.
pub fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| open(true))
}

/// A device with or without subgroup operations.
pub fn open(subgroups: bool) -> Gpu {
    let options = GpuOptions { checks: true, subgroups, ..GpuOptions::default() };
    Gpu::open(&options).expect("a GPU driver; `./test` installs a software one")
}
