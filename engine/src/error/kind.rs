//! What an app can do about an error, as one of a few kinds.

use super::Error;
use std::io;

/// What kind of failure an [`Error`] is: [`Error::kind`]. An app uses it to decide what to offer the user, and shows
/// the sentence that the error prints. The kind of a variant does not change from release to release, but kinds may be
/// added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A [`Cancel`](crate::Cancel) stopped the call. Nothing needs to be shown.
    Cancelled,
    /// Something does not fit into the memory of the GPU or of the computer. A shorter context or a smaller file helps,
    /// or closing other programs. The failed call has released what it had allocated.
    OutOfMemory,
    /// The device no longer exists. Open it again and load the model on it: [`Gpu::reopen`](crate::Gpu::reopen).
    DeviceLost,
    /// No GPU has the requested properties, or it cannot do what the kernels need. Another GPU or backend helps, or
    /// installing a driver.
    NoDevice,
    /// The GPU's driver failed, computes wrong results or does not finish. A newer driver or another GPU helps.
    Driver,
    /// A file is damaged, or is not a model. Use another file, or download it again.
    InvalidFile,
    /// A file or a request needs something that wglm does not support.
    Unsupported,
    /// An argument, a message, a schema or an option is wrong. The app or its user has to correct it.
    InvalidInput,
    /// A snapshot is damaged or belongs to another model. The app continues without it.
    InvalidSnapshot,
    /// The conversation is longer than the context. A new conversation, fewer messages or a larger context helps.
    ContextFull,
    /// What the call needs is in use, perhaps by another program. Repeat the call later.
    Busy,
    /// A server or the network failed. The call can be repeated; a download continues.
    Network,
    /// There is no such file, model or repository.
    NotFound,
    /// A server refused access: the repository is private or gated, or does not exist (some servers do not distinguish
    /// these). A token helps, or accepting the licence on the repository's page.
    AccessDenied,
    /// The operating system refused to read or write a file.
    Io,
    /// An error of the app's own: [`Error::App`].
    App,
    /// A defect of wglm, which should be reported.
    Internal,
}

impl Error {
    /// What kind of failure it is. The kind of an [`Error::File`] is that of its [cause](Error::cause).
    ///
    /// ```
    /// use wglm::{ErrorKind, Gguf};
    ///
    /// let error = Gguf::open("no such file.gguf").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { error, .. } => error.kind(),
            Self::Io { reason, .. } if reason.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            Self::Io { .. } => ErrorKind::Io,
            Self::HostMemory { .. } | Self::OutOfMemory { .. } | Self::TooLarge { .. } => ErrorKind::OutOfMemory,
            Self::ContextTooLarge { .. } | Self::NoResult | Self::Upload { .. } => ErrorKind::OutOfMemory,
            Self::NoThread { .. } => ErrorKind::OutOfMemory,
            Self::DeviceLost { .. } | Self::Forked => ErrorKind::DeviceLost,
            Self::NoAdapter { .. } | Self::Limit { .. } => ErrorKind::NoDevice,
            Self::Gpu { .. } | Self::WrongKernel { .. } | Self::Endless { .. } => ErrorKind::Driver,
            Self::NotGguf { .. } | Self::Gguf { .. } | Self::Metadata { .. } => ErrorKind::InvalidFile,
            Self::Tensor { .. } | Self::Tokenizer { .. } | Self::Template { .. } => ErrorKind::InvalidFile,
            Self::NotANumber => ErrorKind::InvalidFile,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Message { .. } | Self::Refused { .. } | Self::Constraint { .. } => ErrorKind::InvalidInput,
            Self::TokenOutOfRange { .. } | Self::NoToken { .. } | Self::Argument { .. } => ErrorKind::InvalidInput,
            Self::SeveralModels { .. } => ErrorKind::InvalidInput,
            Self::Snapshot { .. } => ErrorKind::InvalidSnapshot,
            Self::ContextFull { .. } => ErrorKind::ContextFull,
            Self::PoolFull { .. } | Self::Busy { .. } | Self::ChatInUse => ErrorKind::Busy,
            Self::Download { kind, .. } => *kind,
            Self::NoModel { .. } => ErrorKind::NotFound,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::App(error) => error.downcast_ref::<Self>().map_or(ErrorKind::App, Self::kind),
            Self::Shape { .. } | Self::Shader { .. } | Self::Worker { .. } => ErrorKind::Internal,
        }
    }
}
