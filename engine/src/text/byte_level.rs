//! The alphabet of byte-level BPE, which writes every byte as one printable character.
//!
//! Printable Latin-1 characters stand for themselves. The other 68 bytes are numbered from U+0100 on, so that no token
//! in a vocabulary contains a space or a control character (OpenAI's GPT-2, `bytes_to_unicode`).

/// One more than the last code point of the alphabet.
const ALPHABET_END: usize = 0x144;

/// The character that stands for each byte.
const CHARS: [char; 256] = chars();

/// The byte that each code point stands for, or `NO_BYTE` for code points outside the alphabet.
const BYTES: [u16; ALPHABET_END] = bytes();

const NO_BYTE: u16 = 256;

const fn chars() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut next = 0x100;
    let mut byte = 0;
    while byte < 256 {
        let itself = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if itself { byte } else { next };
        if !itself {
            next += 1;
        }
        // There are no surrogates below U+0144, so the fallback is never taken.
        table[byte as usize] = match char::from_u32(code) {
            Some(char) => char,
            None => '\0',
        };
        byte += 1;
    }
    table
}

const fn bytes() -> [u16; ALPHABET_END] {
    let mut table = [NO_BYTE; ALPHABET_END];
    let mut byte = 0;
    while byte < 256 {
        table[CHARS[byte] as usize] = byte as u16;
        byte += 1;
    }
    table
}

/// The character that stands for `byte`.
pub(super) fn char_of(byte: u8) -> char {
    CHARS[byte as usize]
}

/// Encodes every byte of `text` as a character of the alphabet.
pub(super) fn encode(text: &str) -> String {
    text.bytes().map(char_of).collect()
}

/// Appends to `out` the bytes that `token` stands for. A character outside the alphabet, which no byte-level vocabulary
/// should contain, stands for itself.
pub(super) fn decode(token: &str, out: &mut Vec<u8>) {
    for char in token.chars() {
        match BYTES.get(char as usize) {
            Some(&byte) if byte != NO_BYTE => out.push(byte as u8),
            _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_printable_character() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255 {
            let char = char_of(byte);
            assert!(seen.insert(char) && !char.is_whitespace() && !char.is_control(), "byte {byte:#04x}: {char:?}");
            let mut back = Vec::new();
            decode(char.encode_utf8(&mut [0; 4]), &mut back);
            assert_eq!(back, [byte]);
        }
    }

    #[test]
    fn the_well_known_ones() {
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(b'\t'), char_of(0xad)), ('Ġ', 'Ċ', 'ĉ', 'Ń'));
    }

    #[test]
    fn a_foreign_character_stands_for_itself() {
        let mut bytes = Vec::new();
        decode("Ġ▁", &mut bytes);
        assert_eq!(bytes, " ▁".as_bytes());
    }
}
