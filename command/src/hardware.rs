//! Published specifications of GPUs that wglm may run on: memory bandwidth, arithmetic, and the cost of a dispatch.
//!
//! Bandwidth is as stated by the makers. For Apple's chips it comes from the announcements in Apple's newsroom and the
//! technical specifications of the Macs that have them. The M1 itself is left out, since no Mac with one has enough
//! memory.
//!
//! * M1 Pro 200, M1 Max 400: "Introducing M1 Pro and M1 Max", October 2021; M1 Ultra 800: March 2022
//! * M2 100: June 2022; M2 Pro 200, M2 Max 400: January 2023; M2 Ultra 800: June 2023
//! * M3 100, M3 Pro 150, M3 Max 400 (300 with 30 GPU cores): MacBook Pro, October 2023; M3 Ultra 819: Mac Studio 2025
//! * M4 120: May 2024; M4 Pro 273, M4 Max 546 (410 with 32 GPU cores): October 2024
//! * M5 153: October 2025; M5 Pro 307, M5 Max 614: March 2026
//!
//! Arithmetic is computed from the number of GPU cores in the same announcements, at 0.34 TFLOP/s for each core: 128
//! lanes that multiply and add at about 1.33 GHz. Apple states 10.4 TFLOP/s for the 32 cores of the M1 Max and 13.6 for
//! the 38 of the M2 Max, and nothing for later chips, which run faster. Their matrices of 8 x 8 multiply at that rate;
//! the additional units of the M5 are left out.
//!
//! The cost of a dispatch that only waits for the previous one was measured by others as 2.4 us on an M3 Ultra
//! (github.com/ml-explore/mlx issue 4521), and this is used for every Mac. The 2.1 us of the H100 are our own
//! measurement (docs/performance.md), its bandwidth is from NVIDIA's data sheet for the SXM5 board with 80 GB, and its
//! arithmetic is the rate of f16 matrices there.

use wglm_engine::instruments::{Target, Tilings};
use wglm_engine::{Arithmetic, Matrices};

pub struct Hardware {
    pub name: &'static str,
    /// The memory bandwidth in bytes per second.
    pub bandwidth: f64,
    /// Operations per second: in f32, or of matrices if those are faster.
    pub operations: f64,
    /// The seconds of a dispatch that waits for the previous one and does almost nothing.
    pub dispatch: f64,
    /// Whether it is an Apple GPU, which runs through Metal.
    pub apple: bool,
}

const fn mac(name: &'static str, gigabytes_per_second: f64, cores: f64) -> Hardware {
    let (bandwidth, operations) = (gigabytes_per_second * 1e9, cores * 0.34e12);
    Hardware { name, bandwidth, operations, dispatch: 2.4e-6, apple: true }
}

impl Hardware {
    /// The target that wglm would plan for on this GPU, with the settings of `asked`.
    pub fn target(&self, asked: &Target, arithmetic: Option<Arithmetic>) -> Target {
        let (tilings, matrices, usual) = match self.apple {
            true => (Tilings::Apple, Matrices::Eight, Arithmetic::Float),
            false => (Tilings::Nvidia, Matrices::Sixteen, Arithmetic::Int),
        };
        Target { tilings, matrices, arithmetic: arithmetic.unwrap_or(usual), ..asked.clone() }
    }
}

/// All known GPUs, the slowest of each generation first.
pub static HARDWARE: &[Hardware] = &[
    mac("m1-pro", 200.0, 16.0),
    mac("m1-max", 400.0, 32.0),
    mac("m1-ultra", 800.0, 64.0),
    mac("m2", 100.0, 10.0),
    mac("m2-pro", 200.0, 19.0),
    mac("m2-max", 400.0, 38.0),
    mac("m2-ultra", 800.0, 76.0),
    mac("m3", 100.0, 10.0),
    mac("m3-pro", 150.0, 18.0),
    mac("m3-max-300", 300.0, 30.0),
    mac("m3-max", 400.0, 40.0),
    mac("m3-ultra", 819.0, 80.0),
    mac("m4", 120.0, 10.0),
    mac("m4-pro", 273.0, 20.0),
    mac("m4-max-410", 410.0, 32.0),
    mac("m4-max", 546.0, 40.0),
    mac("m5", 153.0, 10.0),
    mac("m5-pro", 307.0, 20.0),
    mac("m5-max", 614.0, 40.0),
    Hardware { name: "h100", bandwidth: 3350e9, operations: 989e12, dispatch: 2.1e-6, apple: false },
];

/// The name that means all of them.
pub const ALL: &str = "all";

pub fn names() -> impl Iterator<Item = &'static str> {
    HARDWARE.iter().map(|hardware| hardware.name).chain([ALL])
}

/// The GPUs that a name means.
pub fn named(name: &str) -> impl Iterator<Item = &'static Hardware> {
    HARDWARE.iter().filter(move |hardware| name == ALL || hardware.name == name)
}
