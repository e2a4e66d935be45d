//! Tests the server as its clients see it: a process, connections, and their bytes.
//!
//! Everything runs on the demonstration model. Clients that others wrote are in tests/clients.

mod access;
mod alive;
mod anthropic;
mod bodies;
mod calls;
mod client;
mod constrained;
mod continued;
mod embeddings;
mod ending;
mod endless;
mod http;
mod limits;
mod llama;
mod losing;
mod memory;
mod models;
mod ollama;
mod openai;
mod page;
#[cfg(target_os = "linux")]
mod processes;
mod rerank;
mod responses;
mod schemas;
mod scoring;
mod sharing;
mod storing;
mod together;
mod unmet;

use client::{Answer, ask};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The answer of llama.cpp to this question at temperature 0 (tests/fixtures/fable, dialog1).
const QUESTION: &str = "What is seven plus five?";
const THOUGHT: &str = "7 plus 5 is 12.";
const ANSWER: &str = "Seven plus five is twelve.";

/// How long a test waits for what should happen soon.
const SOON: Duration = Duration::from_secs(60);

/// A server that ends when the value is dropped.
struct Serving {
    process: Child,
    address: String,
}

impl Serving {
    /// Starts a server with more arguments and waits until it has loaded its model.
    fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// The same with environment variables.
    fn start_with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let serving = Self::spawn(Self::command(args).envs(variables.iter().copied()));
        wait_for("the model", || serving.get("/health").status == 200);
        serving
    }

    /// Starts a server whose context a fast GPU, too, takes many seconds to fill: for [endless](Self::endless) replies.
    fn start_long(args: &[&str]) -> Self {
        Self::start(&[&["-c", "65536"], args].concat())
    }

    /// The command that starts a server with more arguments. A software driver computes prompts fastest in parts of 32
    /// tokens.
    fn command(args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wglm"));
        command.args(["serve", "--port", "0"]);
        for usual in [["-ub", "32"], ["-c", "1024"]] {
            command.args(usual.iter().filter(|_| !args.contains(&usual[0])));
        }
        command.args(args);
        command.env_remove("RUST_LOG").env_remove("WGLM_API_KEY").env("NO_COLOR", "1");
        let cache = std::env::temp_dir().join("wglm-tests");
        crate::cli::with_cache(&mut command, &cache);
        #[cfg(unix)]
        crate::cli::heed_signals(&mut command);
        if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
            command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Starts a server, which loads its model meanwhile.
    fn begin(args: &[&str]) -> Self {
        Self::spawn(&mut Self::command(args))
    }

    /// The same for a server that is started with these signals ignored.
    #[cfg(unix)]
    fn begin_ignoring(signals: &str, args: &[&str]) -> Self {
        let mut command = crate::cli::with_shell(Self::command(args), &format!("trap '' {signals}"));
        Self::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at http://").expect(&line).to_owned();
        Self { process, address }
    }

    fn get(&self, path: &str) -> Answer {
        ask(&self.address, "GET", path, &[], b"")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        ask(&self.address, "POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// A metric of `/metrics`.
    fn figure(&self, name: &str) -> u64 {
        figure_in(&self.get("/metrics").text(), name)
    }

    /// The body of a completion that continues until the context is full.
    fn endless(&self) -> Value {
        let ends = ["<|user|>", "<|endoftext|>", "<|observation|>", "<|assistant|>", "<|system|>"];
        let tokens = self.post("/tokenize", &json!({"content": ends.concat()})).json()["tokens"].clone();
        let bias: Vec<Value> = tokens.as_array().unwrap().iter().map(|token| json!([token, false])).collect();
        json!({"prompt": "Once upon a time", "max_tokens": -1, "temperature": 0, "stream": true, "logit_bias": bias})
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A metric in the text of `/metrics`.
fn figure_in(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("wglm_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// A server that tests share.
fn shared() -> Arc<Serving> {
    static SHARED: OnceLock<Arc<Serving>> = OnceLock::new();
    shared_in(&SHARED, &["--max-choices", "4"])
}

/// The server in `shared`, which the first test that needs it starts with these arguments.
fn shared_in(shared: &OnceLock<Arc<Serving>>, args: &[&str]) -> Arc<Serving> {
    let begin = || {
        let serving = Serving::start(args);
        end_with_the_tests(serving.process.id());
        Arc::new(serving)
    };
    shared.get_or_init(begin).clone()
}

/// Ends a process once this one has ended, which drops nothing that is static: a shell waits for the end of its input.
fn end_with_the_tests(process: u32) {
    static SHELLS: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    let ends = format!("read -r line; kill {process}");
    let shell = Command::new("sh").args(["-c", &ends]).stdin(Stdio::piped()).spawn().unwrap();
    SHELLS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(shell);
}

/// Waits until a condition holds.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < SOON, "{what}: not after {SOON:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The body of a chat about the question whose answer is known.
fn question() -> Value {
    json!({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0})
}
