//! Every way in which wglm can fail, as one type.
//!
//! An error prints as one sentence. It says what went wrong and where, what was expected, what was found and, if there
//! is one, the remedy. The library never panics on bad input: whatever a file, a driver or a caller does wrong becomes
//! an [`Error`].
//!
//! Each failure is detected where it happens: claims of a file are compared with its size before they cost anything
//! (`gguf`), shapes when a plan is built (`plan`), sizes before anything is uploaded (`model`), reports of wgpu
//! (`gpu/errors.rs`), work that a driver drops silently (`gpu/results.rs`), lost uploads (`model/verify.rs`), and
//! devices that drop everything (`gpu/dead.rs`).

mod kind;
mod verdict;

pub use kind::ErrorKind;
pub use verdict::{KernelFault, KernelFinding, Verdict};

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LockResult, PoisonError};

/// The result of an operation that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which wglm can fail. Cloning is cheap, so an app can keep an error and show it as well.
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
        /// The operating system's reason. Clones of the error share it.
        reason: Arc<std::io::Error>,
    },

    /// An error about the contents of a file, together with the file's path. [`Error::cause`] returns the error without
    /// the path.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        error: Box<Error>,
    },

    /// The bytes are not a GGUF file.
    #[error("not a GGUF file: {found}")]
    NotGguf {
        /// What the bytes look like instead, and what to do about it.
        found: String,
    },

    /// The host has too little memory for an allocation.
    #[error("out of memory while {doing} ({}); close other programs", Size(*bytes))]
    HostMemory {
        /// What the memory was needed for.
        doing: &'static str,
        /// The size of the allocation in bytes.
        bytes: u64,
    },

    /// The bytes are not a well-formed GGUF file.
    #[error("broken GGUF file: {place}: expected {expected}, found {found}")]
    Gguf {
        /// The header field, metadata key or tensor that is wrong, with its byte offset where that helps.
        place: String,
        /// What the format requires there.
        expected: String,
        /// What the file holds there.
        found: String,
    },

    /// A metadata key is absent, has the wrong type, or holds an impossible value.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    Metadata {
        /// The key.
        key: String,
        /// The type or range that was expected.
        expected: String,
        /// What the file holds, or `nothing` if the key is absent.
        found: String,
    },

    /// A tensor is absent, or its shape contradicts the model's hyper-parameters. Shapes list the innermost dimension
    /// first.
    #[error("tensor `{name}`: expected {expected}, found {found}")]
    Tensor {
        /// The tensor's GGUF name.
        name: String,
        /// The shape or property that the hyper-parameters require.
        expected: String,
        /// What the file holds, or `nothing` if the tensor is absent.
        found: String,
    },

    /// The file is well-formed but needs something that wglm does not support.
    #[error("{what} is not supported: {found}; {remedy}")]
    Unsupported {
        /// The feature, or the place in the file that asks for it.
        what: String,
        /// What the file or the machine has there, as a value or a clause.
        found: String,
        /// What is supported, or what to do about it.
        remedy: String,
    },

    /// The shapes of a kernel's tensors do not fit together. Shapes list the innermost dimension first.
    #[error("{op}: tensor `{tensor}` has shape {got}, expected {want}")]
    Shape {
        /// The kernel.
        op: &'static str,
        /// The argument or tensor whose shape is wrong.
        tensor: String,
        /// The shape it has.
        got: String,
        /// The shape it should have.
        want: String,
    },

    /// A tensor or buffer is larger than the adapter allows for one binding or one buffer.
    #[error(
        "`{tensor}` needs {} in one piece, but this GPU allows {} ({limit}); {remedy}",
        Size(*bytes),
        Size(*allowed)
    )]
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

    /// The KV cache of one layer is larger than the adapter allows for one binding or one buffer.
    #[error(
        "a context of {context} tokens needs {} per layer, but this GPU allows {}; use a context of at most {most}",
        Size(*bytes),
        Size(*allowed)
    )]
    ContextTooLarge {
        /// The requested context in tokens.
        context: usize,
        /// The size in bytes of one layer's cache for that context.
        bytes: u64,
        /// The size in bytes that the adapter allows.
        allowed: u64,
        /// The largest context, in tokens, that fits.
        most: usize,
    },

    /// A limit of the device is below what the kernels need.
    #[error("the GPU's {limit} is {found}, but wglm needs {expected}; {remedy}")]
    Limit {
        /// The limit's name in WebGPU.
        limit: &'static str,
        /// The value that wglm needs.
        expected: u64,
        /// The limit's value on this device.
        found: u64,
        /// What to do about it.
        remedy: &'static str,
    },

    /// No adapter matches the request.
    #[error("no GPU found {wanted}; available: {available}; {remedy}")]
    NoAdapter {
        /// What was requested: a name, a backend, or `at all`.
        wanted: String,
        /// The adapters that were found.
        available: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// The GPU has too little memory for an allocation.
    #[error("out of GPU memory while {doing}{}; use a smaller context or file, or close other programs", in_brackets(*bytes))]
    OutOfMemory {
        /// What was being done.
        doing: String,
        /// The size of the allocation in bytes; 0 if the driver does not say.
        bytes: u64,
    },

    /// The driver or wgpu refused an operation. That is a defect of wglm or of the driver.
    #[error("the GPU failed while {doing}: {message}")]
    Gpu {
        /// What was being done.
        doing: String,
        /// The message of the driver or of wgpu.
        message: String,
    },

    /// The device no longer exists, because it was unplugged, reset by its driver, or destroyed by its owner; or it no
    /// longer does any work: its last three submissions were reported as done but returned nothing, which is what Metal
    /// does after some errors. See [`Gpu::reopen`](crate::Gpu::reopen).
    #[error("the GPU was lost: {reason}; open it and load the model again")]
    DeviceLost {
        /// The driver's reason.
        reason: String,
    },

    /// A shader that wglm composed does not parse or validate. That is a defect of wglm.
    #[error("shader `{variant}`: {message}")]
    Shader {
        /// The label of the shader variant.
        variant: String,
        /// The compiler's message, with the WGSL file and line.
        message: String,
    },

    /// Every logit is NaN or infinite: the file is damaged, or its weights overflow f32.
    #[error("all logits are NaN or infinite; the file may be damaged")]
    NotANumber,

    /// The GPU reported its work as done, but left no result or an old one. This happens when a driver gives up on the
    /// work without reporting it: Metal, for example, when memory runs out while the work is running. A test submission
    /// succeeded, so the device still works; otherwise the error is [`Error::DeviceLost`].
    #[error(
        "the GPU returned no result, probably because it ran out of memory; use a smaller context or file, or close \
         other programs"
    )]
    NoResult,

    /// Weights on the GPU differ from what was sent there. Either the driver gave up on a part of the upload without
    /// reporting it, or the memory is faulty.
    #[error(
        "{count} of {total} weights were corrupted on their way to the GPU, the first is `{tensor}`; load the model \
         again, and if that fails too, close other programs, or use a smaller file or another GPU"
    )]
    Upload {
        /// The name of the first corrupted weight, in the order in which the model uses its weights.
        tensor: String,
        /// How many weights are corrupted.
        count: usize,
        /// How many weights the model has.
        total: usize,
    },

    /// The operating system refused to start a thread.
    #[error("cannot start a thread for {doing}: {reason}; close other programs")]
    NoThread {
        /// What the thread was needed for.
        doing: &'static str,
        /// The operating system's reason. Clones of the error share it.
        reason: Arc<std::io::Error>,
    },

    /// A worker thread panicked. That is a defect of wglm.
    #[error("a worker thread died while {doing}; please report it")]
    Worker {
        /// What the thread was doing.
        doing: &'static str,
    },

    /// The vocabulary has a defect.
    #[error("tokenizer: {message}")]
    Tokenizer {
        /// What is wrong and where.
        message: String,
    },

    /// A message of a conversation cannot become part of a prompt. The author of the message has to correct it; the
    /// model file is not at fault.
    #[error("message {index} of the conversation: {what}: expected {expected}, found {found}")]
    Message {
        /// The index of the message in the conversation, from 0.
        index: usize,
        /// The part of the message that is wrong.
        what: &'static str,
        /// What is accepted.
        expected: String,
        /// What was given.
        found: String,
    },

    /// The chat template refused the conversation, for example because roles do not alternate as the template requires.
    #[error("the model's chat template refuses the conversation: {reason}")]
    Refused {
        /// The reason that the template gives.
        reason: String,
    },

    /// The chat template of the file does not parse, or uses something that does not exist.
    #[error("chat template: {message}")]
    Template {
        /// The message of the template engine, with the line if it is known.
        message: String,
    },

    /// A reply's constraint is malformed or not supported, or no text can match it.
    #[error("{kind}{}: {message}", at(place))]
    Constraint {
        /// The kind of the constraint.
        kind: &'static str,
        /// The part of the constraint that is wrong: the path within a schema, such as `#/properties/age`; empty if the
        /// message says it.
        place: String,
        /// What is wrong.
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

    /// A text has a character that the vocabulary cannot express.
    #[error("the vocabulary has no token for the byte {byte:#04x} in {word:?}; leave the character out")]
    NoToken {
        /// The byte of the character's UTF-8 that has no token.
        byte: u8,
        /// The beginning of the word that has the character.
        word: String,
    },

    /// The session's KV cache has no room for another token.
    #[error("the context is full: {needed} tokens needed, {context} available; start over or use a larger context")]
    ContextFull {
        /// The number of tokens that the cache would have to hold. A lower bound if the text was too long to be
        /// encoded.
        needed: usize,
        /// The number of tokens that the cache can hold.
        context: usize,
    },

    /// The KV cache that the sessions of a pool share has no room for more tokens.
    #[error(
        "the pool's KV cache is full: {needed} more pages of 256 tokens needed, {free} free; rewind or drop a session, or \
         make the pool larger"
    )]
    PoolFull {
        /// The number of pages that the session needs in addition to those it has.
        needed: usize,
        /// The number of pages that no session holds.
        free: usize,
    },

    /// The queue of a [`Scheduler`](crate::Scheduler) is full.
    #[error("the queue is full: {waiting} requests waiting, at most {most} allowed; try again later")]
    Busy {
        /// The number of waiting requests.
        waiting: usize,
        /// The largest number that may wait.
        most: usize,
    },

    /// A [`SharedChat`](crate::SharedChat) is in use: one of its replies is being generated, or another call has the
    /// conversation.
    #[error(
        "the conversation is in use by a reply or another call; take the last event of the reply or drop it, then try \
         again"
    )]
    ChatInUse,

    /// A snapshot is damaged, or belongs to another model or another type of cache.
    #[error("cannot restore the snapshot: {what}: expected {expected}, found {found}")]
    Snapshot {
        /// What is wrong.
        what: &'static str,
        /// What was expected.
        expected: String,
        /// What the snapshot holds.
        found: String,
    },

    /// An argument is outside the range that a function accepts.
    #[error("{argument}: expected {expected}, found {found}")]
    Argument {
        /// The name of the argument.
        argument: &'static str,
        /// What is accepted.
        expected: String,
        /// What was given.
        found: String,
    },

    /// A kernel cannot be used on the adapter, and the load could not continue without it: there is no other kernel for
    /// the operation, or the GPU stopped working when the kernel ran. The next load avoids the kernel if it is given
    /// the verdict: see [`Check`](crate::Check).
    #[error("kernel `{kernel}` {fault} on `{adapter}`: {place}; {remedy}")]
    WrongKernel {
        /// The kernel's name.
        kernel: String,
        /// What is wrong with it.
        fault: KernelFault,
        /// The adapter.
        adapter: String,
        /// The step and the value that is wrong, or the shader and the compiler's message.
        place: String,
        /// What to do about it.
        remedy: &'static str,
        /// Everything that the load had found by then. Clones of the error share it.
        verdict: Arc<Verdict>,
    },

    /// The driver did not finish something in time.
    #[error("{doing} did not finish within {seconds} s; update the driver, restart the system, or use another GPU")]
    Endless {
        /// What did not finish.
        doing: String,
        /// How long wglm waited, in seconds.
        seconds: u64,
    },

    /// No model on this machine, or in a repository, has this name.
    #[error("no model `{name}`: found {found}; {remedy}")]
    NoModel {
        /// The name.
        name: String,
        /// What there is instead.
        found: String,
        /// What to do about it.
        remedy: String,
    },

    /// Several models on this machine share a name that was given without a label.
    #[error("`{name}` is ambiguous: {count} models have this name; use one of {names}")]
    SeveralModels {
        /// The name.
        name: String,
        /// How many there are.
        count: usize,
        /// Their whole names.
        names: String,
    },

    /// A server could not be reached, refused a request, or sent something unexpected.
    #[error("cannot get {what}: {reason}; {remedy}")]
    Download {
        /// The repository or file.
        what: String,
        /// What the server or the network did.
        reason: String,
        /// What to do about it.
        remedy: String,
        /// The [kind](Error::kind) of the failure: [`ErrorKind::NotFound`], [`ErrorKind::AccessDenied`],
        /// [`ErrorKind::Busy`] if another program is downloading the same, otherwise [`ErrorKind::Network`].
        kind: ErrorKind,
    },

    /// The process was forked after the GPU was opened. A driver's state does not survive a fork, so only the process
    /// that opened the GPU can use it.
    #[error("the GPU was opened before the process was forked; open it and load the model in the new process")]
    Forked,

    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,

    /// An error of the app's own, from a [`Chooser`](crate::Chooser) or another callback. It prints as that error does.
    /// Clones share it. See [`Error::app`].
    #[error(transparent)]
    App(Arc<dyn std::error::Error + Send + Sync>),
}

