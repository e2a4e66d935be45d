//! GLM-4.7-Flash and models of its architecture: their hyper-parameters, their weights, and how a batch of tokens
//! passes through them.
//!
//! Everything is read from the file's metadata. A load makes the model's weights from the tensors of the file
//! (`weights`). The graph (`graph`, `attention`, `moe`) is straight-line code over these and the plan builder, and
//! knows neither the file nor the names of tensors.

mod arithmetic;
mod attention;
mod batch_plan;
mod batch_writer;
mod check;
mod config;
mod draft_plan;
mod estimate;
mod graph;
mod in_place;
mod kernel_selection;
mod load;
mod moe;
mod options;
mod planner;
mod progress;
mod prompt;
mod rope;
mod rows;
mod sampling_plan;
mod shaders;
mod sums;
mod tuning;
mod upload;
mod upload_pieces;
mod verdict;
mod verify;
mod weight_table;
mod weights;

pub use arithmetic::usual_arithmetic;
pub use attention::CacheShape;
pub use batch_plan::{BatchPlan, BatchShape, Head, Outputs, plan_batch, plan_token};
pub(crate) use batch_plan::{FEW_TOKENS, most_drafts, most_sequences, plan_alone, sampled_bytes};
pub use batch_writer::BatchWriter;
pub(crate) use check::CheckedBatch;
pub use config::{Config, Experts};
pub(crate) use draft_plan::no_block;
pub use draft_plan::{DraftInputs, DraftPlan, Drafting, plan_drafted_rows, plan_drafting};
pub use estimate::{Estimate, Fit};
pub use load::{Model, recommended_sampling};
pub use options::{Altered, DriverTimeouts, LoadOptions, LoadOverrides};
pub use progress::{LoadProgress, LoadStage};
pub use prompt::PromptOptions;
pub use rope::{RopeScaling, Yarn};
pub use sampling_plan::{SamplingPlan, SamplingSteps, plan_sampling};
pub use shaders::Shaders;
pub use tuning::{Comparison, Figure, Outcome, Trial, Tuning, TuningSubject};
pub use verdict::Check;
pub use weights::ModelWeights;
