//! Every way wglm can fail, as one type.
//!
//! A message is one readable sentence: what went wrong, where, what was expected, what was found
//! and, where there is one, the remedy. Nothing in the library panics on bad input; whatever a file,
//! a driver or a caller does wrong arrives here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of anything in wglm that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way wglm can fail. Clones are cheap: an app may keep an error and show it as well.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read or write a file.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was attempted, as a verb: `open`, `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason, which clones share.
        reason: Arc<std::io::Error>,
    },

    /// Another error about what a file says, with the file's path: see [`Error::cause`].
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it: any of the errors that are about what a file says.
        error: Box<Error>,
    },

    /// The bytes are no GGUF file at all.
    #[error("not a GGUF file: {found}")]
    NotGguf {
        /// What they look like, and what helps.
        found: String,
    },

    /// The host has no memory left for what was asked of it.
    #[error("out of memory while {doing} ({}); close other programs", Size(*bytes))]
    HostMemory {
        /// What was being done.
        doing: &'static str,
        /// The bytes this step asked for.
        bytes: u64,
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
    #[error("`{tensor}` needs {} in one piece, this GPU allows {} ({limit}); {remedy}", Size(*bytes), Size(*allowed))]
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

    /// The KV cache of a layer does not fit what the adapter allows for one binding or buffer.
    #[error(
        "a context of {context} tokens needs {} per layer, this GPU allows {}; use a context of at most {most}",
        Size(*bytes),
        Size(*allowed)
    )]
    ContextTooLarge {
        /// The tokens asked for.
        context: usize,
        /// The bytes that a layer needs for them.
        bytes: u64,
        /// What the adapter allows, in bytes.
        allowed: u64,
        /// The tokens that it has room for.
        most: usize,
    },

    /// A device allows less than kernels need.
    #[error("the GPU's {limit} is {found}, wglm needs {expected}; {remedy}")]
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
    #[error("no GPU found {wanted}; available: {available}; {remedy}")]
    NoAdapter {
        /// The request: a name, a backend, or `at all`.
        wanted: String,
        /// The adapters that were found.
        available: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// The GPU has no memory left for what was asked of it.
    #[error("out of GPU memory while {doing}{}; use a smaller context or file, or close other programs", told(*bytes))]
    OutOfMemory {
        /// What was being done.
        doing: String,
        /// The bytes this step asked for; 0 where the driver does not say.
        bytes: u64,
    },

    /// The driver or wgpu refused an operation: a defect in wglm or in the driver.
    #[error("the GPU failed while {doing}: {message}")]
    Gpu {
        /// What was being done.
        doing: String,
        /// The driver's or wgpu's own words.
        message: String,
    },

    /// The device is gone: unplugged, reset by its driver, or destroyed by its owner.
    #[error("the GPU was lost: {reason}; open it and load the model again")]
    DeviceLost {
        /// The driver's reason.
        reason: String,
    },

    /// A composed shader does not parse or validate: a defect in wglm.
    #[error("shader `{variant}`: {message}")]
    Shader {
        /// The variant's label.
        variant: String,
        /// The compiler's message, with the WGSL file and line.
        message: String,
    },

    /// Every logit is NaN or infinite: the file is damaged, or its weights overflow f32.
    #[error("all logits are NaN or infinite; the file may be damaged")]
    NotANumber,

    /// The GPU was done with its work and had left no result, or an old one: the driver gave up without saying so, as
    /// Metal does where memory runs out while work is running.
    #[error(
        "the GPU returned no result, probably because it ran out of memory; use a smaller context or file, or close \
         other programs"
    )]
    NoResult,

    /// Weights on the GPU are not what was sent there: the driver gave up on a part of the upload without saying so, or
    /// memory is broken.
    #[error(
        "{count} of {total} weights were corrupted on their way to the GPU, the first is `{tensor}`; load the model \
         again, and if that fails too, close other programs, or use a smaller file or another GPU"
    )]
    Upload {
        /// The first of them, in the order in which the model uses them.
        tensor: String,
        /// How many.
        count: usize,
        /// Of how many.
        total: usize,
    },

    /// The operating system refused a thread.
    #[error("no thread for {doing}: {reason}; close other programs")]
    NoThread {
        /// What it was wanted for.
        doing: &'static str,
        /// The operating system's reason, which clones share.
        reason: Arc<std::io::Error>,
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
    #[error("the context is full: {needed} tokens needed, {context} available; start over or use a larger context")]
    ContextFull {
        /// Tokens the cache would have to hold.
        needed: usize,
        /// Tokens the cache can hold.
        context: usize,
    },

    /// A snapshot is damaged, or was taken of another model or another kind of cache.
    #[error("cannot restore the snapshot: {what}: expected {expected}, found {found}")]
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
    #[error("kernel `{kernel}` gives wrong results on `{adapter}`: {place}; update the driver or use another GPU")]
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

impl Error {
    /// What is wrong, without the file that it is wrong with.
    pub fn cause(&self) -> &Self {
        if let Self::File { error, .. } = self { error.cause() } else { self }
    }

    /// Names the file that an error is about, if it is about what a file says and does not name it already.
    pub(crate) fn in_file(self, path: Option<&Path>) -> Self {
        let about_a_file = matches!(
            self,
            Self::NotGguf { .. }
                | Self::Gguf { .. }
                | Self::Metadata { .. }
                | Self::Tensor { .. }
                | Self::Unsupported { .. }
                | Self::Tokenizer { .. }
                | Self::Template { .. }
        );
        match path.filter(|_| about_a_file) {
            Some(path) => Self::File { path: path.into(), error: Box::new(self) },
            None => self,
        }
    }
}

/// Bytes in a message: `3.0 GiB`.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let Some((unit, bits)) = UNITS.iter().find(|(_, bits)| self.0 >> bits > 0) else {
            return write!(f, "{} bytes", self.0);
        };
        let count = self.0 as f64 / (1_u64 << bits) as f64;
        write!(f, "{count:.*} {unit}", usize::from(count < 10.0))
    }
}

/// What was asked for, in brackets, if that is known.
fn told(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(" ({})", Size(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::{Error, Size};

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1023, 1024, 10_300, 128 << 20, 3_200_000_000, u64::MAX].map(|bytes| Size(bytes).to_string());
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "1.0 KiB", "10 KiB", "128 MiB", "3.0 GiB", "17179869184 GiB"]);
    }

    #[test]
    fn a_size_that_is_not_known_is_not_told() {
        let told = |bytes| Error::OutOfMemory { doing: "reading results".into(), bytes }.to_string();
        assert!(told(0).starts_with("out of GPU memory while reading results; "), "{}", told(0));
        assert!(told(5 << 20).contains("reading results (5.0 MiB); "), "{}", told(5 << 20));
    }
}
