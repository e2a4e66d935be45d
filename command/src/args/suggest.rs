//! Suggests the command that may have been meant, and how to give `run` a prompt. clap suggests a command only if most
//! letters are in the right position, which does not hold for `rnu` and `run`, and none for a prompt without a command.

use super::Arguments;
use crate::output;
use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::ffi::OsString;
use strsim::damerau_levenshtein;

/// The maximum number of wrong, missing, extra or swapped letters in a name that is still recognised.
const WRONG: usize = 2;

/// The maximum number of characters of a prompt that a suggestion repeats.
const PROMPT: usize = 40;

/// Adds a suggestion to an error about an unknown command, or about the prompt of `run`.
pub fn with_tip(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => with_command(error),
        _ if first().is_some_and(|first| first == "run") => with_prompt(error),
        _ => error,
    }
}

/// The first argument, which is the command.
fn first() -> Option<OsString> {
    std::env::args_os().nth(1)
}

fn with_prompt(mut error: Error) -> Error {
    let command = output::command();
    let is_word =
        || matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    let lacks_prompt = || {
        let missing = error.get(ContextKind::InvalidArg);
        matches!(missing, Some(ContextValue::Strings(names)) if names.iter().any(|name| name.contains("PROMPT")))
    };
    let tip = match error.kind() {
        ErrorKind::MissingRequiredArgument if lacks_prompt() => {
            format!("`{command} run -` reads the prompt from stdin")
        }
        ErrorKind::UnknownArgument if is_word() => {
            format!("a prompt of several words needs quotes: `{command} run \"one two\"`")
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

/// Adds a suggestion to the error about an unknown command.
fn with_command(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let word = word.clone();
    if let Some(name) = alike(&word) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(name));
        return error;
    }
    error.remove(ContextKind::SuggestedSubcommand);
    // Such a word asks for help and is not a prompt.
    if first().is_some_and(|first| first == "help") {
        return error;
    }
    let command = output::command();
    let prompt = output::shortened(&word, PROMPT);
    let tip = format!("`{command} run \"{prompt}\"` answers a prompt, `{command} --help` lists the commands");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}

/// The command whose name is closest to a word; none if it is not a single word, or not close to any.
fn alike(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    let root = Arguments::command();
    let names = root.get_subcommands().map(clap::Command::get_name);
    let nearest = names.map(|name| (damerau_levenshtein(&lower, name), name)).min()?;
    // A short word needs fewer changes to become another word.
    (nearest.0 <= WRONG.min(word.chars().count() / 3)).then(|| nearest.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn names_with_slips_are_recognised() {
        for (word, name) in [
            ("rnu", Some("run")),
            ("Run", Some("run")),
            ("cht", Some("chat")),
            ("benhc", Some("bench")),
            ("inpsectt", Some("inspect")),
            ("hi", None),
            ("hello", None),
            ("Tell me a story", None),
        ] {
            assert_eq!(alike(word).as_deref(), name, "{word}");
        }
    }
}
