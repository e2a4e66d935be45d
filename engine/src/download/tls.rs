//! The cryptography behind TLS.
//!
//! By default it is graviola, whose code is Rust and proven assembly, so that nothing here needs a C compiler. It runs
//! on 64-bit processors of ARM and x86 that have instructions for AES. With the feature `tls-ring` it is ring, which is
//! older, more widely used and built with a C compiler. An app that has installed a provider for its whole process gets
//! that one.

#[cfg(not(feature = "tls-ring"))]
use crate::error::Error;
use crate::error::Result;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// The provider of cryptography: the process's own, ring if it was built in, or graviola.
///
/// # Errors
/// [`Error::Unsupported`] if that is graviola and the processor lacks an instruction that it needs.
pub(super) fn provider() -> Result<Arc<CryptoProvider>> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Ok(installed.clone());
    }
    built_in()
}

#[cfg(feature = "tls-ring")]
fn built_in() -> Result<Arc<CryptoProvider>> {
    Ok(Arc::new(rustls::crypto::ring::default_provider()))
}

#[cfg(not(feature = "tls-ring"))]
fn built_in() -> Result<Arc<CryptoProvider>> {
    graviola().ok_or_else(|| {
        let found = "it lacks instructions that graviola needs";
        let remedy = "build with the feature tls-ring, or download the file with another program";
        Error::unsupported("https on this processor", found, remedy)
    })
}

/// Graviola, if the processor has the instructions that it would panic without.
#[cfg(all(not(feature = "tls-ring"), any(target_arch = "aarch64", target_arch = "x86_64")))]
fn graviola() -> Option<Arc<CryptoProvider>> {
    has_instructions().then(|| Arc::new(rustls_graviola::default_provider()))
}

#[cfg(all(not(feature = "tls-ring"), not(any(target_arch = "aarch64", target_arch = "x86_64"))))]
fn graviola() -> Option<Arc<CryptoProvider>> {
    None
}

#[cfg(all(not(feature = "tls-ring"), target_arch = "x86_64"))]
fn has_instructions() -> bool {
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

#[cfg(all(not(feature = "tls-ring"), target_arch = "aarch64"))]
fn has_instructions() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("neon") && has!("aes") && has!("pmull") && has!("sha2")
}
