//! In what products multiply, unless asked otherwise: what suits the adapter.

use crate::gpu::AdapterReport;
use crate::quant::Arithmetic;

/// PCI numbers of makers whose GPUs multiply four bytes with four others, and add, in one instruction, which Vulkan's
/// and DX12's compilers make of WGSL's `dot4I8Packed`: NVIDIA (since Pascal), AMD (since Vega 20 and RDNA 2), Intel
/// (since Xe). Where there is no such instruction, as on Apple's GPUs, a product of bytes takes a dozen and f32 is
/// faster; drivers that compute on the CPU are no different.
const MULTIPLY_BYTES: [u32; 3] = [0x10de, 0x1002, 0x8086];
const COMPILE_TO_IT: [&str; 2] = ["vulkan", "dx12"];

/// The arithmetic that suits an adapter: products of bytes where it multiplies four at a time.
pub fn usual_arithmetic(adapter: &AdapterReport) -> Arithmetic {
    let bytes =
        MULTIPLY_BYTES.contains(&adapter.vendor) && COMPILE_TO_IT.contains(&adapter.backend) && !adapter.is_software();
    if bytes { Arithmetic::Int } else { Arithmetic::Float }
}
