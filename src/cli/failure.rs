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
        Error::Unsupported { what, .. } if what == "timing" => Some("`wglm devices` lists adapters that can time"),
        _ => None,
    }
}
