//! The commands `completions` and `man`: describe the command line to shells and `man`.

use super::args::{Arguments, CompletionsArgs, ManArgs};
use super::output;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let (mut command, mut script) = (Arguments::command(), Vec::new());
    clap_complete::generate(args.shell, &mut command, "wglm", &mut script);
    output::say(&String::from_utf8_lossy(&script))
}

pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let without_help = |command: Command| command.disable_help_subcommand(true);
    let mut root = without_help(Arguments::command()).mut_subcommands(without_help);
    root.build();
    let mut command = &root;
    for name in &args.command {
        command = match command.find_subcommand(name) {
            Some(found) => found,
            None => {
                let message = unknown(command, name);
                output::usage(&root.error(ErrorKind::InvalidSubcommand, message))
            }
        };
    }
    let command = command.clone();
    let mut page = Vec::new();
    clap_mangen::Man::new(command).source(concat!("wglm ", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
    output::say(&String::from_utf8_lossy(&page))
}

/// The message for a name that is not a command of this one.
fn unknown(command: &Command, name: &str) -> String {
    let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    match known.is_empty() {
        true => format!("no command `{name}`; `{}` has no commands", command.get_name()),
        false => format!("no command `{name}` of `{}`; its commands are {}", command.get_name(), known.join(", ")),
    }
}