/// What a lock guards, or what a wait for a change returns, even if another thread panicked while it held the lock. For
/// data that such a panic leaves valid.
pub(crate) fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl Error {
    /// An error of the app's own, for callbacks that return a [`Result`]. The reply, or the call, ends with it. A wglm
    /// error is returned unchanged, so that it keeps its [kind](Error::kind) when it passes through a callback.
    ///
    /// ```
    /// use wglm::{Error, ErrorKind};
    ///
    /// let error = Error::app(std::fmt::Error);
    /// assert_eq!(error.kind(), ErrorKind::App);
    /// let Error::App(inner) = &error else { unreachable!() };
    /// assert!(inner.downcast_ref::<std::fmt::Error>().is_some());
    /// assert_eq!(Error::app(Error::Cancelled).kind(), ErrorKind::Cancelled);
    /// ```
    pub fn app(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let error: Box<dyn std::error::Error + Send + Sync> = error.into();
        error.downcast().map_or_else(|error| Self::App(error.into()), |own| *own)
    }

    /// An [`Error::Argument`].
    pub(crate) fn argument(argument: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Argument { argument, expected: expected.into(), found: found.into() }
    }

    /// Makes an [`Error::Io`] of the operating system's reason.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |reason| Self::Io { action, path: path.into(), reason: reason.into() }
    }

    /// An [`Error::Unsupported`].
    pub(crate) fn unsupported(what: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), found: found.into(), remedy: remedy.into() }
    }

    /// The error without the path of the file that it is about.
    pub fn cause(&self) -> &Self {
        if let Self::File { error, .. } = self { error.cause() } else { self }
    }

    /// What a failed load found out about kernels. An app should save it as it saves
    /// [`Model::verdict`](crate::Model::verdict), so that the next load avoids the kernel that this one failed with.
    pub fn verdict(&self) -> Option<&Verdict> {
        if let Self::WrongKernel { verdict, .. } = self.cause() { Some(verdict) } else { None }
    }

    /// Adds the path of the file to an error about a file's contents, unless the error has a path already.
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

