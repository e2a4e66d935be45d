//! Every way wglm can fail, as one type.
//!
//! A message is one readable sentence: what went wrong, where, what was expected, what was found
//! and, where there is one, the remedy. Nothing in the library panics on bad input; whatever a file,
//! a driver or a caller does wrong arrives here.

use std::path::PathBuf;
use std::sync::Arc;

/// The result of anything in wglm that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way wglm can fail. Clones are cheap: an app may keep an error and show it as well.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, map, read or write a file.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was attempted, as a verb: `open`, `map`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason, which clones share.
        reason: Arc<std::io::Error>,
    },

    /// The bytes are not a well-formed GGUF file.
    #[error("broken GGUF file: {place}: expected {expected}, found {found}")]
    Gguf {
        /// The header field, metadata key or tensor at fault, with its byte offset where that helps.
        place: String,
        /// What the format asks for there.
        expected: String,
        /// What the file holds there.
        found: String,
    },

    /// A metadata key is absent, of the wrong type, or holds a value that cannot be.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    Metadata {
        /// The key.
        key: String,
        /// The type or range that was expected.
        expected: String,
        /// What the file holds; `nothing` for a missing key.
        found: String,
    },

    /// A tensor is absent, or its shape contradicts the hyper-parameters. Shapes are innermost first.
    #[error("tensor `{name}`: expected {expected}, found {found}")]
    Tensor {
        /// The tensor's GGUF name.
        name: String,
        /// The shape or property the hyper-parameters ask for.
        expected: String,
        /// What the file holds; `nothing` for a missing tensor.
        found: String,
    },

    /// The file is well-formed but asks for something wglm does not do.
    #[error("{what} is not supported: found {found}; {remedy}")]
    Unsupported {
        /// The feature, by the name the file gives it.
        what: String,
        /// What the file holds.
        found: String,
        /// What is supported, or what to do about it.
        remedy: String,
    },

    /// A kernel was given tensors whose shapes do not fit together. Shapes are innermost first.
    #[error("{op}: tensor `{tensor}` has shape {got}, expected {want}")]
    Shape {
        /// The kernel.
        op: &'static str,
        /// The argument or tensor at fault.
        tensor: String,
        /// The shape it has.
        got: String,
        /// The shape it should have.
        want: String,
    },

    /// A tensor or buffer does not fit what the adapter allows for one binding or buffer.
    #[error("`{tensor}` needs {bytes} bytes in one piece, but the adapter's {limit} is {allowed} bytes; {remedy}")]
    TooLarge {
        /// The tensor or buffer.
        tensor: String,
        /// The bytes it needs.
        bytes: u64,
        /// The limit's name in WebGPU.
        limit: &'static str,
        /// The limit's value on this adapter, in bytes.
        allowed: u64,
        /// What to do about it.
        remedy: &'static str,
    },

    /// A device allows less than kernels need.
    #[error("the device's {limit} is {found}, but kernels need {expected}; {remedy}")]
    Limit {
        /// The limit's name in WebGPU.
        limit: &'static str,
        /// The least it may be.
        expected: u64,
        /// The limit's value on this device.
        found: u64,
        /// What to do about it.
        remedy: &'static str,
    },

    /// No adapter fits the request.
    #[error("no GPU adapter found {wanted}; available: {available}; {remedy}")]
    NoAdapter {
        /// The request: a name, a backend, or `at all`.
        wanted: String,
        /// The adapters that were found.
        available: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// The GPU has no memory left for what was asked of it.
    #[error(
        "out of GPU memory while {doing} ({bytes} bytes); use a shorter context or a smaller file, or close other programs"
    )]
    OutOfMemory {
        /// What was being done.
        doing: String,
        /// The bytes this step asked for; 0 where the driver does not say.
        bytes: u64,
    },

    /// The driver or wgpu refused an operation: a defect in wglm or in the driver.
    #[error("the GPU refused {doing}: {message}")]
    Gpu {
        /// What was being done.
        doing: String,
        /// The driver's or wgpu's own words.
        message: String,
    },

    /// The device is gone: unplugged, reset by its driver, or destroyed by its owner.
    #[error("the GPU device was lost: {reason}; open the device and load the model again")]
    DeviceLost {
        /// The driver's reason.
        reason: String,
    },

    /// A composed shader does not parse or validate: a defect in wglm.
    #[error("shader {variant}: {message}")]
    Shader {
        /// The variant's label.
        variant: String,
        /// The compiler's message, with the WGSL file and line.
        message: String,
    },

    /// Every logit is NaN or infinite: the file is damaged, or its weights overflow f32.
    #[error("no logit is a number; the file may be damaged")]
    NotANumber,

    /// The GPU was done with its work and had left no result, or an old one: the driver gave up without saying so, as
    /// Metal does where memory runs out while work is running.
    #[error(
        "the GPU left no result and no error, most likely for want of memory; use a shorter context or a smaller file, \
         or close other programs"
    )]
    NoResult,

    /// Weights on the GPU are not what was sent there: the driver gave up on a part of the upload without saying so, or
    /// memory is broken.
    #[error(
        "{count} of {total} weights did not arrive on the GPU as they were sent, the first of them `{tensor}`; load the \
         model again, and if that fails as well, close other programs, or use a smaller file or another adapter"
    )]
    Upload {
        /// The first of them, in the order in which the model uses them.
        tensor: String,
        /// How many.
        count: usize,
        /// Of how many.
        total: usize,
    },

    /// A worker thread died: a defect in wglm.
    #[error("a worker thread died while {doing}; please report it")]
    Worker {
        /// What it was doing.
        doing: &'static str,
    },

    /// The tokenizer cannot be built or does not know the input.
    #[error("tokenizer: {message}")]
    Tokenizer {
        /// What is wrong and where.
        message: String,
    },

    /// A message of a conversation is not one that a prompt can be made of: whoever wrote it, not the file, is to
    /// mend it.
    #[error("message {index} of the conversation: {what}: expected {expected}, found {found}")]
    Message {
        /// Its place in the conversation, from 0.
        index: usize,
        /// What of it is wrong.
        what: &'static str,
        /// What is accepted.
        expected: String,
        /// What was given.
        found: String,
    },

    /// The chat template refused the conversation, such as one whose roles do not alternate where they should.
    #[error("the model's chat template refuses the conversation: {reason}")]
    Refused {
        /// The template's own words.
        reason: String,
    },

    /// The chat template of the file does not parse, or asks for what is not there.
    #[error("chat template: {message}")]
    Template {
        /// The template engine's message, with the line where there is one.
        message: String,
    },

    /// A token id is not in the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab} tokens")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// The number of tokens in the vocabulary.
        vocab: usize,
    },

    /// The session's cache has no room for another token.
    #[error("the context is full: {needed} tokens needed, {context} available; start over or ask for a longer context")]
    ContextFull {
        /// Tokens the cache would have to hold.
        needed: usize,
        /// Tokens the cache can hold.
        context: usize,
    },

    /// A snapshot is damaged, or was taken of another model or another kind of cache.
    #[error("the snapshot cannot be restored: {what}: expected {expected}, found {found}")]
    Snapshot {
        /// What is wrong.
        what: &'static str,
        /// What was expected.
        expected: String,
        /// What the snapshot holds.
        found: String,
    },

    /// An argument of a call is outside what the call accepts.
    #[error("{argument}: expected {expected}, found {found}")]
    Argument {
        /// The argument.
        argument: &'static str,
        /// What is accepted.
        expected: String,
        /// What was given.
        found: String,
    },

    /// A kernel computes something else than it should, with and without all that kernels can do without: see
    /// [`Check`](crate::Check).
    #[error(
        "the kernel `{kernel}` computes wrong values on `{adapter}`: {place}; update the driver or use another adapter"
    )]
    WrongKernel {
        /// The kernel's name.
        kernel: String,
        /// The adapter.
        adapter: String,
        /// The step and the output, what it is and what it should be.
        place: String,
    },

    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
}
