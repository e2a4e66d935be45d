import Foundation
import WglmCore

/// A value that one thread uses at a time. (`Mutex` of the standard library needs macOS 15.)
final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) {
        self.value = value
    }

    /// Calls `act` with the value, which no other thread uses meanwhile.
    func withLock<Result>(_ act: (inout Value) throws -> Result) rethrows -> Result {
        try lock.withLock { try act(&value) }
    }
}

/// Where calls run that block. They may take minutes, so they never occupy a thread of the cooperative pool.
private let workers = DispatchQueue(label: "wglm", qos: .userInitiated, attributes: .concurrent)

/// Runs a call that blocks, and waits for its result. If the task is cancelled, `cancel` is cancelled.
func blocking<Result: Sendable>(
    _ cancel: WglmCore.Cancel? = nil,
    _ call: @escaping @Sendable () throws -> Result
) async throws -> Result {
    try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
            workers.async { continuation.resume(with: Swift.Result { try native(call) }) }
        }
    } onCancel: {
        cancel?.cancel()
    }
}

/// Calls the core, and throws what an app sees in place of the core's errors.
func native<Result>(_ call: () throws -> Result) throws -> Result {
    do {
        return try call()
    } catch {
        throw WglmError.native(error)
    }
}

/// Passes the progress of a long call to a closure.
final class Progress: LoadListener, PullListener, TuneListener {
    private let load: (@Sendable (LoadProgress) -> Void)?
    private let pull: (@Sendable (PullProgress) -> Void)?
    private let tune: (@Sendable (TuneProgress) -> Void)?

    init(
        load: (@Sendable (LoadProgress) -> Void)? = nil,
        pull: (@Sendable (PullProgress) -> Void)? = nil,
        tune: (@Sendable (TuneProgress) -> Void)? = nil
    ) {
        (self.load, self.pull, self.tune) = (load, pull, tune)
    }

    func onProgress(progress: LoadProgress) {
        load?(progress)
    }

    func onProgress(progress: PullProgress) {
        pull?(progress)
    }

    func onProgress(progress: TuneProgress) {
        tune?(progress)
    }
}

extension URL {
    /// The path as the operating system's calls take it.
    var plainPath: String {
        path(percentEncoded: false)
    }
}