/// A number of bytes as messages and the command print it: `3.0 GiB`, in units of 1024 like those of llama.cpp and GPU
/// drivers. Numbers below 100 have one decimal.
#[doc(hidden)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let Some((unit, bits)) = UNITS.iter().find(|(_, bits)| self.0 >> bits > 0) else {
            return write!(f, "{} bytes", self.0);
        };
        let count = self.0 as f64 / (1_u64 << bits) as f64;
        write!(f, "{count:.*} {unit}", usize::from(count < 99.95))
    }
}

/// The location of a mistake, or nothing if the message gives it.
fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(", {place}") }
}

/// A size in brackets, or nothing if the size is unknown.
fn in_brackets(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(" ({})", Size(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, Size};
    use std::sync::Arc;

    #[test]
    fn an_error_that_passes_through_a_callback_keeps_its_kind() {
        let lost = Error::DeviceLost { reason: "unplugged".into() };
        assert!(matches!(Error::app(lost.clone()), Error::DeviceLost { .. }));
        assert_eq!(Error::App(Arc::new(lost)).kind(), ErrorKind::DeviceLost);
        assert_eq!(Error::app("the budget is spent").kind(), ErrorKind::App);
    }

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1023, 1024, 10_300, 128 << 20, 3_200_000_000, u64::MAX].map(|bytes| Size(bytes).to_string());
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "1.0 KiB", "10.1 KiB", "128 MiB", "3.0 GiB", "17179869184 GiB"]);
    }

    #[test]
    fn an_unknown_size_is_left_out() {
        let message = |bytes| Error::OutOfMemory { doing: "reading results".into(), bytes }.to_string();
        assert!(message(0).starts_with("out of GPU memory while reading results; "), "{}", message(0));
        assert!(message(5 << 20).contains("reading results (5.0 MiB); "), "{}", message(5 << 20));
    }
}
