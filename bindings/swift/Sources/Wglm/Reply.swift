import WglmCore

/// A reply that is being generated: a sequence of events.
///
/// ```swift
/// for try await event in chat.send("Tell me a story about an owl.") {
///     if case .text(let piece) = event { print(piece, terminator: "") }
/// }
/// ```
///
/// Nothing is computed before the first event is requested, and all errors arrive there. The reply ends with its loop:
/// if a `break` or an error leaves the loop, or if ``stop()`` is called. If the task is cancelled, the loop receives
/// what was generated so far, and the last event is `done` with `Stop.cancelled`. In all cases the part that was
/// generated becomes a message of the conversation.
public struct Reply: AsyncSequence, Sendable {
    public typealias Element = Event

    let run: ReplyRun

    init(_ chat: Chat, start: @escaping @Sendable (WglmCore.Chat) throws -> WglmCore.Reply) {
        run = ReplyRun(chat, start: start)
    }

    /// Begins the reply, or continues with the events that are left.
    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(guarding: Guard(run))
    }

    /// The pieces of the answer, without all other events.
    public var text: Text {
        Text(reply: self)
    }

    /// Ends the reply before its next token, from any thread.
    public func stop() {
        run.stop()
    }

    /// The statistics, after the end of the reply.
    public var stats: Stats? {
        run.stats
    }

    /// Waits for the end of the reply.
    ///
    /// - Throws: `CancellationError` if the task was cancelled. ``Chat/messages`` then has the part that was generated.
    public func collect() async throws -> Answer {
        var answer = Answer()
        for try await event in self {
            answer.add(event)
        }
        if answer.stats?.stop == .cancelled { try Task.checkCancellation() }
        return answer
    }

    /// Iterates over the events of a reply. When it is dropped, the reply ends.
    public struct AsyncIterator: AsyncIteratorProtocol, Sendable {
        fileprivate let guarding: Guard

        public mutating func next() async throws -> Event? {
            try await guarding.run.next()
        }
    }

    /// Ends a reply when the last copy of its iterator is dropped.
    fileprivate final class Guard: Sendable {
        let run: ReplyRun

        init(_ run: ReplyRun) {
            self.run = run
        }

        deinit {
            run.abandon()
        }
    }
}

extension Reply {
    /// The pieces of an answer, made of whole characters.
    public struct Text: AsyncSequence, Sendable {
        public typealias Element = String

        fileprivate let reply: Reply

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(events: reply.makeAsyncIterator())
        }

        /// Iterates over the pieces of an answer. When it is dropped, the reply ends.
        public struct AsyncIterator: AsyncIteratorProtocol, Sendable {
            fileprivate var events: Reply.AsyncIterator

            public mutating func next() async throws -> String? {
                while let event = try await events.next() {
                    if case .text(let piece) = event { return piece }
                }
                return nil
            }
        }
    }

    /// A reply after its end.
    public struct Answer: Equatable, Sendable {
        /// The answer.
        public var text = ""
        /// The thinking that came before it.
        public var thinking = ""
        /// The functions that the model calls.
        public var toolCalls: [ToolCall] = []
        /// The messages that were dropped because the conversation outgrew its context.
        public var dropped: [Message] = []
        /// Why the reply ended, and how long it took.
        public var stats: Stats?

        /// Creates an answer without anything.
        public init() {}

        mutating func add(_ event: Event) {
            switch event {
            case .text(let piece): text += piece
            case .thinking(let piece): thinking += piece
            case .toolCall(let call): toolCalls.append(call)
            case .dropped(let messages): dropped = messages
            case .done(let stats): self.stats = stats
            default: break
            }
        }
    }
}

/// The state of a reply, which its iterators share.
final class ReplyRun: Sendable {
    private enum Phase {
        case asked
        case running(WglmCore.Reply)
        case ended
    }

    private struct State {
        var phase = Phase.asked
        var isWaiting = false
        var isStopped = false
        var stats: Stats?
    }

    private let chat: Chat
    private let settings: Chat.Settings
    private let start: @Sendable (WglmCore.Chat) throws -> WglmCore.Reply
    private let state = Locked(State())

    init(_ chat: Chat, start: @escaping @Sendable (WglmCore.Chat) throws -> WglmCore.Reply) {
        (self.chat, self.start) = (chat, start)
        settings = chat.settings
    }

    var stats: Stats? {
        state.withLock { $0.stats }
    }

    func stop() {
        let running = state.withLock { state -> WglmCore.Reply? in
            state.isStopped = true
            if case .running(let reply) = state.phase { return reply }
            return nil
        }
        running?.stop()
    }

    func next() async throws -> Event? {
        let phase = try state.withLock { state in
            if state.isWaiting { throw WglmError.busy(reason: "another task waits for this reply's next event") }
            state.isWaiting = true
            return state.phase
        }
        defer { state.withLock { $0.isWaiting = false } }
        switch phase {
        case .ended: return nil
        case .running(let reply): return try await next(of: reply)
        case .asked:
            try Task.checkCancellation()
            return try await next(of: begin())
        }
    }

    private func begin() async throws -> WglmCore.Reply {
        try await chat.lock.acquire(for: .reply)
        chat.begin(self)
        do {
            let (chat, settings, start) = (chat, settings, start)
            let reply = try await blocking {
                try chat.apply(settings)
                return try start(chat.core)
            }
            let isStopped = state.withLock { state in
                state.phase = .running(reply)
                return state.isStopped
            }
            if isStopped { reply.stop() }
            return reply
        } catch {
            end()
            throw error
        }
    }

    private func next(of reply: WglmCore.Reply) async throws -> Event? {
        do {
            let event = try await withTaskCancellationHandler {
                try await reply.next()
            } onCancel: {
                reply.stop()
            }
            switch event {
            case .done(let stats):
                state.withLock { $0.stats = stats }
                end()
            case nil: end()
            default: break
            }
            return event
        } catch {
            end()
            throw WglmError.native(error)
        }
    }

    private func end() {
        state.withLock { $0.phase = .ended }
        chat.lock.release()
    }

    /// Called when an iterator is dropped.
    func abandon() {
        let running = state.withLock { state -> WglmCore.Reply? in
            guard case .running(let reply) = state.phase else { return nil }
            state.phase = .ended
            return reply
        }
        if let running { chat.lock.abandon(running) }
    }
}
