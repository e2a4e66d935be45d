//! Converts metadata values to Rust types.
//!
//! Programs that write GGUF disagree about types, so the conversion goes by the value and not by its stored type: it
//! accepts an integer of any type if the value fits, a float of either width, and, where one value is expected, an
//! array of equal values, since some files repeat a hyper-parameter for each layer.

use super::value::Value;

/// A type that a metadata value can be converted to.
pub(super) trait FromValue<'a>: Sized {
    /// The expectation, as error messages print it.
    const EXPECTED: &'static str;
    /// Converts the value, or describes it for an error message.
    fn from_value(value: Value<'a>) -> Result<Self, String>;
}

macro_rules! from_value {
    ($($type:ty: $count:ident($convert:ident), $expected:literal;)*) => {
        $(
            impl<'a> FromValue<'a> for $type {
                const EXPECTED: &'static str = $expected;
                fn from_value(value: Value<'a>) -> Result<Self, String> {
                    $count(value, $convert)
                }
            }
        )*
    };
}

from_value! {
    u32: one(integer), "an integer from 0 to 4294967295";
    i32: one(integer), "an integer from -2147483648 to 2147483647";
    u64: one(integer), "an integer from 0 to 18446744073709551615";
    f32: one(float), "a finite float";
    bool: one(truth), "a bool";
    &'a str: single(text), "a string in UTF-8";
    Vec<&'a str>: all(text), "an array of strings in UTF-8";
    Vec<u32>: all(integer), "an array of integers from 0 to 4294967295";
    Vec<i32>: all(integer), "an array of integers from -2147483648 to 2147483647";
    Vec<f32>: all(float), "an array of finite floats";
}

fn integer<T: TryFrom<i128>>(value: Value<'_>) -> Option<T> {
    value.integer()?.try_into().ok()
}

fn float(value: Value<'_>) -> Option<f32> {
    let v = match value {
        Value::F32(v) => v,
        Value::F64(v) => v as f32,
        _ => return None,
    };
    v.is_finite().then_some(v)
}

fn truth(value: Value<'_>) -> Option<bool> {
    if let Value::Bool(v) = value { Some(v) } else { None }
}

fn text(value: Value<'_>) -> Option<&str> {
    if let Value::String(v) = value { str::from_utf8(v).ok() } else { None }
}

/// Converts one value.
fn single<'a, T>(value: Value<'a>, convert: fn(Value<'a>) -> Option<T>) -> Result<T, String> {
    convert(value).ok_or_else(|| value.to_string())
}

/// Converts one value, or an array whose elements are all equal.
fn one<'a, T: PartialEq>(value: Value<'a>, convert: fn(Value<'a>) -> Option<T>) -> Result<T, String> {
    let Value::Array(array) = value else { return single(value, convert) };
    let first = array.iter().next().ok_or("an empty array")?;
    let converted = convert(first).ok_or_else(|| value.to_string())?;
    match array.iter().enumerate().find(|(_, element)| *element != first) {
        None => Ok(converted),
        Some((i, other)) => Err(format!("{value} whose elements differ: {first} at index 0, {other} at index {i}")),
    }
}

/// Converts every element of an array.
fn all<'a, T>(value: Value<'a>, convert: fn(Value<'a>) -> Option<T>) -> Result<Vec<T>, String> {
    let Value::Array(array) = value else { return Err(value.to_string()) };
    let wrong = |i, element: Value<'_>| format!("{value} with {element} at index {i}");
    array.iter().enumerate().map(|(i, element)| convert(element).ok_or_else(|| wrong(i, element))).collect()
}
