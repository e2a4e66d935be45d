//! Compiles the schemas of requests where that can be stopped: first in a process of its own (`compile_child`), and here only
//! what was compiled there. Agents send the same functions with each request, so what came of them is kept.

use super::compile_child::{ARGUMENT, Answer, MEMORY, Question, SECONDS};
use super::constraints::Format;
use super::failure::Failure;
use super::memory::Size;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use wglm::serde_json::{self, Value};
use wglm::{Calls, ChatState, Constraint};

/// How many processes compile at a time, and how many requests may wait for one.
const PROCESSES: usize = 2;
const WAITING: usize = 16;

/// The most bytes of a request's schemas and functions, as JSON.
const LONGEST: usize = 8 << 20;

/// How long a process is waited for. Where the system limits its time on a processor, that is for a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(if cfg!(unix) { 30 } else { 2 * SECONDS });

/// How many verdicts are kept, and the most bytes of their schemas as JSON.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 4 << 20;

/// Compiles schemas, and knows what came of those before.
pub struct Compiling {
    /// The path of this command; `None` if it cannot be found.
    program: Option<PathBuf>,
    waiting: Arc<Semaphore>,
    processes: Semaphore,
    /// Two hashes with keys that nobody else knows, so that nobody can make two questions look the same.
    hashes: [RandomState; 2],
    verdicts: Mutex<Verdicts>,
    pub counts: CompileCounts,
}

#[derive(Debug, Default)]
pub struct CompileCounts {
    /// Processes that were started, of them those that ended at a limit, and questions that needed none.
    pub started: AtomicU64,
    pub ended: AtomicU64,
    pub known: AtomicU64,
}

/// What came of a question: the constraint of the answer, or why the schema is refused.
type Verdict = Result<Option<Constraint>, Failure>;

/// The latest at the end.
#[derive(Default)]
struct Verdicts {
    known: VecDeque<([u64; 2], Verdict, usize)>,
    bytes: usize,
}

/// What a request demands of the form of its reply.
pub enum Demand {
    /// It was compiled before, or there is nothing to compile.
    Met,
    Open(Box<Open>),
}

pub struct Open {
    key: [u64; 2],
    question: Vec<u8>,
    schema: Option<Value>,
}

impl Default for Compiling {
    fn default() -> Self {
        Self {
            program: program(),
            waiting: Arc::new(Semaphore::new(PROCESSES + WAITING)),
            processes: Semaphore::new(PROCESSES),
            hashes: [RandomState::new(), RandomState::new()],
            verdicts: Mutex::default(),
            counts: CompileCounts::default(),
        }
    }
}

/// This command. On Linux it is found even after an update has replaced the file.
fn program() -> Option<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.read_link().is_ok() { Some(running) } else { std::env::current_exe().ok() }
}

impl Compiling {
    /// Has a request demand a form and calls, as far as that is known already.
    ///
    /// # Errors
    /// For a schema that was refused before, and for too many bytes of schemas.
    pub fn demand(&self, chat: &mut ChatState, format: Format, calls: Calls) -> Result<Demand, Failure> {
        chat.options.constraint = (format == Format::Object).then(Constraint::json_object);
        let schema = if let Format::Schema(schema) = format { Some(schema) } else { None };
        let tools = if calls == Calls::None { Vec::new() } else { chat.tools.clone() };
        chat.options.calls = calls;
        if schema.is_none() && tools.is_empty() {
            return Ok(Demand::Met);
        }
        let question = Question { schema, tools };
        let text = serde_json::to_vec(&question).map_err(|error| Failure::invalid(error.to_string()))?;
        if text.len() > LONGEST {
            let found = text.len();
            return Err(Failure::invalid(format!("schemas and tools of {found} bytes; the most are {LONGEST}")));
        }
        let key = self.hashes.each_ref().map(|hash| hash.hash_one(&text));
        match self.verdicts().get(key) {
            Some(verdict) => {
                self.counts.known.fetch_add(1, Ordering::Relaxed);
                meet(chat, verdict?);
                Ok(Demand::Met)
            }
            None => Ok(Demand::Open(Box::new(Open { key, question: text, schema: question.schema }))),
        }
    }

    /// Compiles the schemas of a request that were not compiled before. Dropping the future ends the process.
    ///
    /// # Errors
    /// For a schema that nothing matches, that is not supported, or that takes too much; with status 503 if too many wait.
    pub async fn settle(&self, chat: &mut ChatState, demand: Demand) -> Result<(), Failure> {
        let Demand::Open(open) = demand else { return Ok(()) };
        let Open { key, question, schema } = *open;
        let bytes = question.len() + schema.as_ref().map_or(0, |schema| Size::of(schema).bytes());
        let full = || Failure::unavailable("too many requests wait for their schemas to be compiled", 1);
        let waiting = self.waiting.clone().try_acquire_owned().map_err(|_| full())?;
        let process = self.processes.acquire().await.map_err(|_| full())?;
        // Another request may have asked the same meanwhile.
        let known = self.verdicts().get(key);
        let verdict = match known {
            Some(verdict) => verdict,
            None => {
                let verdict = match self.compiled(question).await? {
                    Ok(()) => Ok(schema.map(Constraint::of_checked_schema)),
                    Err(refused) => Err(refused),
                };
                self.verdicts().keep(key, verdict.clone(), bytes);
                verdict
            }
        };
        drop((process, waiting));
        meet(chat, verdict?);
        Ok(())
    }

