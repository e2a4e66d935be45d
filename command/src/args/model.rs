//! Arguments that select the model, the GPU and how the model runs.

use super::choice::{Choice, choice};
use super::numbers::{above_zero, positive, whole};
use clap::{Args, ValueEnum};
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use wglm_engine::instruments::{Fusions, Grouping, LoadOverrides, StepChoice, Tiling, Tilings};
use wglm_engine::tune::Choices;
use wglm_engine::{Arithmetic, Backend, CacheType, Check, GpuOptions, LoadOptions, PromptOptions};

#[derive(Debug, Clone, Args)]
pub struct AdapterArgs {
    /// Use the first GPU whose name contains NAME [env: WGPU_ADAPTER_NAME]
    #[arg(long, value_name = "NAME", help_heading = "GPU")]
    pub gpu: Option<String>,
    /// Use only these backends: metal, vulkan, dx12 [env: WGPU_BACKEND]
    #[arg(long, value_name = "LIST", help_heading = "GPU")]
    pub backend: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct GpuArgs {
    #[command(flatten)]
    pub adapter: AdapterArgs,
    /// Do not use subgroup operations
    #[arg(long, help_heading = "GPU")]
    pub no_subgroups: bool,
}

impl AdapterArgs {
    pub fn options(&self) -> wglm_engine::Result<GpuOptions> {
        let named = GpuOptions {
            adapter: self.gpu.clone(),
            backends: self.backend.as_deref().map(Backend::list).transpose()?,
            checks: false, // in debug builds too: drivers compile shaders without checks in half the time
            ..GpuOptions::default()
        };
        named.or_from_env()
    }
}

impl GpuArgs {
    pub fn options(&self) -> wglm_engine::Result<GpuOptions> {
        Ok(GpuOptions { subgroups: !self.no_subgroups, ..self.adapter.options()? })
    }
}

/// Arithmetic for matrix-vector products.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ArithmeticArg {
    /// int on GPUs that multiply four bytes at a time, float on others
    Auto,
    /// f32 activations
    Float,
    /// Activations quantized to 8 bits
    Int,
}

/// The types of the KV cache.
pub const CACHE_TYPES: &[Choice<CacheType>] = &[
    ("f16", "", CacheType::F16),
    ("f32", "", CacheType::F32),
    ("q8_0", "8-bit integers in blocks of 32 with a scale", CacheType::Q8_0),
];

/// The arguments that a model's memory depends on.
#[derive(Debug, Clone, Args)]
pub struct NeedsArgs {
    /// Context size, in tokens, to estimate memory for; 0 for the model's maximum [default: the model's maximum, up to
    /// 8192]
    #[arg(short, long = "ctx-size", value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub context: Option<usize>,
    /// KV cache type to estimate memory for (also -ctk) [default: f32 if that takes at most 64 MiB, otherwise f16]
    #[arg(long, alias = "cache-type-k", value_name = "TYPE", value_parser = choice(CACHE_TYPES))]
    pub cache_type: Option<CacheType>,
    #[command(flatten)]
    pub gpu: GpuArgs,
}

impl NeedsArgs {
    /// The options for judging a model.
    pub fn options(&self) -> LoadOptions {
        LoadOptions { context: self.context, cache: self.cache_type, ..LoadOptions::default() }
    }
}

/// The heading in the help for rarely needed options.
const TUNING: &str = "Performance and debugging";

#[derive(Debug, Clone, Args)]
pub struct FileArgs {
    /// Model file (GGUF), or a name that `wglm models` lists [default: the demonstration model]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// File of the model's multi-token-prediction block, if it is separate (also -md)
    #[arg(long, alias = "spec-draft-model", value_name = "FILE", help_heading = "Model")]
    pub model_draft: Option<PathBuf>,
    /// Context size in tokens; 0 for the model's maximum [default: the model's maximum, at most 8192]
    #[arg(short, long = "ctx-size", value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>, help_heading = "Model")]
    pub context: Option<usize>,
    /// KV cache type (also -ctk) [default: f32 if that takes at most 64 MiB, otherwise f16]
    #[arg(long, alias = "cache-type-k", value_name = "TYPE", value_parser = choice(CACHE_TYPES), help_heading = "Model")]
    pub cache_type: Option<CacheType>,
    /// Prompt batch size in tokens, up to 4096; 1 computes them one by one (also -ub) [default: the result of `wglm
    /// tune`, or 512, or more if memory allows]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = together, help_heading = TUNING)]
    pub ubatch_size: Option<usize>,
    /// Target GPU time per submission of a prompt, in ms
    #[arg(long, value_name = "N", default_value_t = PromptOptions::default().limit.as_millis() as u64, allow_negative_numbers = true, value_parser = positive::<u64>, help_heading = TUNING)]
    pub submission_ms: u64,
    /// Arithmetic for matrix-vector products
    #[arg(long, value_name = "KIND", default_value = "auto", help_heading = TUNING)]
    pub arithmetic: ArithmeticArg,
    /// Use f32, f16 and bf16 weights in place, from the mapped file (Metal only; not yet tested on a Mac)
    #[arg(long, help_heading = TUNING)]
    pub zero_copy: bool,
    /// Override kernel tiling (benchmarking): a list of STEP[@ROWS]=LANESxROWSxWORKGROUP[xCOLUMNS][d], e.g.
    /// moe.down=32x1x512 or, for plans of 4 to 7 rows, moe.down@4-7=32x2x512; with a d at the end, as in 32x4x64d,
    /// lanes read activations directly instead of staging them in workgroup memory
    #[arg(long, env = "WGLM_TILING", hide_env_values = true, value_name = "LIST", value_parser = tilings, help_heading = TUNING)]
    pub tiling: Option<TilingList>,
    /// In batches of FROM rows or more, decode weights once for up to SLOTS of the rows that selected the same expert,
    /// and for up to ROWS rows in other products (benchmarking, int8 only). SLOTS is 1, 2, 4 or 8 and ROWS 2, 4 or 8;
    /// 0 or off: one row at a time [default: 9x8x8]
    #[arg(long, value_name = "FROMxSLOTSxROWS|off", value_parser = grouping, help_heading = TUNING)]
    pub grouping: Option<Grouping>,
    /// Table of kernel tilings (benchmarking) [default: the GPU's own]
    #[arg(long, value_name = "TABLE", value_parser = choice(TABLES), help_heading = TUNING)]
    pub tiling_table: Option<Tilings>,
    /// Disable these fusions (debugging): all, or a list of norm, latent, cache, absorb, merge, round, experts, route
    #[arg(long, env = "WGLM_UNFUSE", hide_env_values = true, value_name = "LIST", value_parser = fusions, help_heading = TUNING)]
    pub unfuse: Option<Fusions>,
}

