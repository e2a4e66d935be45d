//! Compiles the schemas of requests, first in a separate process, which can be stopped (`compile_child`), and then
//! here. Agents send the same functions with each request, so the results are cached.

use super::admission::AdmissionQueue;
use super::body::levels;
use super::compile_child::{ARGUMENT, Answer, MEMORY, Question, SECONDS};
use super::constraints::Format;
use super::failure::{EngineName, Failure};
use super::lock;
use super::memory::Size;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use wglm_engine::serde_json;
use wglm_engine::serde_json::Value;
use wglm_engine::{Calls, ChatState, Constraint};

/// How many processes compile at once, and how many requests can wait for one.
const PROCESSES: usize = 2;
const WAITING: usize = 16;

/// The maximum bytes of a request's schemas and functions, as JSON.
const LONGEST: usize = 8 << 20;

/// The maximum number of levels of the same: the parser of JSON refuses more.
const DEEPEST: usize = 127;

/// How the library's errors name a remedy, and the fields in which it is `strict`.
const LENIENT: &str = ", or make the schema lenient";
const WITH_STRICT: [&str; 3] = ["output_config.format", "response_format", "text.format"];

/// The time limit of a process. If the system limits processor time, this is reached only on a very busy machine.
const PATIENCE: Duration = Duration::from_secs(if cfg!(unix) { 30 } else { 2 * SECONDS });

/// The maximum number of verdicts in the cache, and the maximum bytes of their schemas as JSON.
const CACHED: usize = 256;
const CACHED_BYTES: usize = 4 << 20;

pub struct Compiling {
    /// The path of this command; `None` if it cannot be found.
    program: Option<PathBuf>,
    waiting: AdmissionQueue,
    processes: Semaphore,
    /// Two hashes with random keys, so that nobody can construct two questions with the same hashes.
    hashes: [RandomState; 2],
    verdicts: Mutex<Verdicts>,
    pub counts: CompileCounts,
}

#[derive(Debug, Default)]
pub struct CompileCounts {
    /// The numbers of processes that were started, of those that reached a limit, and of questions answered by the
    /// cache.
    pub started: AtomicU64,
    pub ended: AtomicU64,
    pub known: AtomicU64,
}

/// The result of a question: the constraint of the answer, or why the schema is refused.
type Verdict = Result<Option<Constraint>, Failure>;

/// The cache, with the most recently used verdict at the end.
#[derive(Default)]
struct Verdicts {
    known: VecDeque<([u64; 2], Verdict, usize)>,
    bytes: usize,
}

/// The constraints of a request.
pub enum Demand {
    /// They are in the options of the chat.
    Met,
    /// They are still to be compiled.
    Open(Box<Open>),
}

pub struct Open {
    key: [u64; 2],
    question: Vec<u8>,
    schema: Option<Value>,
    /// The field of the request that has the schema.
    field: &'static str,
}

/// The path of this executable. On Linux it is valid even after an update has replaced the file.
fn program() -> Option<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.read_link().is_ok() { Some(running) } else { std::env::current_exe().ok() }
}

impl Compiling {
    /// `limits_clients` says whether a client can have only half of the places of those who wait.
    pub fn new(limits_clients: bool) -> Self {
        Self {
            program: program(),
            waiting: AdmissionQueue::new("for their schemas to be compiled", (PROCESSES, WAITING))
                .shared(limits_clients),
            processes: Semaphore::new(PROCESSES),
            hashes: [RandomState::new(), RandomState::new()],
            verdicts: Mutex::default(),
            counts: CompileCounts::default(),
        }
    }

    /// Adds the constraints of a request to its chat, except those that still have to be compiled.
    /// `field` is the one with the format.
    pub fn demand(
        &self,
        chat: &mut ChatState,
        (format, field): (Format, &'static str),
        calls: Calls,
    ) -> Result<Demand, Failure> {
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
            return Err(Failure::invalid(format!(
                "the schemas and tools have {found} bytes as JSON; at most {LONGEST} are allowed"
            )));
        }
        // Functions in OpenAI's form have one level more than in the requests of other interfaces.
        let found = levels(&text);
        if found > DEEPEST {
            return Err(Failure::invalid(format!(
                "the schemas and tools have {found} levels as JSON; at most {DEEPEST} are allowed"
            )));
        }
        let key = self.hashes.each_ref().map(|hash| hash.hash_one(&text));
        match lock(&self.verdicts).get(key) {
            Some(verdict) => {
                self.counts.known.fetch_add(1, Ordering::Relaxed);
                meet(chat, of_field(verdict, field)?);
                Ok(Demand::Met)
            }
            None => Ok(Demand::Open(Box::new(Open { key, question: text, schema: question.schema, field }))),
        }
    }

