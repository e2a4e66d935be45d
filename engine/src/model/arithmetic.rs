//! Chooses the arithmetic of matrix products for an adapter.

use crate::gpu::{AdapterReport, Backend};
use crate::quant::Arithmetic;

/// The PCI vendor ids of GPUs with an instruction for the dot product of four bytes, to which the compilers of Vulkan
/// and DX12 translate WGSL's `dot4I8Packed`: NVIDIA (since Pascal), AMD (since Vega 20 and RDNA 2), Intel (since Xe).
/// Without it, as on Apple's GPUs, that product takes a dozen instructions and f32 is faster; the same holds for
/// drivers that compute on the CPU.
const MULTIPLY_BYTES: [u32; 3] = [0x10de, 0x1002, 0x8086];
const COMPILE_TO_IT: [Backend; 2] = [Backend::Vulkan, Backend::Dx12];

/// The default arithmetic of an adapter: integer if it has an instruction for int8 dot products, and f32 otherwise.
pub fn usual_arithmetic(adapter: &AdapterReport) -> Arithmetic {
    let bytes =
        MULTIPLY_BYTES.contains(&adapter.vendor) && COMPILE_TO_IT.contains(&adapter.backend) && !adapter.is_software();
    if bytes { Arithmetic::Int } else { Arithmetic::Float }
}
