//! Upper limits for everything in a header. A file can claim any count, which costs time and memory before it is used,
//! so the limits are only a few times what the largest published files have.
//!
//! The largest vocabularies have 200,000 tokens and 450,000 merges, which take 12 MB; that of GLM-4.7-Flash takes 9 MB.
//! Metadata has fewer than a hundred keys. A model with a tensor for each expert of each layer has 45,000 tensors.

/// The maximum size of a header in bytes.
pub(super) const HEADER: usize = 48 << 20;
/// The maximum size of the headers of all files of a model together, in bytes. Usually only the first one has a
/// vocabulary.
pub(super) const HEADERS: usize = 4 * HEADER;
/// The maximum number of metadata keys.
pub(super) const KEYS: usize = 1 << 12;
/// The maximum length of a key in bytes. The format allows 65535.
pub(super) const KEY_BYTES: usize = 1 << 8;
/// The maximum number of elements in an array.
pub(super) const ELEMENTS: usize = 1 << 21;
/// The maximum depth of nested arrays. The format sets no limit, and published files do not nest arrays at all.
pub(super) const DEPTH: usize = 4;
/// The maximum number of tensors.
pub(super) const TENSORS: usize = 1 << 16;
/// The maximum length of a tensor's name in bytes. The format allows 64.
pub(super) const TENSOR_NAME_BYTES: usize = 1 << 7;
