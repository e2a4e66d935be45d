//! What the command needs to inspect, predict, measure and report, in addition to the public names: plans and the
//! choices that go into them, kernels and their checks, and the engine's own access to files and the terminal.

#[cfg(feature = "constrain")]
pub use crate::constrain::supported;
pub use crate::error::Size;
pub use crate::files::{Readers, Replacement, replace};
pub use crate::gpu::adapter_details;
pub use crate::kernels::{KERNELS, Kernel};
pub use crate::model::{
    BatchPlan, BatchShape, LoadOverrides, Shaders, plan_batch, plan_token, recommended_sampling, usual_arithmetic,
};
pub use crate::plan::{
    Builder, Cost, Executor, Fusions, Grouping, PAGE, Plan, Step, StepChoice, StepKind, StepLimit, Target, Team,
    Tiling, Tilings,
};
pub use crate::quant::by_id as quant_by_id;
pub use crate::reference::KernelCheck;
pub use crate::session::TokenProfile;
#[cfg(feature = "metal-text")]
pub use crate::shader::metal_text;
pub use crate::shader::{Pipelines, Variant};
pub use crate::tune::candidates::{FEW_CLASSES, tile_candidates, tiling_candidates};
pub use crate::tune::compare::{Compared, compare};
pub use crate::visible::{is_obeyed, visible};

/// The log filter for the engine's warnings about work in the background, such as that of the cache on disk, which no
/// result reports.
pub const BACKGROUND_WARNINGS: &str = "wglm_engine::disk=warn,wglm_engine::scheduler=warn";
