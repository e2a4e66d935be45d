//! Parses the numbers in options, with errors that say what is accepted.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// Parses an integer of at least 0.
pub fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| refused("0 or a positive integer", &error))
}

/// Parses an integer of at least 1.
pub fn positive<T: FromStr<Err = ParseIntError> + PartialEq + From<u8>>(text: &str) -> Result<T, String> {
    let expected = "a positive integer";
    let number: T = text.parse().map_err(|error| refused(expected, &error))?;
    if number == T::from(0) { Err(format!("expected {expected}")) } else { Ok(number) }
}

/// Parses a number of bytes of at least 1, with K, M, G or T for powers of 1024.
#[cfg(feature = "serve")]
pub fn size(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let unit = (1..).zip("KMGT".chars()).find(|(_, letter)| upper.ends_with(*letter));
    let (number, power) = unit.map_or((text, 0), |(power, _)| (&text[..text.len() - 1], power));
    let number: u64 = number.parse().ok().filter(|number| *number > 0).ok_or("expected a size, such as 500M or 20G")?;
    number.checked_mul(1 << (10 * power)).ok_or_else(|| "too large".to_owned())
}

/// Parses a number of connections, which is limited so as not to burden the hub.
#[cfg(feature = "download")]
pub fn connections(text: &str) -> Result<u32, String> {
    let number: u32 = positive(text)?;
    if number <= MAX_CONNECTIONS { Ok(number) } else { Err(format!("expected a number from 1 to {MAX_CONNECTIONS}")) }
}

#[cfg(feature = "download")]
const MAX_CONNECTIONS: u32 = 16;

/// Parses an integer of at least 1, or -1 for no limit.
pub fn some(text: &str) -> Result<OrNone<usize>, String> {
    let expected = "-1 or a positive integer";
    let number = (text != "-1").then(|| text.parse()).transpose().map_err(|error| refused(expected, &error))?;
    if number == Some(0) { Err(format!("expected {expected}")) } else { Ok(OrNone(number)) }
}

/// A number, or `None` for -1.
#[derive(Debug, Clone, Copy)]
pub struct OrNone<T>(pub Option<T>);

impl<T: FromStr<Err = ParseIntError>> FromStr for OrNone<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = (text != "-1").then(|| text.parse()).transpose();
        number.map(Self).map_err(|error| refused("-1, 0 or a positive integer", &error))
    }
}

fn refused(expected: &str, error: &ParseIntError) -> String {
    match error.kind() {
        IntErrorKind::PosOverflow => "too large".to_owned(),
        _ => format!("expected {expected}"),
    }
}

/// Parses a finite number.
pub fn finite(text: &str) -> Result<f32, String> {
    real(text, "a number", |_| true)
}

/// Parses a finite number of at least 0.
pub fn from_zero(text: &str) -> Result<f32, String> {
    real(text, "0 or a positive number", |number| number >= 0.0)
}

/// Parses a finite number above 0.
pub fn above_zero(text: &str) -> Result<f32, String> {
    real(text, "a positive number", |number| number > 0.0)
}

/// Parses a number from 0 to 1.
pub fn probability(text: &str) -> Result<f32, String> {
    real(text, "a number from 0 to 1", |number| (0.0..=1.0).contains(&number))
}

fn real(text: &str, expected: &str, accepts: fn(f32) -> bool) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite() && accepts(*number));
    number.ok_or_else(|| format!("expected {expected}"))
}
