//! Code that several tests share.

#![allow(dead_code)] // no test binary uses all of it

pub mod chats;
pub mod covering;
pub mod gguf_writer;
pub mod goldens;
pub mod gpu;
#[cfg(feature = "download")]
pub mod hub;
pub mod models;
pub mod split;
