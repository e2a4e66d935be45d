//! The SPIR-V of a kernel, as wgpu writes it for Vulkan: with its options, and without run-time checks.

use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use wglm_engine::gpu::Access;
use wglm_engine::shader::{Variant, reflect};

/// A kernel for a driver.
pub struct Kernel {
    pub words: Vec<u32>,
    /// How each of its buffers is used, by binding.
    pub bindings: Vec<Access>,
    /// The variant's name.
    pub label: String,
}

/// The SPIR-V of a variant.
pub fn of(variant: &Variant) -> anyhow::Result<Kernel> {
    let reflected = reflect(variant)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&reflected.module)?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: (1, 6),
        flags: spv::WriterFlags::LABEL_VARYINGS | spv::WriterFlags::FORCE_POINT_SIZE,
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        ..spv::Options::default()
    };
    let entry = spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".to_owned() };
    let words = spv::write_vec(&reflected.module, &info, &options, Some(&entry))?;
    let bindings = reflected.bindings.iter().map(|binding| binding.access).collect();
    Ok(Kernel { words, bindings, label: variant.label.clone() })
}
