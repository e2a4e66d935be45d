//! Numbers as options take them, with errors that say what is accepted.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// A number from 0 on.
pub fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| refused("0 or a positive integer", &error))
}

/// As many as there are at most, from 1 on, or none for -1.
pub fn some(text: &str) -> Result<Count, String> {
    let found: Count = text.parse().map_err(|_| SOME.to_owned())?;
    if found.0 == Some(0) { Err(SOME.into()) } else { Ok(found) }
}

const SOME: &str = "expected -1 or a positive integer";

/// A number, or none for -1.
#[derive(Debug, Clone, Copy)]
pub struct OrNone<T>(pub Option<T>);

/// A number of tokens or windows, or none for no limit.
pub type Count = OrNone<usize>;

impl<T: FromStr<Err = ParseIntError>> FromStr for OrNone<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = (text != "-1").then(|| text.parse()).transpose();
        number.map(Self).map_err(|error| refused("-1, 0 or a positive integer", &error))
    }
}

fn refused(expected: &str, error: &ParseIntError) -> String {
    match error.kind() {
        IntErrorKind::PosOverflow => error.to_string(),
        _ => format!("expected {expected}"),
    }
}
