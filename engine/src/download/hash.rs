//! The hashes by which a hub identifies contents: the SHA-256, and for small files git's id, which is the SHA-1 of a
//! header and the contents.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The digits of a SHA-256.
const SHA256_DIGITS: usize = 64;
/// The digits of a git id.
const GIT_DIGITS: usize = 40;

/// The hash of a file while it is read: its SHA-256, and its git id if that is needed.
#[derive(Clone)]
pub(super) struct Hash {
    sha256: Sha256,
    git: Option<Sha1>,
}

impl Hash {
    /// Begins the hash of a file of `bytes` bytes, to be compared with `digits`.
    pub fn new(bytes: u64, digits: &str) -> Self {
        let git = (digits.len() == GIT_DIGITS).then(|| Sha1::new_with_prefix(format!("blob {bytes}\0")));
        Self { sha256: Sha256::new(), git }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.git.iter_mut().for_each(|git| git.update(bytes));
    }

    /// A description of the hash, if it is not the one with these digits.
    pub fn other_than(&self, digits: &str) -> Option<String> {
        let (name, found) = match self.git.as_ref().filter(|_| digits.len() == GIT_DIGITS) {
            Some(git) => ("its git id", hexadecimal(&git.clone().finalize())),
            None => ("its SHA-256", hexadecimal(&self.sha256.clone().finalize())),
        };
        (!found.eq_ignore_ascii_case(digits)).then(|| format!("{name} is {found}"))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text is a hash in hexadecimal digits.
pub(super) fn is_hash(text: &str) -> bool {
    [SHA256_DIGITS, GIT_DIGITS].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digits are those of `sha256sum` and `git hash-object`.
    #[test]
    fn hashes_are_those_of_other_programs() {
        let mut hash = Hash::new(6, &"0".repeat(40));
        hash.update(b"hel");
        hash.update(b"lo\n");
        assert_eq!(hash.other_than("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"), None);
        assert_eq!(hash.other_than("ce013625030ba8dba906f756967f9e9ca394464a"), None);
        let other = hash.other_than(&"0".repeat(40));
        assert_eq!(other.as_deref(), Some("its git id is ce013625030ba8dba906f756967f9e9ca394464a"));
        assert!(hash.other_than("").is_some());
    }
}
