//! Getters of metadata by key and type. The getter for a required key is named after the type. The same getter with
//! `opt_` returns `None` if the key is absent, but still returns an error for a wrong value. Errors say what the key
//! holds. If the file has a path, every error is inside an [`Error::File`].

use super::Gguf;
use super::convert::FromValue;
use crate::error::{Error, Result};

impl Gguf {
    /// An integer from 0 to 2³² − 1.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.required(key)
    }

    /// An integer from 0 to 2³² − 1, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>> {
        self.optional(key)
    }

    /// An integer from −2³¹ to 2³¹ − 1, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_i32(&self, key: &str) -> Result<Option<i32>> {
        self.optional(key)
    }

    /// An integer from 0 to 2⁶⁴ − 1.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn u64(&self, key: &str) -> Result<u64> {
        self.required(key)
    }

    /// An integer from 0 to 2⁶⁴ − 1, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>> {
        self.optional(key)
    }

    /// A finite float; a float of 64 bits is rounded.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.required(key)
    }

    /// A finite float, or `None`; a float of 64 bits is rounded.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        self.optional(key)
    }

    /// A truth value.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn bool(&self, key: &str) -> Result<bool> {
        self.required(key)
    }

    /// A truth value, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.optional(key)
    }

    /// A string, which must be UTF-8.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn string(&self, key: &str) -> Result<&str> {
        self.required(key)
    }

    /// A string, which must be UTF-8, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_string(&self, key: &str) -> Result<Option<&str>> {
        self.optional(key)
    }

    /// An array of strings, each of which must be UTF-8.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>> {
        self.required(key)
    }

    /// An array of strings, each of which must be UTF-8, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_strings(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.optional(key)
    }

    /// An array of integers from 0 to 2³² − 1.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>> {
        self.required(key)
    }

    /// An array of integers from 0 to 2³² − 1, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.optional(key)
    }

    /// An array of integers from −2³¹ to 2³¹ − 1.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>> {
        self.required(key)
    }

    /// An array of integers from −2³¹ to 2³¹ − 1, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.optional(key)
    }

    /// An array of finite floats.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it is absent or holds anything else.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>> {
        self.required(key)
    }

    /// An array of finite floats, or `None`.
    ///
    /// # Errors
    /// [`Error::Metadata`] if it holds anything else.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.optional(key)
    }

    fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        let absent = || Error::Metadata { key: key.into(), expected: T::EXPECTED.into(), found: "nothing".into() };
        self.optional(key)?.ok_or_else(absent).map_err(|error| self.name(error))
    }

    fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let first = self.first();
        first.header.metadata.read(first.bytes(), key).map_err(|error| self.name(error))
    }
}
