//! Reports errors on stderr, and the options that help. The library has no options, so its own advice is more general.

use super::output;
use std::fmt;
use std::process::ExitCode;
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
        Error::ContextFull { .. } => "-c sets a larger context",
        Error::WrongKernel { fault: KernelFault::RunsForever, verdict, .. } if !verdict.replaced().is_empty() => {
            "run the command again: the result was saved, and the next run avoids this kernel"
        }
        Error::NoModel { name, .. } if name.parse::<ModelName>().is_ok() && cfg!(feature = "download") => {
            return Some(format!(
                "`{command} pull {name}` downloads it; `{command} models` lists what is on this machine"
            ));
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