    /// Compiles what is still to be compiled, and adds it to the chat. Dropping the future kills the process.
    pub async fn settle(&self, chat: &mut ChatState, demand: Demand) -> Result<(), Failure> {
        let Demand::Open(open) = demand else { return Ok(()) };
        let Open { key, question, schema, field } = *open;
        let bytes = question.len() + schema.as_ref().map_or(0, |schema| Size::of(schema).bytes());
        let waiting = self.waiting.admit()?;
        let closed = |_| Failure::unavailable("the server is not compiling schemas any more", 1);
        let process = self.processes.acquire().await.map_err(closed)?;
        // Another request may have compiled the same meanwhile.
        let known = lock(&self.verdicts).get(key);
        let verdict = match known {
            Some(verdict) => verdict,
            None => {
                let verdict = self.compiled(question).await?.map(|()| schema.map(Constraint::of_checked_schema));
                lock(&self.verdicts).insert(key, verdict.clone(), bytes);
                verdict
            }
        };
        drop((process, waiting));
        meet(chat, of_field(verdict, field)?);
        Ok(())
    }

    /// Compiles a question in a process. The inner result is whether the schema is accepted. The outer errors are
    /// failures that the schema may not have caused; they are not cached.
    async fn compiled(&self, question: Vec<u8>) -> Result<Result<(), Failure>, Failure> {
        let Some(program) = &self.program else { return here(question).await };
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        let output = match tokio::time::timeout(PATIENCE, ask(program, &question)).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                tracing::warn!("schemas are compiled in the server itself because {} cannot be run", program.display());
                return here(question).await;
            }
            Ok(Err(_)) => return Err(Failure::unavailable("cannot start the process that compiles schemas", 2)),
            Err(_) => {
                self.counts.ended.fetch_add(1, Ordering::Relaxed);
                return Err(too_much());
            }
        };
        let answer = output.status.success().then(|| serde_json::from_slice::<Answer>(&output.stdout).ok()).flatten();
        Ok(match answer {
            Some(Answer { refused: None }) => Ok(()),
            Some(Answer { refused: Some(why) }) => Err(refused(why)),
            // Something else killed it, perhaps because the system ran out of memory: the schema may be fine.
            None if was_killed(&output) => {
                return Err(Failure::unavailable("the process that compiles schemas was killed", 2));
            }
            None => {
                self.counts.ended.fetch_add(1, Ordering::Relaxed);
                Err(too_much())
            }
        })
    }
}

/// The failure for a refused schema, which does not name the field yet: other requests may have the same elsewhere.
fn refused(why: String) -> Failure {
    Failure::of_engine(EngineName::Argument("constraint"), why)
}

/// The verdict for the schema in this field. The remedy is that of the field, if it has one.
fn of_field(verdict: Verdict, field: &str) -> Verdict {
    verdict.map_err(|failure| {
        if failure.engine_name.is_none() {
            return failure; // for all schemas and tools together
        }
        let remedy = if WITH_STRICT.contains(&field) { ", or set \"strict\": false" } else { "" };
        let failure = failure.with_name(|_| Some(field.to_owned()));
        Failure { message: failure.message.replace(LENIENT, remedy), ..failure }
    })
}

fn meet(chat: &mut ChatState, constraint: Option<Constraint>) {
    chat.options.constraint = constraint.or(chat.options.constraint.take());
}

/// Whether a process was killed, and not at one of its limits.
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

/// Asks a process. Dropping the future kills it.
async fn ask(program: &PathBuf, question: &[u8]) -> std::io::Result<Output> {
    let mut command = Command::new(program);
    command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let send = async {
        if let Some(mut stdin) = stdin {
            // If the process has ended, its status says why.
            let _ = stdin.write_all(question).await;
        }
    };
    let ((), output) = tokio::join!(send, child.wait_with_output());
    output
}

