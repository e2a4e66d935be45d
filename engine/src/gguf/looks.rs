//! Guesses from its first bytes what a file is that is not GGUF, and says what to do about it.

use super::reader::quoted;

const CONVERT: &str = "download the model as a GGUF file, or convert it with llama.cpp's `convert_hf_to_gguf.py`";

/// Describes a file of `bytes` bytes by its first bytes.
pub(super) fn like(first: &[u8], bytes: usize) -> String {
    let (what, remedy) = match first {
        [] => ("it is empty", "download it again"),
        _ if is_web_page(first) => ("it is a web page", "download the file itself, not the page about it"),
        _ if first.starts_with(b"version https://git-lfs") => {
            ("it is a Git LFS pointer, not the file itself", "fetch the file with `git lfs pull`")
        }
        _ if is_safetensors(first, bytes) => ("it is a safetensors file", CONVERT),
        _ if first.starts_with(b"PK\x03\x04") => ("it is a zip archive, as PyTorch writes them", CONVERT),
        _ if [b"lmgg", b"fmgg", b"tjgg", b"algg"].iter().any(|magic| first.starts_with(*magic)) => {
            ("it has a format older than GGUF", CONVERT)
        }
        _ => return format!("it begins with {}", quoted(&first[..first.len().min(16)])),
    };
    format!("{what}; {remedy}")
}

fn is_web_page(first: &[u8]) -> bool {
    let text = first.trim_ascii_start();
    let begins = |with: &[u8]| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    begins(b"<!doctype html") || begins(b"<html")
}

/// Whether the file begins like safetensors: with the length of a JSON header, then the header.
fn is_safetensors(first: &[u8], bytes: usize) -> bool {
    let Some((length, header)) = first.split_first_chunk::<8>() else { return false };
    header.starts_with(b"{") && u64::from_le_bytes(*length) < bytes as u64
}
