//! Starts the program again after its GPU was lost.
//!
//! The window's frames are drawn on the device that wglm computes on, and eframe keeps the device for as long as it
//! runs. So after a loss the program starts itself again, with a new device, and ends. The new window loads the same
//! model, shows the same conversation, and asks for the lost reply again. All conversations are saved before that.

use crate::protocol::Source;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program was started with, and whether it may start again.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    pub data: PathBuf,
    pub temperature: Option<f32>,
    pub status: Option<PathBuf>,
    /// False from a restart until a reply has ended: if the GPU is lost every time, the program must not restart for
    /// ever.
    pub allowed: bool,
}

impl Restart {
    /// The command for a window that loads a model and asks again in the conversation with this id.
    fn command(&self, program: &Path, (source, context): (&Source, Option<usize>), conversation: &str) -> Command {
        let mut command = Command::new(program);
        match source {
            Source::Demo => command.arg("--demo"),
            Source::File(path) | Source::Model(_, path) => command.arg(path),
        };
        command.arg("--data").arg(&self.data).arg(format!("--after-loss={conversation}"));
        let numbers =
            [context.map(|n| format!("--context={n}")), self.temperature.map(|t| format!("--temperature={t}"))];
        command.args(numbers.into_iter().flatten());
        if let Some(status) = &self.status {
            command.arg("--status").arg(status);
        }
        command
    }

    /// Starts the program again, and ends this one.
    ///
    /// # Errors
    /// What the system reports if it does not start; false if it may not.
    pub fn run(&self, loaded: (&Source, Option<usize>), conversation: &str) -> io::Result<bool> {
        if !self.allowed {
            return Ok(false);
        }
        self.command(&std::env::current_exe()?, loaded, conversation).spawn()?;
        std::process::exit(0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Restart, Source};
    use crate::Args;
    use clap::Parser;
    use std::path::Path;

    #[test]
    fn the_next_window_is_told_what_this_one_was() {
        let restart =
            Restart { data: "talks".into(), temperature: Some(0.5), status: Some("now".into()), allowed: true };
        for source in [Source::Demo, Source::File("some model.gguf".into())] {
            let command = restart.command(Path::new("wglm-chat"), (&source, Some(512)), "42");
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let start = Args::try_parse_from(words).unwrap().start().unwrap();
            assert_eq!((start.source, start.context), (Some(source), Some(512)));
            assert_eq!(start.again.as_deref(), Some("42"));
            assert_eq!(start.restart, Restart { allowed: false, ..restart.clone() });
        }
        assert!(!Restart { allowed: false, ..restart }.run((&Source::Demo, None), "42").unwrap());
    }
}
