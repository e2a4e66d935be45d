//! The API keys, as they are given to the command. A key that no client can send, or that is probably a mistake, is an
//! error at the start and not when the first client is refused.

use anyhow::{Context, ensure};
use std::path::Path;

/// The keys in the arguments and those in a file with one key per line.
pub fn keys(given: &[String], file: Option<&Path>) -> anyhow::Result<Vec<String>> {
    for key in given {
        // An empty variable must not open the server to everybody.
        let empty = key.trim().is_empty();
        ensure!(!empty, "--api-key (or WGLM_API_KEY): the key is empty; leave it out for a server without keys");
        check(key.as_bytes()).context("--api-key (or WGLM_API_KEY)")?;
    }
    let mut keys = given.to_vec();
    if let Some(path) = file {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let read = of_file(&text).with_context(|| path.display().to_string())?;
        ensure!(!read.is_empty(), "{}: the file has no key", path.display());
        keys.extend(read);
    }
    Ok(keys)
}

fn of_file(text: &[u8]) -> anyhow::Result<Vec<String>> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    let key = |(index, line): (usize, &[u8])| {
        let place = || format!("line {}", index + 1);
        let comment = "a line that begins with #; a key file has no comments: remove the line";
        ensure!(!line.starts_with(b"#"), "{}: {comment}", place());
        check(line).with_context(place)
    };
    lines.filter(|(_, line)| !line.is_empty()).map(key).collect()
}

/// The key as text. Errors do not repeat it.
fn check(key: &[u8]) -> anyhow::Result<String> {
    ensure!(key.trim_ascii() == key, "the key begins or ends with a space, which clients cannot send: remove it");
    let wrong = key.iter().position(|byte| !(b' '..=b'~').contains(byte));
    if let Some(place) = wrong {
        let expected = "expected visible ASCII characters and spaces between them";
        anyhow::bail!("byte {} of the key is 0x{:02x}: {expected}", place + 1, key[place]);
    }
    Ok(String::from_utf8_lossy(key).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{check, of_file};

    #[test]
    fn a_key_file_has_one_key_per_line() {
        let keys = |text: &[u8]| of_file(text).map_err(|error| format!("{error:#}"));
        assert_eq!(keys(b"\n first \r\nsecond key\n"), Ok(vec!["first".into(), "second key".into()]));
        assert_eq!(keys(b"\n\n"), Ok(vec![]));
        for (text, reason) in [
            (&b"first\n# for Anna\nsecond"[..], "line 2: a line that begins with #"),
            ("first\nschlüssel".as_bytes(), "line 2: byte 5 of the key is 0xc3"),
            ("\u{feff}first".as_bytes(), "line 1: byte 1 of the key is 0xef"),
            (b"first\n\nse\tcond", "line 3: byte 3 of the key is 0x09"),
            (b"fir\xffst", "line 1: byte 4 of the key is 0xff"),
        ] {
            let error = keys(text).err().unwrap_or_default();
            assert!(error.starts_with(reason), "{error}");
        }
        assert!(check(b"a ").is_err() && check(b"a b").is_ok());
    }
}
