//! What went wrong, on stderr, and which options help: the library, which has no options, says that in general.

use super::output;
use wglm::Error;

/// Tells an error in one sentence, and what helps in another if that is known.
pub fn tell(error: &anyhow::Error) {
    output::note(format_args!("error: {error:#}"));
    hint(error).into_iter().for_each(|hint| output::note(format_args!("hint: {hint}")));
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    match error.chain().find_map(|cause| cause.downcast_ref())? {
        Error::OutOfMemory { .. } | Error::NoResult | Error::TooLarge { .. } => {
            Some("-c sets the tokens of context, -ub those of a prompt that are computed together")
        }
        Error::ContextFull { .. } => Some("-c sets the tokens of context"),
        Error::Argument { argument: "backend", .. } => Some("--backend or the variable WGPU_BACKEND sets it"),
        Error::Argument { argument: "power", .. } => Some("the variable WGPU_POWER_PREF sets it"),
        Error::NoAdapter { .. } => {
            Some("--gpu or the variable WGPU_ADAPTER_NAME names one, --backend or WGPU_BACKEND a backend")
        }
        Error::Unsupported { what, .. } if what == "timing" => Some("`wglm devices` lists adapters that can time"),
        _ => None,
    }
}