/// The value of `--tiling`.
#[derive(Debug, Clone, Default)]
pub struct TilingList(Vec<StepChoice<Tiling>>);

/// The form of a tiling.
const TILING: &str = "expected STEP=LANESxROWSxWORKGROUP or STEP=LANESx1xWORKGROUPxCOLUMNS, lanes and workgroup powers of \
                      two, workgroup 64 to 1024, 1 to 4 rows or columns, and a d at the end if lanes read activations directly, as \
                      in 32x4x64d; STEP@ROWS for plans of some rows, as in moe.down@4-7";

/// Parses a list of tilings. An empty list is valid, because the environment variable may be empty.
fn tilings(list: &str) -> Result<TilingList, String> {
    let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
    let tilings = items.map(str::parse).collect::<Result<_, wglm_engine::Error>>();
    tilings.map(TilingList).map_err(|_| TILING.to_owned())
}

fn grouping(text: &str) -> Result<Grouping, String> {
    text.parse().map_err(accepted)
}

/// Tables of tilings.
const TABLES: &[Choice<Tilings>] = &[
    ("nvidia", "Measured on an NVIDIA H100", Tilings::Nvidia),
    ("apple", "From llama.cpp's Metal kernels", Tilings::Apple),
];

fn fusions(list: &str) -> Result<Fusions, String> {
    Fusions::without(list).map_err(accepted)
}

/// The expectation in an error. clap adds the argument's name and the value.
fn accepted(error: wglm_engine::Error) -> String {
    match error {
        wglm_engine::Error::Argument { expected, .. } => format!("expected {expected}"),
        other => other.to_string(),
    }
}

/// Parses a prompt batch size, which is limited to the sizes of plans.
fn together(text: &str) -> Result<usize, String> {
    let range = 1..=PromptOptions::MAX_CHUNK;
    let count = text.parse().ok().filter(|count| range.contains(count));
    count.ok_or_else(|| format!("expected a number from 1 to {}", PromptOptions::MAX_CHUNK))
}

impl FileArgs {
    pub fn options(&self) -> LoadOptions {
        let arithmetic = match self.arithmetic {
            ArithmeticArg::Auto => None,
            ArithmeticArg::Float => Some(Arithmetic::Float),
            ArithmeticArg::Int => Some(Arithmetic::Int),
        };
        let tilings = self.tiling.clone().unwrap_or_default().0;
        let choices = Choices { table: self.tiling_table, tilings, grouping: self.grouping, ..Choices::default() };
        let overrides = LoadOverrides { fusions: self.unfuse.unwrap_or_default(), choices, ..LoadOverrides::default() };
        let prompt = PromptOptions { chunk: self.ubatch_size, limit: Duration::from_millis(self.submission_ms) };
        let Self { context, cache_type: cache, zero_copy, .. } = *self;
        LoadOptions { context, cache, arithmetic, overrides, zero_copy, prompt, ..LoadOptions::default() }
    }
}

#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Use the choices in FILE, which `wglm tune` wrote; off for none [default: the result of `wglm tune` for this GPU
    /// and model]
    #[arg(long, value_name = "FILE|off", help_heading = TUNING)]
    pub tuning: Option<TuningArg>,
    /// Tune at the first start as on an unmeasured GPU, for this many seconds; for tests, which run without a GPU
    #[arg(long, value_name = "SECONDS", hide = true, value_parser = above_zero)]
    pub first_tuning: Option<f32>,
    /// Check GPU results against the CPU at load, and avoid wrong kernels
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = choice(CHECKS), help_heading = TUNING)]
    pub check: Check,
}

impl ModelArgs {
    /// Whether no option affects the choices of a tuning or its measurements.
    pub fn is_usual(&self) -> bool {
        let FileArgs { ubatch_size, arithmetic, tiling, tiling_table, unfuse, grouping, .. } = &self.file;
        let usual = ubatch_size.is_none() && tiling_table.is_none() && unfuse.is_none() && grouping.is_none();
        let tilings = tiling.as_ref().is_none_or(|list| list.0.is_empty());
        usual && tilings && matches!(arithmetic, ArithmeticArg::Auto) && !self.gpu.no_subgroups
    }
}

/// The value of `--tuning`.
#[derive(Debug, Clone)]
pub enum TuningArg {
    Off,
    File(PathBuf),
}

impl FromStr for TuningArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "off" { Self::Off } else { Self::File(PathBuf::from(text)) })
    }
}

/// When kernels are checked as a model is loaded.
const CHECKS: &[Choice<Check>] = &[
    ("auto", "On the first load with this model, GPU, driver and version", Check::Auto),
    ("always", "On every load", Check::Always),
    ("never", "Not at all", Check::Never),
];
