//! The WGSL files under `wgsl/`, embedded. A shader variant is such files laid end to end; none is written in Rust.

/// The version of wglm that the files belong to.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One WGSL file, embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// The path below `wgsl/`.
    pub path: &'static str,
    /// The text.
    pub text: &'static str,
}

/// Embeds a file below `wgsl/` as a [`Source`].
macro_rules! source {
    ($path:literal) => {
        $crate::wgsl::Source { path: $path, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/wgsl/", $path)) }
    };
}
pub(crate) use source;
