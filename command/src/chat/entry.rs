//! Distinguishes messages from commands, and determines whether a message continues on the next line.

/// The quotes that begin and end a message of several lines.
const QUOTES: &str = "\"\"\"";

#[derive(Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    Message(&'a str),
    /// A command without its `/`.
    Command(&'a str),
}

impl<'a> Entry<'a> {
    /// Parses a text. Spaces around a message are kept, like those of a prompt of `run`, because code may begin with
    /// them. Text in quotes is a message; `//` begins a message that begins with `/`.
    pub fn of(text: &'a str) -> Self {
        let trimmed = text.trim();
        if let Some(inside) = trimmed.strip_prefix(QUOTES) {
            let inside = inside.strip_suffix(QUOTES).unwrap_or(inside);
            let inside = inside.strip_prefix('\n').unwrap_or(inside);
            return Self::Message(inside.strip_suffix('\n').unwrap_or(inside));
        }
        match trimmed.strip_prefix('/') {
            Some(message) if message.starts_with('/') => Self::Message(message),
            Some(command) => Self::Command(command),
            None => Self::Message(text),
        }
    }
}

/// Reads a text and all lines that continue it. `line` reads a line; its argument says whether the line continues a
/// text. At the end of the input an unfinished text counts as complete; `None` if there is no text at all.
///
/// # Errors
/// Those of `line`.
pub fn whole<E>(mut line: impl FnMut(bool) -> Result<Option<String>, E>) -> Result<Option<String>, E> {
    let mut text = String::new();
    let mut begun = false;
    while let Some(next) = line(begun)? {
        begun = true;
        text.push_str(&next);
        match goes_on(&text) {
            Continuation::No => return Ok(Some(text)),
            Continuation::Continued => drop(text.pop()),
            Continuation::Quoted => {}
        }
        text.push('\n');
    }
    Ok(begun.then_some(text))
}

/// Whether a text continues on the next line.
#[derive(Debug, PartialEq, Eq)]
enum Continuation {
    /// The text is complete.
    No,
    /// The text ends with a backslash, which stands for the end of the line.
    Continued,
    /// The text began with quotes that are still open.
    Quoted,
}

fn goes_on(text: &str) -> Continuation {
    match text.trim_start().strip_prefix(QUOTES) {
        Some(inside) if !inside.trim_end().ends_with(QUOTES) => Continuation::Quoted,
        None if text.ends_with('\\') => Continuation::Continued,
        _ => Continuation::No,
    }
}

#[cfg(test)]
mod tests {
    use super::{Continuation, Entry, goes_on};

    #[test]
    fn messages_and_commands_are_told_apart() {
        for (text, entry) in [
            ("  hello ", Entry::Message("  hello ")),
            (" /help ", Entry::Command("help")),
            ("/save a b", Entry::Command("save a b")),
            ("//etc holds what?", Entry::Message("/etc holds what?")),
            ("\"\"\"/help\"\"\"", Entry::Message("/help")),
            ("\"\"\"\n  a\n\n b \n\"\"\"", Entry::Message("  a\n\n b ")),
            ("\"\"\"not closed", Entry::Message("not closed")),
            ("a \"\"\"quoted\"\"\" word", Entry::Message("a \"\"\"quoted\"\"\" word")),
        ] {
            assert_eq!(Entry::of(text), entry);
        }
    }

    #[test]
    fn lines_go_on() {
        for (text, goes) in [
            ("a", Continuation::No),
            ("a\\", Continuation::Continued),
            ("a\\ ", Continuation::No),
            ("\"\"\"", Continuation::Quoted),
            ("\"\"\"a\nb\\", Continuation::Quoted),
            ("\"\"\"a\n\"\"\" ", Continuation::No),
            ("\"\"\"\"\"\"", Continuation::No),
            ("a \"\"\"", Continuation::No),
        ] {
            assert_eq!(goes_on(text), goes, "{text:?}");
        }
    }
}
