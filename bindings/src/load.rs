//! What a model needs, and how it is loaded.

use crate::error::WglmError;
use wglm::offers::Judged;
use wglm::{Cancel, Gguf, Gpu, GpuOptions, Verdict, tune::Tuning};

/// The type of the values in the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum CacheType {
    /// Half the memory of `F32`.
    F16,
    /// Exact.
    F32,
    /// About 58 % of the memory of `F16` for GLM-4.7-Flash.
    Q80,
}

impl From<CacheType> for wglm::CacheType {
    fn from(cache: CacheType) -> Self {
        match cache {
            CacheType::F16 => Self::F16,
            CacheType::F32 => Self::F32,
            CacheType::Q80 => Self::Q8_0,
        }
    }
}

/// How a model is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, uniffi::Record)]
pub struct LoadOptions {
    /// The context of conversations in tokens; 0 for the context that the model was trained for; by default that
    /// context or 8192, whichever is smaller.
    #[uniffi(default)]
    pub context: Option<u32>,
    /// The type of the cache's values; otherwise F32 if the cache then takes up to 64 MiB, and F16 if not.
    #[uniffi(default)]
    pub cache: Option<CacheType>,
    /// Use an adapter whose name contains this, in upper or lower case; otherwise the strongest one.
    #[uniffi(default)]
    pub adapter: Option<String>,
    /// The maximum number of bytes in buffers on the GPU.
    #[uniffi(default)]
    pub memory_limit: Option<u64>,
    /// What `Model.verdict` returned for earlier loads. With the right one among them the load does not check the
    /// kernels again.
    #[uniffi(default)]
    pub verdicts: Vec<String>,
    /// What `Model.tune` returned. A tuning for another GPU or model is not used.
    #[uniffi(default)]
    pub tuning: Option<String>,
    /// The path of a separate file with a multi-token-prediction block.
    #[uniffi(default)]
    pub draft_model: Option<String>,
}

impl LoadOptions {
    /// The library's options. A verdict or a tuning that cannot be read counts as absent.
    pub(crate) fn library(&self) -> Result<wglm::LoadOptions, WglmError> {
        Ok(wglm::LoadOptions {
            context: self.context.map(|context| context as usize),
            cache: self.cache.map(wglm::CacheType::from),
            verdicts: self.verdicts.iter().filter_map(|text| serde_json::from_str::<Verdict>(text).ok()).collect(),
            tuning: self.tuning.as_ref().and_then(|text| text.parse::<Tuning>().ok()),
            draft_model: self.draft_model.as_ref().map(Gguf::open).transpose()?,
            ..wglm::LoadOptions::default()
        })
    }

    /// Opens the GPU.
    pub(crate) fn gpu(&self) -> Result<Gpu, WglmError> {
        let (adapter, memory_limit) = (self.adapter.clone(), self.memory_limit);
        Ok(Gpu::open(&GpuOptions { adapter, memory_limit, ..GpuOptions::default() })?)
    }
}

/// The stages of a load, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum LoadStage {
    /// Weights are read and uploaded, counted in bytes.
    Weights,
    /// Kernels are compiled.
    Kernels,
    /// Kernels are checked.
    Check,
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Record)]
pub struct LoadProgress {
    /// The stage. It never goes back to an earlier one.
    pub stage: LoadStage,
    /// How much of the stage is done.
    pub done: u64,
    /// The size of the stage, 0 while it is not known.
    pub total: u64,
}

impl From<wglm::LoadProgress> for LoadProgress {
    fn from(progress: wglm::LoadProgress) -> Self {
        let stage = match progress.stage {
            wglm::LoadStage::Weights => LoadStage::Weights,
            wglm::LoadStage::Check => LoadStage::Check,
            _ => LoadStage::Kernels,
        };
        Self { stage, done: progress.done, total: progress.total }
    }
}

/// Receives the progress of a load, on the thread that loads.
#[uniffi::export(with_foreign)]
pub trait LoadListener: Send + Sync {
    /// Called at every step, and at least every tenth of a second.
    fn on_progress(&self, progress: LoadProgress);
}

/// What a file is, and whether it fits the GPU.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Estimate {
    /// The format of most of its bytes.
    pub format: Option<String>,
    /// The number of its weights.
    pub parameters: Option<u64>,
    /// The GPU memory in bytes that the model and one conversation need.
    pub needs: Option<u64>,
    /// The GPU memory of the weights in bytes.
    pub weights: Option<u64>,
    /// The GPU memory of one conversation's cache in bytes.
    pub cache: Option<u64>,
    /// Whether it fits; none if that is unknown.
    pub fits: Option<bool>,
    /// Why it does not fit, cannot run at all, or is unknown; or the condition on which it fits.
    pub why_not: Option<String>,
}

/// Judges a file by its header, without loading anything. An error of the file is `Estimate.why_not`.
///
/// # Errors
/// `InvalidInput` and others if the options name a file that cannot be read.
#[uniffi::export(default(options = None))]
pub fn estimate(path: String, options: Option<LoadOptions>) -> Result<Estimate, WglmError> {
    let options = options.unwrap_or_default();
    let gpu = options.gpu().ok();
    let judged = Judged::of(&Gguf::open(path), &options.library()?, gpu.as_ref());
    Ok(Estimate {
        format: judged.format,
        parameters: judged.parameters,
        needs: judged.needs,
        weights: judged.estimate.as_ref().map(|estimate| estimate.weights),
        cache: judged.estimate.as_ref().map(|estimate| estimate.cache),
        fits: judged.fits,
        why_not: judged.why_not,
    })
}

/// Loads a file on a GPU.
pub fn load(
    file: &Gguf,
    gpu: &Gpu,
    options: &LoadOptions,
    listener: Option<&dyn LoadListener>,
    cancel: &Cancel,
) -> Result<wglm::Model, WglmError> {
    let mut tell = |progress: wglm::LoadProgress| {
        if let Some(listener) = listener {
            listener.on_progress(progress.into());
        }
    };
    Ok(wglm::Model::load_with(file, gpu, &options.library()?, cancel, &mut tell)?)
}
