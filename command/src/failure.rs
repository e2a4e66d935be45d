//! Reports errors on stderr, and the options that help. The library has no options, so its own advice is more general.

use super::output;
use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::OnceLock;
use wglm_engine::catalog::ModelName;
use wglm_engine::{Error, KernelFault};

/// A mistake in the arguments that is found only when what they name is read. It has the exit status of wrong usage.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

pub fn code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Usage>() { WRONG_USAGE.into() } else { ExitCode::FAILURE }
}

/// The exit status after wrong usage, which is that of clap.
const WRONG_USAGE: u8 = 2;

/// The error as a JSON object, for a command that has no result to print.
pub fn as_json(error: &anyhow::Error) -> serde_json::Value {
    serde_json::json!({ "error": sentence(error), "hint": hint(error) })
}

/// Reports an error in one sentence, and a remedy in another, if one is known.
pub fn tell(error: &anyhow::Error) {
    output::complain(format_args!("error: {}", sentence(error)));
    hint(error).into_iter().for_each(|hint| output::complain(format_args!("hint: {hint}")));
}

/// The error in one sentence. It omits the library's remedy if a hint gives the same one in terms of options.
pub fn sentence(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(Error::ContextFull { needed, context, .. }) if error.chain().count() == 1 => {
            format!("the context is full: {needed} tokens needed, {context} available")
        }
        _ => format!("{error:#}"),
    }
}

/// The context that the loaded model was made for.
static MADE_FOR: OnceLock<usize> = OnceLock::new();

/// Lets hints name the context that the first loaded model was made for, in tokens.
pub fn set_made_for(context: usize) {
    MADE_FOR.get_or_init(|| context);
}

/// What helps against a full context: a larger one, unless the model was made for no larger one.
fn larger(context: usize, made_for: Option<usize>) -> Option<String> {
    match made_for {
        None => Some("-c sets a larger context".to_owned()),
        Some(most) if context < most => Some(format!("-c sets a larger context; the model was made for {most} tokens")),
        Some(_) => None,
    }
}

/// What helps if there is no such model file.
fn missing_file() -> String {
    let command = output::command();
    let pull = if cfg!(feature = "download") {
        format!(", and `{command} pull OWNER/REPO` downloads one")
    } else {
        String::new()
    };
    format!("`{command} models` lists the models on this machine{pull}")
}

/// The options that help against an error, if any do.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    let command = output::command();
    let fixed = match error.chain().find_map(|cause| cause.downcast_ref())? {
        Error::ContextTooLarge { most, .. } => return Some(format!("try -c {most}")),
        Error::OutOfMemory { .. } | Error::NoResult | Error::TooLarge { .. } => {
            "-c sets the context size, -ub the prompt batch size"
        }
        Error::DeviceLost { .. } => {
            "try again; if the GPU is lost again, close other programs or reduce its work: -c sets the context size, -ub \
             the prompt batch size"
        }
        Error::ContextFull { context, .. } => return larger(*context, MADE_FOR.get().copied()),
        Error::WrongKernel { fault: KernelFault::RunsForever, verdict, .. } if !verdict.replaced().is_empty() => {
            "run the command again: the result was saved, and the next run avoids this kernel"
        }
        Error::NoModel { name, .. } if name.parse::<ModelName>().is_ok() && cfg!(feature = "download") => {
            return Some(format!(
                "`{command} pull {name}` downloads it; `{command} models` lists what is on this machine"
            ));
        }
        Error::Io { action: "open", path, reason }
            if reason.kind() == ErrorKind::NotFound && path.extension().is_some_and(|ending| ending == "gguf") =>
        {
            return Some(missing_file());
        }
        Error::NoModel { .. } => return Some(format!("`{command} models` lists what is on this machine")),
        Error::Argument { argument: "backend", .. } => "set it with --backend or WGPU_BACKEND",
        Error::Argument { argument: "power", .. } => "set it with WGPU_POWER_PREF",
        Error::NoAdapter { available, .. } if available != "none" => {
            return Some(format!(
                "--gpu or WGPU_ADAPTER_NAME names a GPU, --backend or WGPU_BACKEND a backend; `{command} devices` lists GPUs"
            ));
        }
        Error::Unsupported { what, .. } if what == "timing" => {
            return Some(format!("`{command} devices` lists GPUs and whether they have timestamps"));
        }
        _ => return None,
    };
    Some(fixed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{hint, larger};
    use std::io::{Error as IoError, ErrorKind};
    use wglm_engine::Error;

    #[test]
    fn a_context_cannot_always_be_larger() {
        assert_eq!(larger(100, None).as_deref(), Some("-c sets a larger context"));
        let told = larger(100, Some(4096));
        assert_eq!(told.as_deref(), Some("-c sets a larger context; the model was made for 4096 tokens"));
        assert_eq!(larger(4096, Some(4096)), None);
    }

    #[test]
    fn a_missing_model_file_has_a_remedy() {
        let missing = |path: &str, kind: ErrorKind| {
            let reason = IoError::from(kind).into();
            hint(&Error::Io { action: "open", path: path.into(), reason }.into())
        };
        let told = missing("GLM-4.7-Flash-Q4_0.gguf", ErrorKind::NotFound);
        assert!(told.is_some_and(|told| told.contains(" models` lists the models on this machine")));
        assert_eq!(missing("a.gguf", ErrorKind::PermissionDenied), None);
        assert_eq!(missing("cache", ErrorKind::NotFound), None);
    }
}
