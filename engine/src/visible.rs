//! Makes control characters visible. Text that others wrote, such as the strings of a file, the names of a hub or the
//! tokens of a model, may contain characters that a terminal obeys: it moves the cursor, renames the window, answers as
//! if the user had typed, or displays letters in a different order.

use std::borrow::Cow;

/// Whether a terminal may obey a character rather than show it: a control character other than a tab or the end of a
/// line, or one that changes the order of others.
pub fn is_obeyed(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        // The marks and the embeddings, overrides and isolates of bidirectional text.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => letter.is_control(),
    }
}

/// The text with each such character replaced by a picture of it: `␛`, `\u{9b}`, `\u{202e}`. Each character is replaced
/// on its own, so a text may be cut anywhere beforehand.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            _ if !is_obeyed(letter) => shown.push(letter),
            '\u{7f}' => shown.push('\u{2421}'),
            // Unicode has pictures of the first 32 characters, in their order.
            '\0'..='\u{1f}' => shown.extend(char::from_u32(0x2400 + u32::from(letter))),
            _ => shown.extend(letter.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_shown() {
        for (text, shown) in [
            ("a\tb\nä 🦉 你好", "a\tb\nä 🦉 你好"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "␛[2J␛]0;title␇"),
            ("a\r\nb\0\u{8}", "a␍\nb␀␈"),
            ("\u{7f}\u{80}\u{9b}31m\u{9f}", "␡\\u{80}\\u{9b}31m\\u{9f}"),
            ("fdp.\u{202e}exe", "fdp.\\u{202e}exe"),
            ("\u{200e}\u{2066}\u{2069}\u{61c}", "\\u{200e}\\u{2066}\\u{2069}\\u{61c}"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible(&visible(text)), shown, "once is enough");
        }
        assert!(matches!(visible("plain"), Cow::Borrowed(_)));
    }

    /// No character is left that a terminal obeys.
    #[test]
    fn nothing_is_left() {
        let all: String = (0..=0x30000).filter_map(char::from_u32).collect();
        assert!(!visible(&all).contains(is_obeyed));
        assert!(!visible(&all).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    }
}
