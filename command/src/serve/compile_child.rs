//! The process that first compiles the schemas of a request: the same executable, with limits of its own.
//!
//! A schema that exceeds the limits ends this process and nothing else, and the server compiles only what was compiled
//! here. On Unix the system limits memory and processor time. macOS does not enforce the limit of memory, and Windows
//! has neither; there only the limits of the library apply, and the time after which the server kills the process.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Read;
use std::process::ExitCode;
use wglm_engine::Constraint;

/// The only argument of such a process. It is not a documented option, so help and completions do not show it.
pub const ARGUMENT: &str = "--compile-schemas";

/// The limits of memory for data, in bytes, and of processor time, in seconds.
pub const MEMORY: u64 = 256 << 20;
pub const SECONDS: u64 = 2;

/// The maximum number of characters in a message: a path can be as long as the schema.
const LONGEST: usize = 1000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// The schema of the answer.
    pub schema: Option<Value>,
    /// The functions, with the schemas of their arguments.
    pub tools: Vec<Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Why the schema of the answer is refused. Functions are not refused: their unsupported keywords are ignored.
    pub refused: Option<String>,
}

/// Whether this process was started to compile schemas.
pub fn is_asked() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().is_some_and(|first| first == ARGUMENT) && arguments.next().is_none()
}

/// Reads a question from stdin, and answers it on stdout.
pub fn run() -> ExitCode {
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer() -> anyhow::Result<()> {
    limit()?;
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let Question { schema, tools } = serde_json::from_slice(&text)?;
    drop(text);
    crate::faults::while_compiling(schema.as_ref());
    let refused = schema.and_then(|schema| Constraint::json_schema(schema).err());
    let refused = refused.map(|error| error.to_string().chars().take(LONGEST).collect());
    wglm_engine::instruments::supported(&tools);
    crate::output::say(&serde_json::to_string(&Answer { refused })?)
}

#[cfg(unix)]
fn limit() -> anyhow::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_DATA, MEMORY, MEMORY)?;
    // At the first limit the process gets a signal that names it; at the second it would be killed without a reason.
    setrlimit(Resource::RLIMIT_CPU, SECONDS, SECONDS + 1)?;
    Ok(())
}

#[cfg(not(unix))]
fn limit() -> anyhow::Result<()> {
    Ok(())
}
