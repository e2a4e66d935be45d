//! Errors by what an app can do about them.

use crate::event::Stop;
use wglm::{AskError, Error, ErrorKind};

/// A failed call. The variant says what an app can do about it, and `reason` is the sentence to show. A failed call
/// releases what it had allocated, and the next one can succeed.
#[derive(Debug, Clone, PartialEq, thiserror::Error, uniffi::Error)]
pub enum WglmError {
    /// A `Cancel` stopped the call. Nothing needs to be shown.
    #[error("{reason}")]
    Cancelled {
        /// The sentence to show.
        reason: String,
    },
    /// Something does not fit into the memory of the GPU or of the computer. A shorter context or a smaller file helps,
    /// or closing other programs.
    #[error("{reason}")]
    OutOfMemory {
        /// The sentence to show.
        reason: String,
    },
    /// The GPU was lost. `Model.reload` opens it again.
    #[error("{reason}")]
    DeviceLost {
        /// The sentence to show.
        reason: String,
    },
    /// No GPU has the requested properties, or it cannot do what the kernels need.
    #[error("{reason}")]
    NoDevice {
        /// The sentence to show.
        reason: String,
    },
    /// The GPU's driver failed, computes wrong results or does not finish. A newer driver or another GPU helps.
    #[error("{reason}")]
    Driver {
        /// The sentence to show.
        reason: String,
        /// What the load found out about the kernels, as JSON, if it did: one of `LoadOptions.verdicts` for the next
        /// load, which then avoids the kernel that failed.
        verdict: Option<String>,
    },
    /// A file is damaged, or is not a model. Use another file, or download it again.
    #[error("{reason}")]
    InvalidFile {
        /// The sentence to show.
        reason: String,
    },
    /// A file or a request needs something that wglm does not support.
    #[error("{reason}")]
    Unsupported {
        /// The sentence to show.
        reason: String,
    },
    /// An argument, a message, a schema or an option is wrong.
    #[error("{reason}")]
    InvalidInput {
        /// The sentence to show.
        reason: String,
    },
    /// A snapshot is damaged or belongs to another model. Continue without it.
    #[error("{reason}")]
    InvalidSnapshot {
        /// The sentence to show.
        reason: String,
    },
    /// The conversation is longer than the context. Fewer messages, a larger context or another `Overflow` helps.
    #[error("{reason}")]
    ContextFull {
        /// The sentence to show.
        reason: String,
    },
    /// What the call needs is in use. Repeat the call later.
    #[error("{reason}")]
    Busy {
        /// The sentence to show.
        reason: String,
    },
    /// A server or the network failed. The call can be repeated; a download continues.
    #[error("{reason}")]
    Network {
        /// The sentence to show.
        reason: String,
    },
    /// There is no such file, model or repository.
    #[error("{reason}")]
    NotFound {
        /// The sentence to show.
        reason: String,
    },
    /// A server refused access. A token helps, or accepting the licence on the repository's page.
    #[error("{reason}")]
    AccessDenied {
        /// The sentence to show.
        reason: String,
    },
    /// The operating system refused to read or write a file.
    #[error("{reason}")]
    Io {
        /// The sentence to show.
        reason: String,
    },
    /// A reply ended before its value was complete. `Chat.resume` continues it with the same schema.
    #[error("{reason}")]
    Unfinished {
        /// The sentence to show.
        reason: String,
        /// The answer so far: the beginning of the value's JSON.
        text: String,
        /// Why it ended.
        stop: Stop,
    },
    /// A defect of wglm, which should be reported.
    #[error("{reason}")]
    Internal {
        /// The sentence to show.
        reason: String,
    },
}

impl WglmError {
    /// An error for an argument that is not JSON of the expected kind.
    pub(crate) fn not_json(argument: &str, error: &serde_json::Error) -> Self {
        Self::InvalidInput { reason: format!("{argument} is not valid: {error}") }
    }
}

impl From<Error> for WglmError {
    fn from(error: Error) -> Self {
        let reason = error.to_string();
        let verdict = error.verdict().and_then(|verdict| serde_json::to_string(verdict).ok());
        match error.kind() {
            ErrorKind::Cancelled => Self::Cancelled { reason },
            ErrorKind::OutOfMemory => Self::OutOfMemory { reason },
            ErrorKind::DeviceLost => Self::DeviceLost { reason },
            ErrorKind::NoDevice => Self::NoDevice { reason },
            ErrorKind::Driver => Self::Driver { reason, verdict },
            ErrorKind::InvalidFile => Self::InvalidFile { reason },
            ErrorKind::Unsupported => Self::Unsupported { reason },
            ErrorKind::InvalidInput => Self::InvalidInput { reason },
            ErrorKind::InvalidSnapshot => Self::InvalidSnapshot { reason },
            ErrorKind::ContextFull => Self::ContextFull { reason },
            ErrorKind::Busy => Self::Busy { reason },
            ErrorKind::Network => Self::Network { reason },
            ErrorKind::NotFound => Self::NotFound { reason },
            ErrorKind::AccessDenied => Self::AccessDenied { reason },
            ErrorKind::Io => Self::Io { reason },
            _ => Self::Internal { reason },
        }
    }
}

impl From<AskError> for WglmError {
    fn from(error: AskError) -> Self {
        let reason = error.to_string();
        match error {
            AskError::Unfinished { text, stop } => Self::Unfinished { reason, text, stop: stop.into() },
            AskError::Failed(error) => error.into(),
            _ => Self::Internal { reason },
        }
    }
}
