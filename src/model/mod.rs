//! GLM-4.7-Flash: its hyper-parameters, its weights, and the way of a token, or of a chunk of them, through it.
//!
//! Everything is read from the file's metadata. The graph (`token_plan`, `attention`, `moe`, and `batch_plan`,
//! `batch_attention`, `batch_moe` of chunks) is a straight tape over the plan builder and knows tensors by name and
//! shape only.

mod arithmetic;
mod attention;
mod batch_plan;
mod check;
mod config;
mod estimate;
mod feed_forward;
mod in_place;
mod load;
mod moe;
mod options;
mod planner;
mod progress;
mod prompt;
mod rows;
mod sampling_plan;
mod shaders;
mod state;
mod sums;
mod token_plan;
mod upload;
mod upload_pieces;
mod verdict;
mod verify;
mod weights;

pub use arithmetic::usual_arithmetic;
pub use attention::CacheShape;
pub(crate) use batch_plan::FEW_TOKENS;
pub use batch_plan::{BatchPlan, BatchShape, Outputs, plan_batch};
pub use config::{Config, Experts, RopeScaling};
pub use estimate::{Estimate, Fit};
pub use load::{Model, recommended_sampling};
pub use options::{Altered, LoadOptions};
pub use progress::{Progress, Stage};
pub use prompt::PromptOptions;
pub use sampling_plan::{SamplingPlan, plan_sampling};
pub use shaders::Shaders;
pub use state::State;
pub use token_plan::{SamplingSteps, TokenPlan, plan_token};
pub use verdict::{Check, Verdict, Without};
