//! Builds the byte-pair encoding model of a vocabulary.

use super::pretokenizer::VocabFamily;
use super::vocab::{failed, raw_byte};
use super::{TokenType, Vocab, byte_level};
use crate::error::Result;
use tokenizers::models::bpe::{BPE, Vocab as Ids};

/// Moves the tokens and merges out of `vocab` into a model. Reserved tokens, and merges that mention one, are left out,
/// so that no text is ever encoded to a reserved token.
pub(super) fn build(vocab: &mut Vocab, family: &VocabFamily) -> Result<BPE> {
    let (mut ids, mut reserved) = (Ids::default(), Ids::default());
    for ((text, kind), id) in std::mem::take(&mut vocab.tokens).into_iter().zip(&vocab.types).zip(0..) {
        let table = if kind.is_reserved(&text) { &mut reserved } else { &mut ids };
        table.entry(spelling(text, *kind)).or_insert(id);
    }
    let is_missing = |byte: u8| !ids.contains_key(byte_level::char_of(byte).encode_utf8(&mut [0; 4]));
    if let Some(byte) = (0..=255).find(|&byte| is_in_utf8(byte) && is_missing(byte)) {
        return Err(failed(format!("no token for the single byte {byte:#04x}: not a byte-level vocabulary")));
    }
    let merges = read_merges(&vocab.merges, &ids, &reserved)?;
    vocab.merges = Vec::new();
    // The crate's cache keeps up to 8 KB for each of 10,000 words in every thread that encodes, and a text of random
    // words fills it. Most of GLM's words are single tokens, which are looked up before any cache.
    let builder = BPE::builder().cache_capacity(0).ignore_merges(family.ignore_merges).vocab_and_merges(ids, merges);
    builder.build().map_err(|error| failed(error.to_string()))
}

/// Whether a byte occurs in UTF-8. DeepSeek's first vocabularies have no tokens for the other bytes: their `ø` is the
/// letter.
fn is_in_utf8(byte: u8) -> bool {
    !matches!(byte, 0xc0 | 0xc1 | 0xf5..)
}

/// A token's text in the byte-level alphabet. The file writes most tokens in that alphabet already, but not
/// user-defined tokens and raw bytes.
fn spelling(text: String, kind: TokenType) -> String {
    match kind {
        TokenType::UserDefined => byte_level::encode(&text),
        TokenType::Byte => raw_byte(&text).map_or(text, |byte| byte_level::char_of(byte).into()),
        _ => text,
    }
}

fn read_merges(merges: &[String], ids: &Ids, reserved: &Ids) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::with_capacity(merges.len());
    let mut joined = String::new();
    for (rank, merge) in merges.iter().enumerate() {
        let Some((left, right)) = merge.split_once(' ') else {
            return Err(failed(format!("merge {rank} is `{merge}`: expected two tokens separated by a space")));
        };
        joined.clear();
        joined.extend([left, right]);
        let parts = [left, right, joined.as_str()];
        if let Some(part) = parts.iter().find(|&&part| !ids.contains_key(part) && !reserved.contains_key(part)) {
            return Err(failed(format!("merge {rank} is `{merge}`, but there is no token `{part}`")));
        }
        if parts.iter().all(|&part| ids.contains_key(part)) {
            pairs.push((left.to_owned(), right.to_owned()));
        }
    }
    Ok(pairs)
}
