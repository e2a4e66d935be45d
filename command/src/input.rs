//! Reads text from files and stdin.

use super::{output, terminal};
use anyhow::Context;
use std::io::Read;
use std::path::Path;

/// The byte-order mark that some editors write before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The keys that end stdin on a terminal.
const END: &str = if cfg!(windows) { "Ctrl-Z and Enter" } else { "Ctrl-D" };

/// Reads the text of a file, or of stdin for `-`, without a byte-order mark, with line endings as on Unix, and without
/// the ending of the last line.
pub fn text(path: &Path) -> anyhow::Result<String> {
    let text = exact(path)?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text).replace("\r\n", "\n");
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Reads the text of a file, or of stdin for `-`, unchanged except that the ending of the last line is removed, as in
/// llama.cpp.
pub fn verbatim(path: &Path) -> anyhow::Result<String> {
    let text = exact(path)?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// The name of a file in messages, or `stdin` for `-`.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() }
}

/// Reads the text of a file, or of stdin for `-`, without any change.
pub fn exact(path: &Path) -> anyhow::Result<String> {
    let name = name(path);
    let bytes = if path == Path::new("-") {
        if terminal::is_typed() {
            output::note(format_args!("reading stdin from the terminal; {END} at the beginning of a line ends it"));
        }
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    let bytes = bytes.with_context(|| format!("cannot read {name}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let reason = not_text(error.as_bytes(), error.utf8_error().valid_up_to());
        anyhow::anyhow!("cannot read {name}: {reason}")
    })
}

/// The error for bytes that are valid UTF-8 only up to this one.
pub fn not_text(bytes: &[u8], valid_up_to: usize) -> String {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "expected text in UTF-8, but it seems to be UTF-16".to_owned(),
        _ => format!("invalid UTF-8 at byte {valid_up_to}"),
    }
}

/// A line without its ending and, if it is the first one, without a byte-order mark. Bytes that are not UTF-8 become
/// U+FFFD.
pub fn line(bytes: &[u8], first: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    if first {
        line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    }
    line.to_owned()
}
