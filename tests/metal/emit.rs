//! The Metal source that wgpu would make of a variant on a Mac and pass to Apple's compiler.

use naga::back::msl;
use naga::back::pipeline_constants::process_overrides;
use naga::compact::{KeepUnused, compact};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};
use wglm_engine::shader::{Access, BindingInfo, SourcePart, Variant, reflect};
use wglm_engine::wgsl::Source;

/// The versions of the language in macOS 13, 14, 15 and 26.
pub const LANGUAGES: [(u8, u8); 4] = [(3, 0), (3, 1), (3, 2), (4, 0)];

/// The version that is executed and stored as snapshots.
pub const USUAL: (u8, u8) = (3, 1);

/// The checks at run time that wgpu adds to a shader: `ShaderRuntimeChecks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// As in release builds.
    Unchecked,
    /// As in debug builds.
    Checked,
}

/// A variant parsed by naga, ready to be written.
pub struct Shader {
    pub label: String,
    pub module: Module,
    pub info: ModuleInfo,
    /// The buffers, by their numbers, which are the same in WGSL and in Metal's language.
    pub bindings: Vec<BindingInfo>,
    pub workgroup_size: u32,
    pub workgroup_bytes: u32,
}

impl Shader {
    pub fn of(variant: &Variant) -> Result<Self, String> {
        let reflected = reflect(variant).map_err(|e| e.to_string())?;
        // Validated again, as by wgpu, now that bindings have numbers.
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        let info = validator.validate(&reflected.module).map_err(|e| e.to_string())?;
        Ok(Self {
            label: variant.label.clone(),
            module: reflected.module,
            info,
            bindings: reflected.bindings,
            workgroup_size: reflected.workgroup_size,
            workgroup_bytes: reflected.workgroup_bytes,
        })
    }

    /// A shader in the code of a test.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let source = Source { path: "test", text: text.to_owned().leak() };
        let parts = vec![SourcePart { source, role: "w" }];
        Self::of(&Variant { label: "test".to_owned(), enables: vec![], constants: vec![], parts })
    }

    /// The number of the buffer of sizes, which wgpu binds after all others of a kernel with storage buffers.
    pub fn sizes(&self) -> Option<u8> {
        let storage = self.bindings.iter().any(|b| b.access != Access::Uniform);
        storage.then_some(self.bindings.len() as u8)
    }

    /// The bindings whose lengths are in that buffer, in its order: arrays without a fixed length.
    pub fn unsized_bindings(&self) -> Vec<usize> {
        let bound = self.module.global_variables.iter().filter(|(_, global)| global.binding.is_some());
        let open = bound
            .enumerate()
            .filter(|(_, (_, global))| self.module.types[global.ty].inner.is_dynamically_sized(&self.module.types));
        open.map(|(number, _)| number).collect()
    }

    /// The same without unused functions, types and constants.
    pub fn compacted(mut self) -> Self {
        compact(&mut self.module, KeepUnused::No);
        self.info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&self.module).unwrap();
        self
    }

    /// The Metal source.
    pub fn write(&self, language: (u8, u8), checks: Checks) -> Result<String, String> {
        let entry = Some((ShaderStage::Compute, "main"));
        let (module, info) = process_overrides(&self.module, &self.info, entry, &Default::default())
            .map_err(|e| format!("overrides: {e}"))?;
        let (text, made) = msl::write_string(&module, &info, &self.options(language, checks), &pipeline())
            .map_err(|e| format!("language {language:?}, {checks:?}: {e}"))?;
        made.entry_point_names.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| format!("its entry: {e}"))?;
        Ok(text)
    }

    /// The options of wgpu-hal (`metal/device.rs`, `load_shader`).
    fn options(&self, language: (u8, u8), checks: Checks) -> msl::Options {
        let checked = checks == Checks::Checked;
        let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
        msl::Options {
            lang_version: language,
            per_entry_point_map: [("main".to_owned(), self.resources())].into_iter().collect(),
            inline_samplers: Vec::new(),
            spirv_cross_compatibility: false,
            fake_missing_bindings: false,
            bounds_check_policies: BoundsCheckPolicies {
                index: policy,
                buffer: policy,
                image_load: policy,
                binding_array: BoundsCheckPolicy::Unchecked,
            },
            zero_initialize_workgroup_memory: false, // as in `shader/pipeline.rs`
            force_loop_bounding: checked,
            task_dispatch_limits: None,
            mesh_shader_primitive_indices_clamp: checked,
            emit_int_div_checks: checked,
            ray_query_initialization_tracking: checked,
        }
    }

    /// The numbers of the buffers as in wgpu-hal (`metal/device.rs`, `create_pipeline_layout`): in the order of the
    /// layout, and the sizes last.
    fn resources(&self) -> msl::EntryPointResources {
        let target = |(binding, number): (&BindingInfo, u32)| {
            let mutable = binding.access == Access::ReadWrite;
            let target = msl::BindTarget { buffer: Some(number as u8), mutable, ..Default::default() };
            (naga::ResourceBinding { group: 0, binding: number }, target)
        };
        let resources = self.bindings.iter().zip(0..).map(target).collect();
        msl::EntryPointResources { resources, sizes_buffer: self.sizes(), ..Default::default() }
    }
}

fn pipeline() -> msl::PipelineOptions {
    msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".to_owned())),
        allow_and_force_point_size: false,
        vertex_pulling_transform: true,
        vertex_buffer_mappings: Vec::new(),
        binding_array_length_map: Default::default(),
    }
}
