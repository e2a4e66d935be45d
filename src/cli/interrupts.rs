//! Ctrl-C, and on Unix the signals that end a program. A press is obeyed at once, whatever the program is doing.
//!
//! A driver may keep the thread that compiles shaders for seconds, and nobody can take it away from there. So where a
//! press ends the program, the thread that heard of it ends it, once the others had the time to end by themselves.

use super::terminal;
use anyhow::Context;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wglm::Cancel;

/// As a shell reports a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// How long what is being done may take to stop by itself, where a press ends the program.
const GRACE: Duration = Duration::from_millis(300);

/// What a press ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInterrupt {
    /// The program, after a grace.
    ExitAfterGrace,
    /// The program, at once: it waits for input, and would not hear.
    ExitNow,
    /// What is being done. A second press ends the program.
    CancelWork,
}

struct InterruptState {
    on_interrupt: OnInterrupt,
    cancel: Cancel,
}

/// One for the process, as signals are.
static STATE: LazyLock<Mutex<InterruptState>> = LazyLock::new(|| {
    Mutex::new(InterruptState { on_interrupt: OnInterrupt::ExitAfterGrace, cancel: Cancel::default() })
});

fn state() -> MutexGuard<'static, InterruptState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins something that a press ends: what is returned hears of presses from now on, and of none before.
pub fn begin(on_interrupt: OnInterrupt) -> Cancel {
    let cancel = Cancel::default();
    *state() = InterruptState { on_interrupt, cancel: cancel.clone() };
    cancel
}

/// What is being done has something to show for: from now on a press ends that alone.
pub fn cancel_work_from_now_on() {
    state().on_interrupt = OnInterrupt::CancelWork;
}

/// Whether Ctrl-C was pressed since the last beginning.
pub fn asked() -> bool {
    state().cancel.is_cancelled()
}

fn pressed() {
    let state = state();
    let again = state.cancel.is_cancelled();
    let on_interrupt = state.on_interrupt;
    state.cancel.cancel();
    drop(state);
    if again || on_interrupt == OnInterrupt::ExitNow {
        terminal::leave(INTERRUPTED);
    }
    if on_interrupt == OnInterrupt::ExitAfterGrace {
        std::thread::sleep(GRACE);
        terminal::leave(INTERRUPTED);
    }
}

/// Listens for Ctrl-C; if `terminal`, also for what ends a program that has changed the terminal. Where the system
/// refuses the thread for that, signals do what they do to any program.
#[cfg(unix)]
pub fn listen(terminal: bool) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let (ready, readied) = std::sync::mpsc::channel();
    let listen = move || {
        let numbers = if terminal { &[SIGINT, SIGTERM, SIGHUP][..] } else { &[SIGINT] };
        let signals = signal_hook::iterator::Signals::new(numbers);
        let mut signals = match signals {
            Ok(signals) => signals,
            Err(error) => return ready.send(Err(error)).unwrap_or_default(),
        };
        ready.send(Ok(())).unwrap_or_default();
        for signal in signals.forever() {
            match signal {
                SIGINT => pressed(),
                other => terminal::leave(u8::try_from(128 + other).unwrap_or(1)),
            }
        }
    };
    match std::thread::Builder::new().name("signals".into()).spawn(listen) {
        Ok(_) => readied.recv().unwrap_or(Ok(())).context("cannot listen for Ctrl-C"),
        Err(error) => {
            tracing::warn!("no thread to listen for Ctrl-C: {error}");
            Ok(())
        }
    }
}

/// Listens for Ctrl-C. What ends a program gives its console back by itself.
#[cfg(not(unix))]
pub fn listen(_: bool) -> anyhow::Result<()> {
    ctrlc::set_handler(pressed).context("cannot listen for Ctrl-C")
}