    /// Whether a process compiles what a question asks for.
    ///
    /// # Errors
    /// Failures that may not be the schema's fault, and are not kept.
    async fn compiled(&self, question: Vec<u8>) -> Result<Result<(), Failure>, Failure> {
        let Some(program) = &self.program else { return here(question).await };
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        let output = match tokio::time::timeout(PATIENCE, ask(program, &question)).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                tracing::warn!("schemas are compiled in the server itself, since {} cannot be run", program.display());
                return here(question).await;
            }
            Ok(Err(_)) => return Err(Failure::unavailable("no process can be started to compile the schema", 2)),
            Err(_) => {
                self.counts.ended.fetch_add(1, Ordering::Relaxed);
                return Err(too_much());
            }
        };
        let answer = output.status.success().then(|| serde_json::from_slice::<Answer>(&output.stdout).ok()).flatten();
        Ok(match answer {
            Some(Answer { refused: None }) => Ok(()),
            Some(Answer { refused: Some(why) }) => Err(Failure::invalid(why)),
            // It was killed from outside, perhaps because the system ran out of memory: the schema may be fine.
            None if was_killed(&output) => {
                return Err(Failure::unavailable("the process that compiles the schema was ended", 2));
            }
            None => {
                self.counts.ended.fetch_add(1, Ordering::Relaxed);
                Err(too_much())
            }
        })
    }

    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn meet(chat: &mut ChatState, constraint: Option<Constraint>) {
    chat.options.constraint = constraint.or(chat.options.constraint.take());
}

/// Whether a process ended neither by itself nor at one of its limits.
#[cfg(unix)]
fn was_killed(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt;
    output.status.signal() == Some(nix::sys::signal::Signal::SIGKILL as i32)
}

#[cfg(not(unix))]
fn was_killed(_: &Output) -> bool {
    false
}

fn too_much() -> Failure {
    let memory = MEMORY >> 20;
    Failure::invalid(format!(
        "the schemas of the answer or of the tools are too complex: compiling them takes more than {SECONDS} s or {memory} MiB"
    ))
}

/// Asks a process. It ends when this is dropped.
async fn ask(program: &PathBuf, question: &[u8]) -> std::io::Result<Output> {
    let mut command = Command::new(program);
    command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let send = async {
        if let Some(mut stdin) = stdin {
            // One that has ended says so by its status.
            let _ = stdin.write_all(question).await;
        }
    };
    let ((), output) = tokio::join!(send, child.wait_with_output());
    output
}

/// Compiles within the limits of the library, where no process can be started.
async fn here(question: Vec<u8>) -> Result<Result<(), Failure>, Failure> {
    let compile = move || {
        let Question { schema, .. } =
            serde_json::from_slice(&question).map_err(|error| Failure::invalid(error.to_string()))?;
        Ok(schema.map_or(Ok(()), |schema| Constraint::json_schema(schema).map(drop).map_err(Failure::from)))
    };
    let lost = |_| Failure::unavailable("the thread that compiles the schema ended", 2);
    tokio::task::spawn_blocking(compile).await.map_err(lost)?
}

impl Verdicts {
    fn get(&mut self, key: [u64; 2]) -> Option<Verdict> {
        let place = self.known.iter().position(|(known, ..)| *known == key)?;
        let found = self.known.remove(place)?;
        let verdict = found.1.clone();
        self.known.push_back(found);
        Some(verdict)
    }

    fn keep(&mut self, key: [u64; 2], verdict: Verdict, bytes: usize) {
        // A verdict without a constraint takes a sentence.
        let bytes = if matches!(verdict, Ok(Some(_))) { bytes } else { 0 };
        self.bytes += bytes;
        self.known.push_back((key, verdict, bytes));
        while self.known.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some((.., bytes)) = self.known.pop_front() else { break };
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, KEPT, KEPT_BYTES, Verdicts};
    use wglm::Constraint;

    #[test]
    fn verdicts_are_kept_within_bounds() {
        let mut verdicts = Verdicts::default();
        let with = |at: u64| [at, 0];
        for at in 0..2 * KEPT as u64 {
            verdicts.keep(with(at), Err(Failure::invalid(at.to_string())), 1 << 20);
        }
        assert!(verdicts.get(with(0)).is_none() && verdicts.known.len() == KEPT);
        let latest = with(2 * KEPT as u64 - 1);
        assert!(matches!(verdicts.get(latest), Some(Err(failure)) if failure.message == "511"));
        for at in 1000..1005 {
            verdicts.keep(with(at), Ok(Some(Constraint::json_object())), KEPT_BYTES / 2);
        }
        assert!(verdicts.bytes <= KEPT_BYTES && verdicts.known.len() == 2);
        // What was asked for last stays.
        assert!(verdicts.get(with(1003)).is_some());
        verdicts.keep(with(1), Ok(Some(Constraint::json_object())), 1);
        assert!(verdicts.get(with(1003)).is_some() && verdicts.get(with(1004)).is_none());
        // One that is too large by itself is not kept.
        verdicts.keep(with(2), Ok(Some(Constraint::json_object())), KEPT_BYTES + 1);
        assert!(verdicts.known.is_empty() && verdicts.bytes == 0);
    }
}
