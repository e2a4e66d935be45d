//! The machine that kernels run on: a process that is controlled through pipes (shim/machine.cpp).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// How a machine behaves where Metal's specification allows several results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Liberties {
    /// The seed of a random order of lanes and simdgroups between barriers; by default the order depends on the level.
    pub order: Option<u64>,
    /// How functions err.
    pub errors: Errors,
}

/// How functions err whose results Metal specifies within bounds. Kernels call the machine for them at `Level::Plain`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Errors {
    /// Results are rounded correctly.
    #[default]
    None,
    /// Results are the lowest allowed values.
    Low,
    /// Results are the highest allowed values.
    High,
    /// Results are either, depending on a hash of the seed and the exact value.
    Either(u64),
}

/// The seed of random orders: that of the environment variable `WGLM_LANE_SEED`, or a new one each time. It is printed.
pub fn lane_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let asked = std::env::var("WGLM_LANE_SEED").ok().map(|seed| seed.parse().expect("WGLM_LANE_SEED: a number"));
        let seed = asked.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("lanes run in a random order: WGLM_LANE_SEED={seed} repeats it");
        seed
    })
}

pub struct Machine {
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    buffers: usize,
}

/// The index of a buffer of a machine.
pub type Buffer = usize;

impl Machine {
    /// Starts a program to run its kernels.
    pub fn start(program: &Path, liberties: Liberties) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        liberties.order.iter().for_each(|seed| _ = command.env("MACHINE_ORDER", seed.to_string()));
        match liberties.errors {
            Errors::None => {}
            Errors::Low => _ = command.env("MACHINE_ERRORS", "low"),
            Errors::High => _ = command.env("MACHINE_ERRORS", "high"),
            Errors::Either(seed) => _ = command.env("MACHINE_ERRORS", seed.to_string()),
        }
        let spawned = command.spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        let requests = BufWriter::new(child.stdin.take().unwrap());
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, requests, answers, buffers: 0 }
    }

    /// A buffer with some content.
    pub fn buffer(&mut self, content: &[u8]) -> Result<Buffer, String> {
        self.send(b'b', &[content.len() as u64], &[])?;
        self.buffers += 1;
        self.write(self.buffers - 1, content)?;
        Ok(self.buffers - 1)
    }

    pub fn write(&mut self, buffer: Buffer, content: &[u8]) -> Result<(), String> {
        self.send(b'w', &[buffer as u64, 0, content.len() as u64], content)
    }

    /// The first bytes of a buffer, after everything that was requested so far.
    pub fn read(&mut self, buffer: Buffer, bytes: usize) -> Result<Vec<u8>, String> {
        self.send(b'r', &[buffer as u64, 0, bytes as u64], &[])?;
        let mut content = vec![0; bytes];
        let sent = self.requests.flush();
        let mut answer = String::new();
        let got = sent.and_then(|()| self.answers.read_line(&mut answer)).is_ok() && answer == "DATA\n";
        if got && self.answers.read_exact(&mut content).is_ok() { Ok(content) } else { Err(self.fault(answer)) }
    }

    /// Runs a kernel with buffers by their numbers, each from a byte on.
    pub fn dispatch(&mut self, kernel: &str, grid: [u32; 3], bound: &[(Buffer, u64)]) -> Result<(), String> {
        self.send(b'd', &[kernel.len() as u64], kernel.as_bytes())?;
        let mut numbers: Vec<u64> = grid.map(u64::from).to_vec();
        numbers.push(bound.len() as u64);
        numbers.extend(bound.iter().flat_map(|(buffer, offset)| [*buffer as u64, *offset]));
        self.numbers(&numbers).map_err(|_| self.fault(String::new()))
    }

    fn send(&mut self, request: u8, numbers: &[u64], content: &[u8]) -> Result<(), String> {
        let sent = self.requests.write_all(&[request]).and_then(|()| self.numbers(numbers));
        sent.and_then(|()| self.requests.write_all(content)).map_err(|_| self.fault(String::new()))
    }

    fn numbers(&mut self, numbers: &[u64]) -> std::io::Result<()> {
        numbers.iter().try_for_each(|number| self.requests.write_all(&number.to_le_bytes()))
    }

    /// The messages of the process before it ended.
    fn fault(&mut self, mut said: String) -> String {
        let _ = self.answers.read_to_string(&mut said);
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        match said.strip_prefix("FAULT ") {
            Some(said) => said.trim().replace('\n', " "),
            None => format!("the machine ended ({status}): {said}"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
