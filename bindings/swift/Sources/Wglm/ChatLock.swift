import WglmCore

/// Decides who uses a conversation.
///
/// The core refuses calls on a conversation while a reply to it is being generated. A loop that a `break` ends leaves
/// such a reply behind, for the time until its next token. Nobody who calls next should see an error for that, so they
/// wait here. If a reply is still wanted, they get an error at once.
final class ChatLock: Sendable {
    private struct State {
        var use: Use?
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    enum Use {
        /// A reply that somebody iterates over.
        case reply
        /// A call that soon ends, or a reply that soon ends because nobody wants it.
        case brief
    }

    private let state = Locked(State())

    var hasReply: Bool {
        state.withLock { $0.use == .reply }
    }

    /// Takes the conversation, when its brief use by others has ended.
    func acquire(for use: Use) async throws {
        while true {
            let taken = try state.withLock { state in
                if state.use == .reply {
                    throw WglmError.busy(reason: "a reply of this conversation is still being generated")
                }
                if state.use == .brief { return false }
                state.use = use
                return true
            }
            if taken { return }
            await withCheckedContinuation { continuation in
                let free = state.withLock { state in
                    if state.use == nil { return true }
                    state.waiting.append(continuation)
                    return false
                }
                if free { continuation.resume() }
            }
        }
    }

    func release() {
        let waiting = state.withLock { state in
            state.use = nil
            defer { state.waiting = [] }
            return state.waiting
        }
        waiting.forEach { $0.resume() }
    }

    /// Ends a reply that nobody wants any more, and releases the conversation when it has ended. No thread waits
    /// for that.
    func abandon(_ reply: WglmCore.Reply) {
        reply.stop()
        state.withLock { $0.use = .brief }
        Task.detached {
            // What was generated is in the conversation before the last event arrives.
            while (try? await reply.next()) != nil {}
            self.release()
        }
    }
}
