//! Limits on the size of a regular expression, and on the work of matching it together with others.
//!
//! llguidance matches several expressions together by their derivatives: for a byte it pairs each continuation of one
//! with each continuation of the others. Its fuel is counted only after such a step, so this module bounds the number
//! of pairs.

use regex_syntax::Parser;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::collections::HashSet;

/// The maximum length of an expression in bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// The maximum number of classes written with a backslash: one may have 700 ranges of characters, of eight bytes each.
const MAX_CLASSES: usize = 4000;

/// The continuations assumed for an expression that cannot be parsed, and for a `format`, whose expression only
/// llguidance knows.
pub(super) const UNKNOWN: u64 = 8;

/// The maximum number of ways in which an expression can continue a text. An expression that cannot be parsed is left
/// to llguidance, which reports the error.
///
/// # Errors
/// The reason why the expression is too large.
pub(super) fn ways(expression: &str) -> Result<u64, String> {
    if expression.len() > LONGEST {
        return Err(format!("too large: an expression of {} bytes, more than {LONGEST}", expression.len()));
    }
    let classes = expression.matches('\\').count();
    if classes > MAX_CLASSES {
        return Err(format!("too large: an expression with {classes} backslashes, more than {MAX_CLASSES}"));
    }
    let Ok(parsed) = Parser::new().parse(&llguidance::regex_to_lark(expression, "dw")) else { return Ok(UNKNOWN) };
    let mut sets = HashSet::new();
    first_bytes(&parsed, &mut sets);
    let most = (0..=u8::MAX).map(|byte| sets.iter().filter(|set| set.has(byte)).count()).max();
    // Text before and after the match adds one way.
    Ok(most.unwrap_or(0) as u64 + 1)
}

/// A set of bytes with which a character may begin.
#[derive(Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Bytes([u64; 4]);

impl Bytes {
    fn add(&mut self, from: u8, to: u8) {
        (from..=to).for_each(|byte| self.0[usize::from(byte / 64)] |= 1 << (byte % 64));
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }
}

/// The sets of bytes that parts of an expression begin with. Nested groups are bounded by the parser.
fn first_bytes(part: &Hir, sets: &mut HashSet<Bytes>) {
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => sets.extend(literal.0.iter().map(|byte| {
            let mut set = Bytes::default();
            set.add(*byte, *byte);
            set
        })),
        HirKind::Class(class) => {
            let mut set = Bytes::default();
            match class {
                Class::Unicode(class) => {
                    class.ranges().iter().for_each(|range| set.add(lead(range.start()), lead(range.end())));
                }
                Class::Bytes(class) => class.ranges().iter().for_each(|range| set.add(range.start(), range.end())),
            }
            sets.insert(set);
        }
        HirKind::Repetition(repeated) => first_bytes(&repeated.sub, sets),
        HirKind::Capture(group) => first_bytes(&group.sub, sets),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().for_each(|part| first_bytes(part, sets)),
    }
}

/// The first byte of a character in UTF-8.
fn lead(character: char) -> u8 {
    let mut bytes = [0; 4];
    character.encode_utf8(&mut bytes).as_bytes().first().copied().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::ways;

    #[test]
    fn ways_are_sets_that_share_a_byte() {
        assert_eq!(ways("abc"), Ok(2));
        assert_eq!(ways(".*a.{15}"), Ok(3));
        assert_eq!(ways(r"^[\w.-]+@[\w-]+\.\w{2,}$"), Ok(4));
        let overlapping: Vec<String> = ('b'..='k').map(|end| format!("[a-{end}]x")).collect();
        assert_eq!(ways(&overlapping.join("|")), Ok(11));
        assert!(ways("(?=a)b").is_ok(), "llguidance refuses it");
    }

    #[test]
    fn large_expressions_are_refused() {
        assert!(ways(&"a".repeat(60_000)).is_ok());
        assert!(ways(&"a".repeat(70_000)).unwrap_err().contains("65536"));
        assert!(ways(&r"[\pLa]".repeat(3000)).is_ok());
        assert!(ways(&r"[\pLa]".repeat(5000)).unwrap_err().contains("backslashes"));
    }
}
