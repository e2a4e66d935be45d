//! Embeds the WGSL files of `wgsl/` in the program. A shader is composed of whole files laid end to end; no WGSL is
//! written in Rust.

mod variant;

pub use variant::{Constant, SourcePart, Variant};

/// The version of wglm that the files belong to.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One embedded WGSL file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// The path inside `wgsl/`.
    pub path: &'static str,
    /// The contents of the file.
    pub text: &'static str,
}

/// Embeds a file of `wgsl/` as a [`Source`].
macro_rules! source {
    ($path:literal) => {
        $crate::wgsl::Source { path: $path, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/wgsl/", $path)) }
    };
}
pub(crate) use source;
