//! The commands of a conversation, which begin with `/`: their names and arguments.

use crate::wrap::filled;
use std::fmt::Write;

/// A command, as `/help` lists it.
struct Usage {
    name: &'static str,
    /// The argument that the command takes, if any.
    takes: &'static str,
    does: &'static str,
}

const USAGES: [Usage; 9] = [
    Usage { name: "clear", takes: "", does: "start over; the system prompt stays" },
    Usage { name: "regen", takes: "", does: "answer the last message again" },
    Usage { name: "system", takes: "[TEXT]", does: "set the system prompt; without TEXT remove it" },
    Usage { name: "reasoning", takes: "on|off", does: "turn thinking before the answer on or off" },
    Usage { name: "save", takes: "FILE", does: "write the conversation as JSON messages" },
    Usage { name: "load", takes: "FILE", does: "continue a saved conversation" },
    Usage { name: "copy", takes: "", does: "copy the last answer to the clipboard" },
    Usage { name: "help", takes: "", does: "list commands" },
    Usage { name: "exit", takes: "", does: "quit; so does Ctrl-D" },
];

const BEYOND: &str = "\
A line that ends in \\ continues on the next one; \"\"\" begins and ends a message of several lines, and Ctrl-D sends an
unfinished one. //TEXT sends /TEXT. Ctrl-C stops a reply or discards the typed text; pressed twice at an empty line
it quits.";

#[derive(Debug, PartialEq, Eq)]
pub enum SlashCommand<'a> {
    Clear,
    Regen,
    System(&'a str),
    Reasoning(bool),
    Save(&'a str),
    Load(&'a str),
    Copy,
    Help,
    Exit,
}

impl<'a> SlashCommand<'a> {
    /// Parses a command without its `/`.
    ///
    /// # Errors
    /// There is no such command, or its argument is wrong.
    pub fn read(text: &'a str) -> anyhow::Result<Self> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        Ok(match (name, rest) {
            ("clear", "") => Self::Clear,
            ("regen", "") => Self::Regen,
            ("system", text) => Self::System(text),
            ("reasoning", "on") => Self::Reasoning(true),
            ("reasoning", "off") => Self::Reasoning(false),
            ("save" | "load", "-") => anyhow::bail!("/{name} needs a file name; - is not supported here"),
            ("save", file) if !unquoted(file).is_empty() => Self::Save(unquoted(file)),
            ("load", file) if !unquoted(file).is_empty() => Self::Load(unquoted(file)),
            ("copy", "") => Self::Copy,
            ("help", "") => Self::Help,
            ("exit" | "quit", "") => Self::Exit,
            _ => match USAGES.iter().find(|usage| usage.name == name) {
                Some(Usage { takes: "", .. }) => anyhow::bail!("/{name} takes no argument"),
                Some(usage) => anyhow::bail!("expected /{name} {}", usage.takes),
                None => anyhow::bail!("no command /{name}; /help lists them, //{name} sends /{name} as a message"),
            },
        })
    }
}

/// The name of a file without quotes around it. Names with spaces need none, but users of shells type them.
fn unquoted(name: &str) -> &str {
    let inside = |quote| name.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(name)
}

/// The columns of the names in `/help`, with the spaces after them.
const NAMES: usize = 19;

/// The text of `/help`, in lines of at most `width` columns.
pub fn help(width: usize) -> String {
    let mut help = String::new();
    // The description of a command is next to its name, or below it if there is no space for two columns.
    let (names, between, indent) = if width < 2 * NAMES { (0, "\n    ", 4) } else { (NAMES, "", NAMES) };
    for Usage { name, takes, does } in &USAGES {
        let does = filled(does, width.saturating_sub(indent)).join(&format!("\n{:indent$}", ""));
        let _ = writeln!(help, "{:names$}{between}{does}", format!("/{name} {takes}").trim_end());
    }
    help + &filled(BEYOND, width).join("\n")
}

/// Whether the typed text is a command with a file argument, followed by a space and possibly a part of the file's
/// name.
pub fn takes_file(typed: &str) -> bool {
    let mut files = USAGES.iter().filter(|usage| usage.takes == "FILE");
    files.any(|usage| {
        typed.strip_prefix('/').and_then(|t| t.strip_prefix(usage.name)).is_some_and(|t| t.starts_with(' '))
    })
}

/// All commands that begin with the typed text.
pub fn beginning_with(typed: &str) -> impl Iterator<Item = String> {
    let whole = USAGES.iter().flat_map(|Usage { name, takes, .. }| match *takes {
        "" => vec![format!("/{name}")],
        "on|off" => vec![format!("/{name} on"), format!("/{name} off")],
        _ => vec![format!("/{name} ")],
    });
    whole.filter(move |text| !typed.is_empty() && text.starts_with(typed))
}

#[cfg(test)]
mod tests {
    use super::{SlashCommand, USAGES, beginning_with, help, takes_file};

    #[test]
    fn every_command_is_read_told_and_completed() {
        for usage in &USAGES {
            let rest = if usage.takes == "on|off" { "on" } else { usage.takes };
            assert!(SlashCommand::read(&format!("{} {rest}", usage.name)).is_ok(), "{}", usage.name);
            assert!(help(100).contains(&format!("/{}", usage.name)));
            let start = &usage.name[..1];
            assert!(beginning_with(&format!("/{start}")).any(|text| text[1..].starts_with(usage.name)));
        }
        for (typed, name) in
            [("  a b ", "a b"), (" \"a b\"", "a b"), (" 'a'", "a"), (" \"a", "\"a"), (" a\"b\"", "a\"b\"")]
        {
            let typed = format!("save{typed}");
            assert_eq!(SlashCommand::read(&typed).ok(), Some(SlashCommand::Save(name)), "{typed}");
        }
    }

    #[test]
    fn help_fits_the_terminal() {
        for width in [24, 40, 80, 100] {
            assert!(help(width).lines().all(|line| line.len() <= width), "{}", help(width));
        }
        assert!(help(40).contains("\n                   "), "{}", help(40));
        assert!(help(5).contains("/clear"));
    }

    #[test]
    fn what_is_no_command_is_told() {
        for (text, words) in [
            ("etc", "//etc sends /etc"),
            ("clear all", "/clear takes no argument"),
            ("save", "expected /save FILE"),
            ("save -", "/save needs a file name"),
            ("save \"\"", "expected /save FILE"),
            ("load -", "/load needs a file name"),
            ("reasoning maybe", "expected /reasoning on|off"),
        ] {
            let error = SlashCommand::read(text).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(words)), "{error:?}");
        }
    }

    #[test]
    fn completion_knows_where_a_file_stands() {
        assert!(takes_file("/save ") && takes_file("/load a/b") && !takes_file("/save") && !takes_file("/clear "));
        assert_eq!(beginning_with("/re").collect::<Vec<_>>(), ["/regen", "/reasoning on", "/reasoning off"]);
        assert_eq!(beginning_with("").count() + beginning_with("hello").count(), 0);
    }
}
