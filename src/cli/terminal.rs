//! The terminal: what it can do, and that it is left as it was.

use std::io::{self, IsTerminal, Write};

/// Whether `TERM` names a terminal that knows no escape sequences.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether somebody types what stdin holds.
pub fn is_typed() -> bool {
    io::stdin().is_terminal()
}

/// Whether lines on stderr can be drawn anew.
pub fn redraws() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// Whether a line can be edited as it is typed: on stdout, or on the terminal itself where stdout leads elsewhere.
pub fn edits() -> bool {
    is_typed() && !is_dumb() && (io::stdout().is_terminal() || itself().is_ok())
}

/// The terminal itself, wherever the standard streams lead.
pub fn itself() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).open(if cfg!(windows) { "CONOUT$" } else { "/dev/tty" })
}

/// Ends the process at once. What drivers compile on threads of theirs would outlive what an orderly end takes down, so
/// nothing is taken down but what outlives the process.
#[cfg(unix)]
pub fn leave(code: u8) -> ! {
    restore();
    signal_hook::low_level::exit(code.into())
}

/// Ends the process at once.
#[cfg(not(unix))]
pub fn leave(code: u8) -> ! {
    restore();
    std::process::exit(code.into())
}

#[cfg(unix)]
mod modes {
    use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
    use std::io::{Write, stdin};
    use std::sync::{Mutex, PoisonError};

    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// Keeps how the terminal is set, before an editor sets it otherwise.
    pub fn remember() {
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(stdin()).ok();
    }

    /// Sets the terminal as it was when it was kept, if it was.
    pub fn restore() {
        let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let _ = tcsetattr(stdin(), SetArg::TCSANOW, &before);
        // What is pasted comes without brackets again.
        let _ = super::itself().and_then(|mut terminal| terminal.write_all(b"\x1b[?2004l"));
    }
}

#[cfg(unix)]
pub use modes::remember;

/// Nothing to keep: a console is set by nobody but its editor.
#[cfg(not(unix))]
pub fn remember() {}

/// As it was, with the cursor at the start of a line.
fn restore() {
    #[cfg(unix)]
    modes::restore();
    if io::stderr().is_terminal() {
        let _ = io::stderr().write_all(b"\n");
    }
}
