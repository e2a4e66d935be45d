//! The Metal source that wgpu would pass to Apple's compiler for a variant.
//!
//! wgpu generates that text internally and does not expose it, so a kernel that Apple's compiler refuses could not be
//! examined. This module calls naga with the options that wgpu-hal 30 uses (`metal/device.rs`, `load_shader`). The text
//! depends on no device, so it can be generated, and tested, on any system.

use super::{Access, Variant, reflect};
use crate::error::{Error, Result};
use naga::ShaderStage;
use naga::back::msl;
use naga::back::pipeline_constants::process_overrides;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// The version of the language in macOS 14. Apart from the line that names it, the text is the same for macOS 12 to 26.
const LANGUAGE: (u8, u8) = (3, 1);

/// The Metal source of a variant, as in builds without index checks.
///
/// # Errors
/// [`Error::Shader`] for a variant that naga refuses.
pub fn metal_text(variant: &Variant) -> Result<String> {
    let reflected = reflect(variant)?;
    let refused = |message: String| Error::Shader { variant: variant.label.clone(), message };
    // Validates again, as wgpu does: now the bindings have numbers.
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let info = validator.validate(&reflected.module).map_err(|error| refused(error.to_string()))?;
    let entry = Some((ShaderStage::Compute, "main"));
    let (module, info) = process_overrides(&reflected.module, &info, entry, &Default::default())
        .map_err(|error| refused(error.to_string()))?;
    let pipeline = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".to_owned())),
        allow_and_force_point_size: false,
        vertex_pulling_transform: true,
        vertex_buffer_mappings: Vec::new(),
        binding_array_length_map: Default::default(),
    };
    let accesses: Vec<Access> = reflected.bindings.iter().map(|binding| binding.access).collect();
    let (text, _) = msl::write_string(&module, &info, &options(&accesses), &pipeline)
        .map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

fn options(bindings: &[Access]) -> msl::Options {
    let policy = BoundsCheckPolicy::Unchecked;
    msl::Options {
        lang_version: LANGUAGE,
        per_entry_point_map: [("main".to_owned(), resources(bindings))].into_iter().collect(),
        inline_samplers: Vec::new(),
        spirv_cross_compatibility: false,
        fake_missing_bindings: false,
        bounds_check_policies: BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            image_load: policy,
            binding_array: policy,
        },
        zero_initialize_workgroup_memory: false, // as in `pipeline.rs`
        force_loop_bounding: false,
        task_dispatch_limits: None,
        mesh_shader_primitive_indices_clamp: false,
        emit_int_div_checks: false,
        ray_query_initialization_tracking: false,
    }
}

/// The indices of the buffers: in the order of the layout, followed by a buffer of sizes if one is a storage buffer.
fn resources(bindings: &[Access]) -> msl::EntryPointResources {
    let numbered = bindings.iter().zip(0u8..).map(|(access, number)| {
        let target =
            msl::BindTarget { buffer: Some(number), mutable: *access == Access::ReadWrite, ..Default::default() };
        (naga::ResourceBinding { group: 0, binding: number.into() }, target)
    });
    let resources = numbered.collect();
    let storage = bindings.iter().any(|access| *access != Access::Uniform);
    let sizes_buffer = storage.then_some(bindings.len() as u8);
    msl::EntryPointResources { resources, sizes_buffer, ..Default::default() }
}
