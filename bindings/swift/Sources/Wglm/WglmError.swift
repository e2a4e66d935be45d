import Foundation
import WglmCore

/// A failed call. The case says what an app can do about it, and its reason is the sentence to show.
///
/// A failed call releases what it had allocated, and the next one can succeed. A call that is stopped because its task
/// is cancelled throws `CancellationError` instead.
public enum WglmError: Error, Equatable, Sendable {
    /// Something does not fit into the memory of the GPU or of the computer.
    case outOfMemory(reason: String)
    /// The GPU was lost. ``Model/reload(progress:)`` opens it again.
    case deviceLost(reason: String)
    /// No GPU has the requested properties, or it cannot do what the kernels need.
    case noDevice(reason: String)
    /// The GPU's driver failed, computes wrong results or does not finish. If there is a verdict, pass it to the next
    /// load as one of `LoadOptions.verdicts`: that load then avoids the kernel that failed.
    case driver(reason: String, verdict: String?)
    /// A file is damaged, or is not a model.
    case invalidFile(reason: String)
    /// A file or a request needs something that wglm does not support.
    case unsupported(reason: String)
    /// An argument, a message, a schema or an option is wrong.
    case invalidInput(reason: String)
    /// A snapshot is damaged or belongs to another model. The conversation continues without it.
    case invalidSnapshot(reason: String)
    /// The conversation is longer than its context.
    case contextFull(reason: String)
    /// What the call needs is in use.
    case busy(reason: String)
    /// A server or the network failed. If the call is repeated, a download continues.
    case network(reason: String)
    /// There is no such file, model or repository.
    case notFound(reason: String)
    /// A server refused access.
    case accessDenied(reason: String)
    /// The operating system refused to read or write a file.
    case io(reason: String)
    /// A reply ended before its value was complete. `text` is the beginning of the value's JSON.
    case unfinished(reason: String, text: String, stop: Stop)
    /// A defect of wglm, which should be reported.
    case `internal`(reason: String)

    /// The sentence to show.
    public var reason: String {
        switch self {
        case .outOfMemory(let reason), .deviceLost(let reason), .noDevice(let reason), .driver(let reason, _),
            .invalidFile(let reason), .unsupported(let reason), .invalidInput(let reason),
            .invalidSnapshot(let reason), .contextFull(let reason), .busy(let reason), .network(let reason),
            .notFound(let reason), .accessDenied(let reason), .io(let reason), .unfinished(let reason, _, _),
            .internal(let reason):
            reason
        }
    }
}

extension WglmError: LocalizedError {
    public var errorDescription: String? {
        reason
    }

    public var recoverySuggestion: String? {
        switch self {
        case .outOfMemory: "Use a shorter context or a smaller file, or close other programs."
        case .deviceLost: "Load the model again."
        case .noDevice: "Use another GPU."
        case .driver: "Update the system or the GPU's driver, or use another GPU."
        case .invalidFile: "Use another file, or download it again."
        case .unsupported: "Use another file."
        case .invalidInput, .internal: nil
        case .invalidSnapshot: "Continue without the snapshot."
        case .contextFull: "Remove messages, use a larger context, or let the oldest turns be dropped."
        case .busy: "Try again when the reply has ended."
        case .network: "Check the connection and try again. A download continues where it ended."
        case .notFound: "Check the name."
        case .accessDenied: "Accept the licence on the repository's page, or use an access token."
        case .io: "Check the disk's free space and the permissions of the file."
        case .unfinished: "Allow more tokens."
        }
    }
}

extension WglmError {
    /// The error that an app sees in place of one of the core's.
    static func native(_ error: any Error) -> any Error {
        switch error as? WglmCore.WglmError {
        case nil: error
        case .Cancelled: CancellationError()
        case .OutOfMemory(let reason): WglmError.outOfMemory(reason: reason)
        case .DeviceLost(let reason): WglmError.deviceLost(reason: reason)
        case .NoDevice(let reason): WglmError.noDevice(reason: reason)
        case .Driver(let reason, let verdict): WglmError.driver(reason: reason, verdict: verdict)
        case .InvalidFile(let reason): WglmError.invalidFile(reason: reason)
        case .Unsupported(let reason): WglmError.unsupported(reason: reason)
        case .InvalidInput(let reason): WglmError.invalidInput(reason: reason)
        case .InvalidSnapshot(let reason): WglmError.invalidSnapshot(reason: reason)
        case .ContextFull(let reason): WglmError.contextFull(reason: reason)
        case .Busy(let reason): WglmError.busy(reason: reason)
        case .Network(let reason): WglmError.network(reason: reason)
        case .NotFound(let reason): WglmError.notFound(reason: reason)
        case .AccessDenied(let reason): WglmError.accessDenied(reason: reason)
        case .Io(let reason): WglmError.io(reason: reason)
        case .Unfinished(let reason, let text, let stop):
            WglmError.unfinished(reason: reason, text: text, stop: stop)
        case .Internal(let reason): WglmError.internal(reason: reason)
        }
    }
}
