//! Handles Ctrl-C, and on Unix the signals that end a program. A press takes effect at once, whatever the program is
//! doing.
//!
//! A driver can keep the thread that compiles shaders busy for seconds, and nothing can interrupt it. If a press is to
//! end the program, the thread that receives the signal therefore ends the process itself, after giving the other
//! threads a short time to end on their own.
//!
//! A signal that was ignored when the program started stays ignored: a shell does that for programs in the background
//! of a script, and `nohup` for SIGHUP.

use super::terminal;
use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wglm_engine::Cancel;

/// The exit status of a program ended by Ctrl-C, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// How long the current work may take to stop before the process ends.
const GRACE: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInterrupt {
    /// Cancels the current work, and ends the process after a short time.
    ExitAfterGrace,
    /// Ends the process at once. For times when the program waits for input and could not notice a cancellation.
    ExitNow,
    /// Cancels the current work. A second press ends the process.
    CancelWork,
}

struct InterruptState {
    on_interrupt: OnInterrupt,
    cancel: Cancel,
}

/// One state for the process, since signals are delivered to the process.
static STATE: LazyLock<Mutex<InterruptState>> = LazyLock::new(|| {
    Mutex::new(InterruptState { on_interrupt: OnInterrupt::ExitAfterGrace, cancel: Cancel::default() })
});

fn state() -> MutexGuard<'static, InterruptState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

static LISTENING: AtomicBool = AtomicBool::new(false);

/// What to print if Ctrl-C ends the process.
enum ExitMessage {
    Nothing,
    Waiting(Box<dyn FnOnce() + Send>),
    /// The main thread prints something instead.
    Replaced,
    /// The process is ending.
    Said,
}

static EXIT_MESSAGE: Mutex<ExitMessage> = Mutex::new(ExitMessage::Nothing);

/// How long the exit message may delay the end of the process, since its reader may not read it.
const PATIENCE: Duration = Duration::from_secs(1);

fn exit_message() -> MutexGuard<'static, ExitMessage> {
    EXIT_MESSAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a press that ends the process call `say` first.
pub fn set_exit_message(say: impl FnOnce() + Send + 'static) {
    *exit_message() = ExitMessage::Waiting(Box::new(say));
}

/// Prints something instead of the exit message. If the process is already ending, this does not return.
pub fn instead_of_exit_message<T>(say: impl FnOnce() -> T) -> T {
    loop {
        let mut message = exit_message();
        if !matches!(*message, ExitMessage::Said) {
            *message = ExitMessage::Replaced;
            break;
        }
        drop(message);
        std::thread::park();
    }
    let said = say();
    *exit_message() = ExitMessage::Nothing;
    said
}

/// Ends the process, after the exit message. Another thread prints it, because its reader may not read it.
fn leave() -> ! {
    let start = Instant::now();
    let message = loop {
        let mut message = exit_message();
        if !matches!(*message, ExitMessage::Replaced) || start.elapsed() >= PATIENCE {
            break std::mem::replace(&mut *message, ExitMessage::Said);
        }
        drop(message);
        std::thread::sleep(Duration::from_millis(5));
    };
    if let ExitMessage::Waiting(say) = message {
        let (said, ended) = std::sync::mpsc::channel();
        let saying = std::thread::Builder::new().spawn(move || {
            say();
            said.send(()).unwrap_or_default();
        });
        if saying.is_ok() {
            let _ = ended.recv_timeout(PATIENCE);
        }
    }
    terminal::leave(INTERRUPTED);
}

/// Begins work with a new [`Cancel`], which presses of Ctrl-C from now on will cancel.
pub fn begin(on_interrupt: OnInterrupt) -> Cancel {
    let cancel = Cancel::default();
    *state() = InterruptState { on_interrupt, cancel: cancel.clone() };
    cancel
}

/// From now on, the first press only cancels the current work, because it has a result to show by now.
pub fn cancel_work_from_now_on() {
    state().on_interrupt = OnInterrupt::CancelWork;
}

/// Does work with its own [`Cancel`]: a press meanwhile cancels only this work, and a second one ends the process.
pub fn meanwhile<T>(work: impl FnOnce(&Cancel) -> T) -> T {
    let cancel = Cancel::default();
    let during = InterruptState { on_interrupt: OnInterrupt::CancelWork, cancel: cancel.clone() };
    let before = std::mem::replace(&mut *state(), during);
    let done = work(&cancel);
    *state() = before;
    done
}

/// Whether Ctrl-C was pressed since the last [`begin`].
pub fn asked() -> bool {
    state().cancel.is_cancelled()
}

/// What Ctrl-C currently cancels.
pub fn cancel() -> Cancel {
    state().cancel.clone()
}

fn pressed() {
    let state = state();
    let again = state.cancel.is_cancelled();
    let on_interrupt = state.on_interrupt;
    state.cancel.cancel();
    drop(state);
    if again || on_interrupt == OnInterrupt::ExitNow {
        leave();
    }
    if on_interrupt == OnInterrupt::ExitAfterGrace {
        std::thread::sleep(GRACE);
        leave();
    }
}

/// Starts to listen for Ctrl-C and, if `terminal`, for the other signals that end a program, because a program that
/// changed the terminal has to restore it. If the system refuses the thread for this, signals have their default
/// effect. Only the first call counts.
#[cfg(unix)]
pub fn listen(terminal: bool) -> anyhow::Result<()> {
    if LISTENING.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let (ready, readied) = std::sync::mpsc::channel();
    let listen = move || {
        let numbers = if terminal { &[SIGINT, SIGTERM, SIGHUP][..] } else { &[SIGINT] };
        let numbers = numbers.iter().filter(|number| !is_ignored(**number));
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

/// Whether the process ignores a signal, which it inherits from its parent.
#[cfg(unix)]
pub fn is_ignored(signal: std::ffi::c_int) -> bool {
    use nix::libc::{SIG_IGN, sigaction};
    let mut action = std::mem::MaybeUninit::<sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the current one to `action`, for which all zeros are valid too.
    unsafe {
        sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 && action.assume_init().sa_sigaction == SIG_IGN
    }
}

/// Starts to listen for Ctrl-C, at the first call. On systems other than Unix, the system restores the console.
#[cfg(not(unix))]
pub fn listen(_: bool) -> anyhow::Result<()> {
    if LISTENING.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(pressed).context("cannot listen for Ctrl-C")
}
