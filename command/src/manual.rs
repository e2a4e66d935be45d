//! The commands `completions` and `man`: describe the command line to shells and `man`.

use super::args::{Arguments, CompletionsArgs, ManArgs};
use super::output;
use clap::CommandFactory;
use clap::error::ErrorKind;

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let (mut command, mut script) = (Arguments::command(), Vec::new());
    clap_complete::generate(args.shell, &mut command, "wglm", &mut script);
    output::say(&String::from_utf8_lossy(&script))
}

pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    let command = match &args.command {
        None => root,
        Some(name) => {
            let names = || root.get_subcommands().map(|known| known.get_name()).collect::<Vec<_>>().join(", ");
            match root.find_subcommand(name) {
                Some(found) => found.clone(),
                None => {
                    let message = format!("no command `{name}`; the commands are {}", names());
                    output::usage(&root.error(ErrorKind::InvalidSubcommand, message))
                }
            }
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).source(concat!("wglm ", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
    output::say(&String::from_utf8_lossy(&page))
}
