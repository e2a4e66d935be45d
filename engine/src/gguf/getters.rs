//! Getters of metadata by key and type. The getter for a required key is named after the type. The same getter with
//! `opt_` returns `None` if the key is absent, but still returns an error for a wrong value. Errors say what the key
//! holds. If the file has a path, every error is inside an [`Error::File`].

use super::Gguf;
use super::convert::FromValue;
use crate::error::{Error, Result};

macro_rules! getters {
    ($($name:ident, $optional:ident: $type:ty, $what:literal;)*) => {
        impl Gguf {
            $(
                #[doc = concat!($what, ".")]
                ///
                /// # Errors
                /// [`Error::Metadata`] if it is absent or holds anything else.
                pub fn $name(&self, key: &str) -> Result<$type> {
                    self.required(key)
                }

                #[doc = concat!($what, ", or `None`.")]
                ///
                /// # Errors
                /// [`Error::Metadata`] if it holds anything else.
                pub fn $optional(&self, key: &str) -> Result<Option<$type>> {
                    self.optional(key)
                }
            )*
        }
    };
}

getters! {
    u32, opt_u32: u32, "An integer from 0 to 2³² − 1";
    i32, opt_i32: i32, "An integer from −2³¹ to 2³¹ − 1";
    u64, opt_u64: u64, "An integer from 0 to 2⁶⁴ − 1";
    f32, opt_f32: f32, "A finite float, rounded if it is one of 64 bits";
    bool, opt_bool: bool, "A truth value";
    string, opt_string: &str, "A string, which must be UTF-8";
    strings, opt_strings: Vec<&str>, "An array of strings, each of which must be UTF-8";
    u32s, opt_u32s: Vec<u32>, "An array of integers from 0 to 2³² − 1";
    i32s, opt_i32s: Vec<i32>, "An array of integers from −2³¹ to 2³¹ − 1";
    f32s, opt_f32s: Vec<f32>, "An array of finite floats";
}

impl Gguf {
    fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        let absent = || Error::Metadata { key: key.into(), expected: T::EXPECTED.into(), found: "nothing".into() };
        self.optional(key)?.ok_or_else(absent).map_err(|error| self.name(error))
    }

    fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let first = self.first();
        first.header.metadata.read(first.bytes(), key).map_err(|error| self.name(error))
    }
}
