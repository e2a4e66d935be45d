//! Runs a process under limits, and passes on its output line by line as it arrives.

use std::fmt;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In total.
    pub whole: Duration,
    /// Without output.
    pub silence: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Well,
    /// With this exit status.
    Failed(i32),
    /// By this signal; 0 if the system does not report it.
    Crashed(i32),
    /// Killed, because it wrote nothing for this many seconds.
    Silent(u64),
    /// Killed, because it took this many seconds.
    TooLong(u64),
    Interrupted,
}

impl Ended {
    /// Whether the remaining items may be tried in another process.
    pub fn may_go_on(&self) -> bool {
        matches!(self, Self::Crashed(_) | Self::Silent(_) | Self::Failed(PANICKED))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => f.write_str("ended well"),
            Self::Failed(code) => write!(f, "failed with exit status {code}"),
            Self::Crashed(0) => f.write_str("CRASHED"),
            Self::Crashed(signal) => write!(f, "CRASHED (signal {signal})"),
            Self::Silent(seconds) => write!(f, "HUNG: killed after {seconds} s without output"),
            Self::TooLong(seconds) => write!(f, "took too long: killed after {seconds} s"),
            Self::Interrupted => f.write_str("was stopped by Ctrl-C"),
        }
    }
}

/// The exit status of a Rust program that panicked.
const PANICKED: i32 = 101;
/// How often limits and interrupts are checked.
const TICK: Duration = Duration::from_millis(50);
/// An incomplete line is passed on after this time without more output: the machine may be about to freeze.
const UNFINISHED: Duration = Duration::from_secs(1);
/// How long a killed process may take to end. A process that a driver holds in the kernel is abandoned.
const DYING: Duration = Duration::from_secs(5);

/// Runs a process to its end. `line` receives the lines of stdout and stderr.
pub fn run(
    mut command: Command,
    limits: Limits,
    interrupted: &dyn Fn() -> bool,
    line: &mut dyn FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (sender, receiver) = channel();
    let started = child.stdout.take().map(|out| read(out, 0, sender.clone())).transpose();
    let started = started.and(child.stderr.take().map(|err| read(err, 1, sender)).transpose());
    let ended =
        started.map_err(anyhow::Error::from).and_then(|_| follow(&mut child, &receiver, limits, interrupted, line));
    if ended.is_err() {
        kill(&mut child);
    }
    ended
}

/// Reads a stream on a thread of its own, which ends with the stream.
fn read(
    mut stream: impl Read + Send + 'static,
    number: usize,
    sender: Sender<(usize, Vec<u8>)>,
) -> std::io::Result<()> {
    let read = move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if sender.send((number, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    Builder::new().name("report".into()).spawn(read).map(drop)
}

fn follow(
    child: &mut Child,
    receiver: &Receiver<(usize, Vec<u8>)>,
    limits: Limits,
    interrupted: &dyn Fn() -> bool,
    line: &mut dyn FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    let (start, mut last_output, mut lines) = (Instant::now(), Instant::now(), [Lines::default(), Lines::default()]);
    let mut ended = None;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok((number, bytes)) => {
                last_output = Instant::now();
                lines[number].take(&bytes, line)?;
                // Check the limits even if a process writes without end.
                if start.elapsed() <= limits.whole && !interrupted() {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if last_output.elapsed() > UNFINISHED {
            lines.iter_mut().try_for_each(|lines| lines.end(line))?;
        }
        ended = if interrupted() {
            Some(Ended::Interrupted)
        } else if start.elapsed() > limits.whole {
            Some(Ended::TooLong(start.elapsed().as_secs()))
        } else if last_output.elapsed() > limits.silence {
            Some(Ended::Silent(last_output.elapsed().as_secs()))
        } else {
            None
        };
        // A process may have ended although something else holds its streams open.
        if ended.is_some() || last_output.elapsed() > UNFINISHED && child.try_wait()?.is_some() {
            break;
        }
    }
    if let Some(ended) = ended {
        kill(child);
        for (number, bytes) in receiver.try_iter() {
            lines[number].take(&bytes, line)?;
        }
        lines.iter_mut().try_for_each(|lines| lines.end(line))?;
        return Ok(ended);
    }
    lines.iter_mut().try_for_each(|lines| lines.end(line))?;
    let ended = wait(child, limits.silence)?.map_or(Ended::Silent(limits.silence.as_secs()), how);
    // Ctrl-C also ends the process itself, perhaps before this noticed.
    let by_user = interrupted() && ended != Ended::Well;
    Ok(if by_user { Ended::Interrupted } else { ended })
}

/// Waits for a process that has closed its streams.
fn wait(child: &mut Child, most: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < most {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(TICK / 5);
    }
    kill(child);
    Ok(None)
}

fn how(status: ExitStatus) -> Ended {
    match status.code() {
        Some(0) => Ended::Well,
        // After a fault Windows reports a status that is not a program's exit status.
        Some(code) if (0..256).contains(&code) => Ended::Failed(code),
        Some(_) => Ended::Crashed(0),
        None => Ended::Crashed(signal(status)),
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> i32 {
    std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> i32 {
    0
}

fn kill(child: &mut Child) {
    let _ = child.kill(); // it may be gone already
    let start = Instant::now();
    while start.elapsed() < DYING && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(TICK / 5);
    }
}

/// Cuts a stream into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, bytes: &[u8], line: &mut dyn FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.0.extend(bytes);
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let whole: Vec<u8> = self.0.drain(..=end).collect();
            line(String::from_utf8_lossy(&whole).trim_end_matches(['\n', '\r']))?;
        }
        Ok(())
    }

    /// Passes on an incomplete line.
    fn end(&mut self, line: &mut dyn FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        if self.0.is_empty() { Ok(()) } else { line(&String::from_utf8_lossy(&std::mem::take(&mut self.0))) }
    }
}
