//! TLS without a C compiler: rustls with graviola, whose code is Rust and proven assembly. It runs on 64-bit processors
//! of ARM and x86 that have instructions for AES, which is all that can feed a GPU worth the name; elsewhere only
//! servers that are reached by `http` can be used.

use crate::error::{Error, Result};
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// What TLS is computed with.
///
/// # Errors
/// [`Error::Unsupported`] if the processor is not one of those.
pub(super) fn provider() -> Result<Arc<CryptoProvider>> {
    if !is_able() {
        return Err(Error::Unsupported {
            what: "https on this processor".into(),
            found: "one without the instructions that it needs".into(),
            remedy: "download the file with another program".into(),
        });
    }
    all()
}

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn all() -> Result<Arc<CryptoProvider>> {
    Ok(Arc::new(rustls_graviola::default_provider()))
}

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
fn all() -> Result<Arc<CryptoProvider>> {
    Err(Error::Cancelled) // `provider` has refused already
}

/// Whether there are the instructions that graviola would otherwise panic without.
#[cfg(target_arch = "x86_64")]
fn is_able() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("aes")
        && has!("pclmulqdq")
        && has!("ssse3")
        && has!("avx")
        && has!("avx2")
        && has!("adx")
        && has!("bmi1")
        && has!("bmi2")
}

#[cfg(target_arch = "aarch64")]
fn is_able() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("neon") && has!("aes") && has!("pmull") && has!("sha2")
}

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
fn is_able() -> bool {
    false
}
