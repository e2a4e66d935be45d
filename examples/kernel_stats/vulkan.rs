//! A Vulkan device that compiles kernels and reports the results. It runs nothing.

use super::spirv::Kernel;
use anyhow::{Context, bail};
use ash::khr::pipeline_executable_properties as executable;
use ash::vk;
use std::ffi::CStr;
use wglm_engine::gpu::Access;

/// A device with all of its features turned on.
pub struct Device {
    pub name: String,
    /// Keeps the driver loaded.
    _entry: ash::Entry,
    instance: ash::Instance,
    device: ash::Device,
    told: executable::Device,
}

/// What a driver reports about a kernel.
pub struct Statistic {
    pub name: String,
    pub value: String,
    pub description: String,
}

/// Extensions that kernels may need, if the device has them.
const WANTED: [&CStr; 2] = [vk::KHR_COOPERATIVE_MATRIX_NAME, vk::KHR_PIPELINE_EXECUTABLE_PROPERTIES_NAME];

impl Device {
    /// Opens the device of this name.
    pub fn open(name: &str) -> anyhow::Result<Self> {
        // SAFETY: the loader is that of the system, and every call below gets what the specification asks for: handles
        // of this instance, and chains of structures that live as long as the call.
        unsafe {
            let entry = ash::Entry::load().context("no Vulkan loader")?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&info, None)?;
            let called = |physical: &vk::PhysicalDevice| {
                instance
                    .get_physical_device_properties(*physical)
                    .device_name_as_c_str()
                    .is_ok_and(|it| it.to_string_lossy() == name)
            };
            let physical = instance.enumerate_physical_devices()?.into_iter().find(called);
            let physical = physical.with_context(|| format!("no Vulkan device named `{name}`"))?;
            let extensions = instance.enumerate_device_extension_properties(physical)?;
            let has = |name: &CStr| extensions.iter().any(|it| it.extension_name_as_c_str() == Ok(name));
            if !has(vk::KHR_PIPELINE_EXECUTABLE_PROPERTIES_NAME) {
                bail!("`{name}` tells nothing of its kernels: it has no VK_KHR_pipeline_executable_properties");
            }
            let enabled: Vec<_> = WANTED.into_iter().filter(|name| has(name)).map(CStr::as_ptr).collect();
            let mut one = vk::PhysicalDeviceVulkan11Features::default();
            let mut two = vk::PhysicalDeviceVulkan12Features::default();
            let mut three = vk::PhysicalDeviceVulkan13Features::default();
            let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
            let mut told = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
            let mut features = vk::PhysicalDeviceFeatures2::default()
                .push_next(&mut one)
                .push_next(&mut two)
                .push_next(&mut three)
                .push_next(&mut told);
            if has(vk::KHR_COOPERATIVE_MATRIX_NAME) {
                features = features.push_next(&mut matrices);
            }
            instance.get_physical_device_features2(physical, &mut features);
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .enabled_extension_names(&enabled)
                .push_next(&mut features);
            let device = instance.create_device(physical, &info, None)?;
            let told = executable::Device::new(&instance, &device);
            Ok(Self { name: name.to_owned(), _entry: entry, instance, device, told })
        }
    }

    /// Compiles a kernel, and returns the driver's report.
    pub fn statistics(&self, kernel: &Kernel) -> anyhow::Result<Vec<Statistic>> {
        // SAFETY: as in `open`. The module is valid, for naga has validated it, and the layout has its bindings.
        unsafe {
            let module =
                self.device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&kernel.words), None)?;
            let bindings: Vec<_> = kernel.bindings.iter().zip(0..).map(binding).collect();
            let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let set = self.device.create_descriptor_set_layout(&set, None)?;
            let sets = [set];
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
            let layout = self.device.create_pipeline_layout(&layout, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .flags(vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE)
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = vk::ComputePipelineCreateInfo::default()
                .flags(vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR)
                .stage(stage)
                .layout(layout);
            let made = self.device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            let told = match made {
                Ok(pipelines) => self.told_of(pipelines[0]),
                Err((_, error)) => Err(error.into()),
            };
            self.device.destroy_pipeline_layout(layout, None);
            self.device.destroy_descriptor_set_layout(set, None);
            self.device.destroy_shader_module(module, None);
            told.with_context(|| format!("compiling `{}`", kernel.label))
        }
    }

    /// The driver's report about a pipeline, which is destroyed afterwards.
    unsafe fn told_of(&self, pipeline: vk::Pipeline) -> anyhow::Result<Vec<Statistic>> {
        // SAFETY: the pipeline is the caller's, created with the flag for statistics.
        unsafe {
            let parts =
                self.told.get_pipeline_executable_properties(&vk::PipelineInfoKHR::default().pipeline(pipeline));
            let mut all = Vec::new();
            for part in 0..parts?.len() as u32 {
                let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(part);
                all.extend(self.told.get_pipeline_executable_statistics(&info)?.iter().map(statistic));
            }
            self.device.destroy_pipeline(pipeline, None);
            Ok(all)
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: nothing that belongs to the device is in use any more.
        unsafe {
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

fn binding((access, number): (&Access, u32)) -> vk::DescriptorSetLayoutBinding<'static> {
    let ty = match access {
        Access::Uniform => vk::DescriptorType::UNIFORM_BUFFER,
        _ => vk::DescriptorType::STORAGE_BUFFER,
    };
    vk::DescriptorSetLayoutBinding::default()
        .binding(number)
        .descriptor_type(ty)
        .descriptor_count(1)
        .stage_flags(vk::ShaderStageFlags::COMPUTE)
}

fn statistic(it: &vk::PipelineExecutableStatisticKHR<'_>) -> Statistic {
    let words = |text: Result<&CStr, _>| text.map_or_else(|_| String::new(), |it| it.to_string_lossy().into_owned());
    // SAFETY: the format says which member of the union there is.
    let value = unsafe {
        match it.format {
            vk::PipelineExecutableStatisticFormatKHR::BOOL32 => (it.value.b32 != 0).to_string(),
            vk::PipelineExecutableStatisticFormatKHR::INT64 => it.value.i64.to_string(),
            vk::PipelineExecutableStatisticFormatKHR::UINT64 => it.value.u64.to_string(),
            _ => it.value.f64.to_string(),
        }
    };
    Statistic { name: words(it.name_as_c_str()), value, description: words(it.description_as_c_str()) }
}
