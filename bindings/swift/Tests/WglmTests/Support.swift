import Foundation
import Testing
import Wglm

/// The demonstration model, which all tests share.
let demo = Task { try await Model.demo() }

let story = "Tell me a story about an owl."
let sum = "What is seven plus five?"

/// A conversation with the demonstration model that always takes the most likely token, and does not think.
func newChat(instructions: String? = nil, context: Int? = nil) async throws -> Chat {
    let chat = try await Chat(try await demo.value, instructions: instructions, context: context)
    chat.options.temperature = 0
    chat.thinking = false
    return chat
}

/// The same for sessions.
let greedy = GenerationOptions(sampling: .greedy, maximumResponseTokens: 64, thinking: false)

/// Whether a text has the sum.
func hasSum(_ text: String) -> Bool {
    text.lowercased().contains("twelve") || text.contains("12")
}

/// Cancels the task that calls this.
func cancelThisTask() {
    withUnsafeCurrentTask { $0?.cancel() }
}

/// The error that a call throws, if it is one of wglm's.
func error(of call: () async throws -> Void) async -> WglmError? {
    do {
        try await call()
        return nil
    } catch {
        return error as? WglmError
    }
}

/// A file that does not exist yet, in a folder that is deleted in the end.
func withFile(
    isolation: isolated (any Actor)? = #isolation,
    _ act: (URL) async throws -> Void
) async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "wglm-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    try await act(folder.appending(path: "file"))
}

/// A value that one thread uses at a time.
final class Shared<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var stored: Value

    init(_ value: Value) {
        stored = value
    }

    var value: Value {
        get { lock.withLock { stored } }
        set { lock.withLock { stored = newValue } }
    }

    func change(_ act: (inout Value) -> Void) {
        lock.withLock { act(&stored) }
    }
}