/// Compiles within the limits of the library where no process can be started.
async fn here(question: Vec<u8>) -> Result<Result<(), Failure>, Failure> {
    let compile = move || {
        let Question { schema, .. } =
            serde_json::from_slice(&question).map_err(|error| Failure::invalid(error.to_string()))?;
        let compiled = schema.map_or(Ok(()), |schema| Constraint::json_schema(schema).map(drop));
        Ok(compiled.map_err(|error| refused(error.to_string())))
    };
    let lost = |_| Failure::unavailable("the thread that compiles schemas failed", 2);
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

    fn insert(&mut self, key: [u64; 2], verdict: Verdict, bytes: usize) {
        // A verdict without a constraint is short.
        let bytes = if matches!(verdict, Ok(Some(_))) { bytes } else { 0 };
        self.bytes += bytes;
        self.known.push_back((key, verdict, bytes));
        while self.known.len() > CACHED || self.bytes > CACHED_BYTES {
            let Some((.., bytes)) = self.known.pop_front() else { break };
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        CACHED, CACHED_BYTES, Calls, Compiling, DEEPEST, Demand, Failure, Format, LENIENT, Question, Verdicts,
    };
    use super::{of_field, refused, too_much};
    use wglm_engine::serde_json::{self, Value, json};
    use wglm_engine::{ChatState, Constraint};

    /// The process that compiles cannot read deeper questions, which would look like too much work.
    #[test]
    fn deep_tools_are_refused_for_their_depth() {
        let compiling = Compiling::new(true);
        let demand = |depth: usize| {
            let parameters = (0..depth).fold(json!({}), |inner, _| json!({"not": inner}));
            let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
            let mut chat = ChatState { tools: vec![tool], ..ChatState::default() };
            compiling.demand(&mut chat, (Format::Text, "response_format"), Calls::Auto)
        };
        let open = demand(DEEPEST - 5).ok();
        let read = |demand| match demand {
            Demand::Open(open) => serde_json::from_slice::<Question>(&open.question).ok(),
            Demand::Met => None,
        };
        assert!(open.and_then(read).is_some());
        let refused = demand(DEEPEST - 4).err().map(|failure| failure.message);
        let wanted = "the schemas and tools have 128 levels as JSON; at most 127 are allowed";
        assert_eq!(refused.as_deref(), Some(wanted));
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let is_read = |depth| serde_json::from_str::<Value>(&nested(depth)).is_ok();
        assert_eq!([DEEPEST, DEEPEST + 1].map(is_read), [true, false]);
    }

    /// The library's errors name its own option.
    #[test]
    fn a_refused_schema_has_its_field_and_the_remedy_of_the_field() {
        let schema = json!({"type": "array", "uniqueItems": true});
        let why = Constraint::json_schema(schema).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains(LENIENT), "{why}");
        for (field, remedy) in [("text.format", "remove it, or set \"strict\": false"), ("format", "remove it")] {
            let failure = of_field(Err(refused(why.clone())), field).err();
            let failure = failure.unwrap_or_else(|| Failure::invalid("none"));
            assert!(failure.message.starts_with(&format!("{field}: ")), "{failure:?}");
            assert!(failure.message.ends_with(remedy), "{failure:?}");
            assert_eq!((failure.param.as_deref(), failure.status.as_u16()), (Some(field), 400));
        }
        assert_eq!(of_field(Err(too_much()), "format").err(), Some(too_much()), "which may be because of the tools");
    }

    #[test]
    fn the_cache_is_limited() {
        let mut verdicts = Verdicts::default();
        let with = |at: u64| [at, 0];
        for at in 0..2 * CACHED as u64 {
            verdicts.insert(with(at), Err(Failure::invalid(at.to_string())), 1 << 20);
        }
        assert!(verdicts.get(with(0)).is_none() && verdicts.known.len() == CACHED);
        let latest = with(2 * CACHED as u64 - 1);
        assert!(matches!(verdicts.get(latest), Some(Err(failure)) if failure.message == "511"));
        for at in 1000..1005 {
            verdicts.insert(with(at), Ok(Some(Constraint::json_object())), CACHED_BYTES / 2);
        }
        assert!(verdicts.bytes <= CACHED_BYTES && verdicts.known.len() == 2);
        // The most recently used verdict stays.
        assert!(verdicts.get(with(1003)).is_some());
        verdicts.insert(with(1), Ok(Some(Constraint::json_object())), 1);
        assert!(verdicts.get(with(1003)).is_some() && verdicts.get(with(1004)).is_none());
        // A verdict that is larger than the cache is not cached.
        verdicts.insert(with(2), Ok(Some(Constraint::json_object())), CACHED_BYTES + 1);
        assert!(verdicts.known.is_empty() && verdicts.bytes == 0);
    }
}
