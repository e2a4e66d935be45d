//! Finds out what the terminal can do, and restores its settings at the end.

use std::io::{self, IsTerminal, Write};

/// Whether `TERM` names a terminal without escape sequences.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether stdin is a terminal.
pub fn is_typed() -> bool {
    io::stdin().is_terminal()
}

/// Whether lines on stderr can be redrawn.
pub fn redraws() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// Whether a line can be edited while it is typed: on stdout, or on the terminal itself if stdout is redirected.
pub fn edits() -> bool {
    is_typed() && !is_dumb() && (io::stdout().is_terminal() || itself().is_ok())
}

/// The current columns of the terminal on stdout.
pub fn columns_for_answers() -> Option<usize> {
    columns(terminal_size::terminal_size_of(io::stdout()))
}

/// The current columns of the terminal on stderr.
pub fn columns_for_asides() -> Option<usize> {
    columns(terminal_size::terminal_size_of(io::stderr()))
}

/// A terminal that does not know its width reports 0.
fn columns(size: Option<(terminal_size::Width, terminal_size::Height)>) -> Option<usize> {
    size.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// Opens the terminal itself, even if the standard streams are redirected.
pub fn itself() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).open(if cfg!(windows) { "CONOUT$" } else { "/dev/tty" })
}

/// Ends the process at once, after restoring the terminal. Nothing else is cleaned up, because threads of a driver may
/// still be compiling and would use what an orderly exit destroys.
#[cfg(unix)]
pub fn leave(code: u8) -> ! {
    restore();
    signal_hook::low_level::exit(code.into())
}

/// Ends the process at once, after restoring the terminal.
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

    /// Saves the settings of the terminal before an editor changes them.
    pub fn remember() {
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(stdin()).ok();
    }

    /// Restores the settings of the terminal, if they were saved.
    pub fn restore() {
        let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let _ = tcsetattr(stdin(), SetArg::TCSANOW, &before);
        // Turns bracketed paste off, which the editor turned on.
        let _ = super::itself().and_then(|mut terminal| terminal.write_all(b"\x1b[?2004l"));
    }
}

#[cfg(unix)]
pub use modes::remember;

/// There is nothing to save: the editor itself restores a console.
#[cfg(not(unix))]
pub fn remember() {}

/// Restores the terminal, with the cursor at the beginning of a line.
fn restore() {
    #[cfg(unix)]
    modes::restore();
    if io::stderr().is_terminal() {
        let _ = io::stderr().write_all(b"\n");
    }
}
