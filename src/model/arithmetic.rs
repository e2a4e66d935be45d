//! Chooses the arithmetic of products that suits an adapter.

use crate::gpu::{AdapterReport, Backend};
use crate::quant::Arithmetic;

/// The PCI numbers of makers whose GPUs multiply four bytes by four others, and add, in one instruction, to which the
/// compilers of Vulkan and DX12 translate WGSL's `dot4I8Packed`: NVIDIA (since Pascal), AMD (since Vega 20 and RDNA 2),
/// Intel (since Xe). Without such an instruction, as on Apple's GPUs, a product of bytes takes a dozen instructions and
/// f32 is faster; the same holds for drivers that compute on the CPU.
const MULTIPLY_BYTES: [u32; 3] = [0x10de, 0x1002, 0x8086];
const COMPILE_TO_IT: [Backend; 2] = [Backend::Vulkan, Backend::Dx12];

/// The arithmetic that suits an adapter: products of bytes if it multiplies four at a time, and otherwise f32.
pub fn usual_arithmetic(adapter: &AdapterReport) -> Arithmetic {
    let bytes =
        MULTIPLY_BYTES.contains(&adapter.vendor) && COMPILE_TO_IT.contains(&adapter.backend) && !adapter.is_software();
    if bytes { Arithmetic::Int } else { Arithmetic::Float }
}
