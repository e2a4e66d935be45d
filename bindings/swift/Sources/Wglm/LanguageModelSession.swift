import Foundation
import Observation
import WglmCore

/// A conversation in the form of Apple's Foundation Models: requests with responses, typed responses, and tools that
/// are run when the model calls them.
///
/// ```swift
/// let session = LanguageModelSession(model: model, tools: [WeatherTool()], instructions: "Answer in one sentence.")
/// let response = try await session.respond(to: "Do I need an umbrella in Rome?")
/// print(response.content)
/// ```
///
/// A session answers one request at a time. Views that show ``transcript`` or ``isResponding`` are updated when these
/// change. ``Chat`` has more: events, edited messages, snapshots.
public final class LanguageModelSession: Observable, Sendable {
    private struct State {
        var isResponding = false
        var chat: Chat?
    }

    /// The model.
    public let model: Model
    /// The functions that the model may call.
    public let tools: [any Tool]
    private let initial: Transcript
    private let context: Int?
    private let overflow: Overflow
    private let state = Locked(State())
    private let registrar = ObservationRegistrar()

    /// Creates a session. Nothing is computed before the first request.
    ///
    /// - Parameters:
    ///   - model: The model.
    ///   - tools: The functions that the model may call.
    ///   - instructions: What the model should know or do in all its responses.
    ///   - context: The maximum length of the session in tokens; otherwise the model's.
    ///   - overflow: What happens when the session outgrows its context.
    public convenience init(
        model: Model,
        tools: [any Tool] = [],
        instructions: String? = nil,
        context: Int? = nil,
        overflow: Overflow = .refuse
    ) {
        let transcript = Transcript(entries: instructions.map { [.instructions($0)] } ?? [])
        self.init(model: model, tools: tools, transcript: transcript, context: context, overflow: overflow)
    }

    /// Creates a session that continues an earlier one.
    public init(
        model: Model,
        tools: [any Tool] = [],
        transcript: Transcript,
        context: Int? = nil,
        overflow: Overflow = .refuse
    ) {
        (self.model, self.tools, initial) = (model, tools, transcript)
        (self.context, self.overflow) = (context, overflow)
    }

    /// What was said so far.
    public var transcript: Transcript {
        registrar.access(self, keyPath: \.transcript)
        return state.withLock { $0.chat }.map { Transcript($0.messages) } ?? initial
    }

    /// Whether a response is being generated.
    public var isResponding: Bool {
        registrar.access(self, keyPath: \.isResponding)
        return state.withLock { $0.isResponding }
    }

    // MARK: Requests

    /// Responds with text.
    ///
    /// - Throws: ``GenerationError``, ``ToolCallError``, ``WglmError``; `CancellationError` if the task was cancelled.
    @discardableResult
    public func respond(
        to prompt: String,
        options: GenerationOptions = GenerationOptions()
    ) async throws -> Response<String> {
        try await streamResponse(to: prompt, options: options).collect()
    }

    /// Responds with a value of a type. Describe in the prompt what you want: the model does not see the schema.
    @discardableResult
    public func respond<Content: Generable>(
        to prompt: String,
        generating type: Content.Type = Content.self,
        options: GenerationOptions = GenerationOptions()
    ) async throws -> Response<Content> {
        try await streamResponse(to: prompt, generating: type, options: options).collect()
    }

    /// Responds with text, as a sequence of snapshots. The response begins with the first one that is requested, and
    /// ends with its loop.
    public func streamResponse(
        to prompt: String,
        options: GenerationOptions = GenerationOptions()
    ) -> ResponseStream<String> {
        ResponseStream(turn: { Turn(self, prompt: prompt, options: options, constraint: nil) }, decode: { $0 })
    }

    /// Responds with a value of a type, as a sequence of snapshots of its JSON.
    public func streamResponse<Content: Generable>(
        to prompt: String,
        generating type: Content.Type = Content.self,
        options: GenerationOptions = GenerationOptions()
    ) -> ResponseStream<Content> {
        let constraint = Constraint.jsonSchema(schema: Content.generationSchema.json)
        return ResponseStream {
            Turn(self, prompt: prompt, options: options, constraint: constraint)
        } decode: { json in
            try JSONDecoder().decode(type, from: Data(json.utf8))
        }
    }

    // MARK: For a turn

    fileprivate func begin() throws {
        try registrar.withMutation(of: self, keyPath: \.isResponding) {
            try state.withLock { state in
                if state.isResponding { throw GenerationError.concurrentRequests }
                state.isResponding = true
            }
        }
    }

    fileprivate func end() {
        registrar.withMutation(of: self, keyPath: \.isResponding) {
            state.withLock { $0.isResponding = false }
        }
        transcriptChanged()
    }

    fileprivate func transcriptChanged() {
        registrar.withMutation(of: self, keyPath: \.transcript) {}
    }

    /// The conversation, which the first request creates.
    fileprivate func conversation() async throws -> Chat {
        if let chat = state.withLock({ $0.chat }) { return chat }
        let chat = try await Chat(model, context: context)
        chat.functions = tools.map { $0.function }
        chat.overflow = overflow
        try await chat.setMessages(initial.messages)
        state.withLock { $0.chat = chat }
        return chat
    }

    fileprivate func tool(named name: String) -> (any Tool)? {
        tools.first { $0.name == name }
    }
}

// MARK: - Responses

extension LanguageModelSession {
    /// A response.
    public struct Response<Content: Sendable>: Sendable {
        /// The answer.
        public let content: Content
        /// The answer as the model wrote it.
        public let rawContent: String
        /// Why the last reply ended, and how long it took.
        public let stats: Stats
    }

    /// A response that is being generated, as a sequence of snapshots.
    public struct ResponseStream<Content: Sendable>: AsyncSequence, Sendable {
        /// The answer so far. If the model calls functions, it begins anew after that.
        public struct Snapshot: Equatable, Sendable {
            /// The answer so far as the model wrote it.
            public let rawContent: String
        }

        public typealias Element = Snapshot

        fileprivate let turn: @Sendable () -> Turn
        fileprivate let decode: @Sendable (String) throws -> Content

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(turn: turn())
        }

        /// Waits for the end of the response.
        public func collect() async throws -> Response<Content> {
            let turn = turn()
            while try await turn.next() != nil {}
            let (text, stats) = await (turn.text, turn.stats)
            guard let stats else { throw CancellationError() }
            do {
                return Response(content: try decode(text), rawContent: text, stats: stats)
            } catch where stats.stop != .end {
                throw WglmError.unfinished(
                    reason: "the response ended before its value was complete", text: text, stop: stats.stop)
            } catch {
                throw GenerationError.decodingFailure(text: text, reason: "\(error)")
            }
        }

        /// Iterates over the snapshots of a response. When it is dropped, the response ends.
        public struct AsyncIterator: AsyncIteratorProtocol, Sendable {
            fileprivate let turn: Turn

            public mutating func next() async throws -> Snapshot? {
                try await turn.next().map(Snapshot.init)
            }
        }
    }

    /// A request that a session refuses, or a response that it cannot use.
    public enum GenerationError: Error, Equatable, LocalizedError {
        /// The session is still responding to another request.
        case concurrentRequests
        /// The model called functions in more replies than `GenerationOptions.maximumToolRounds` allows.
        case tooManyToolRounds(Int)
        /// The response matches the type's schema, but is not a value of the type.
        case decodingFailure(text: String, reason: String)

        public var errorDescription: String? {
            switch self {
            case .concurrentRequests: "The session is still responding to another request."
            case .tooManyToolRounds(let most): "The model called functions more than \(most) times in a row."
            case .decodingFailure(_, let reason): "The response is not a value of its type: \(reason)"
            }
        }
    }

    /// An error of a tool.
    public struct ToolCallError: Error, LocalizedError {
        /// The tool.
        public let tool: any Tool
        /// What it threw.
        public let underlyingError: any Error

        public var errorDescription: String? {
            "\(tool.name) failed: \(underlyingError.localizedDescription)"
        }
    }
}

extension LanguageModelSession.ResponseStream.Snapshot where Content == String {
    /// The text so far.
    public var content: String {
        rawContent
    }
}

// MARK: - Turns

/// A request and the replies to it: one more after each round of calls.
private actor Turn {
    private enum Phase {
        case asked
        case replying(Chat, Reply.AsyncIterator)
        case ended
    }

    private let session: LanguageModelSession
    private let prompt: String
    private let options: GenerationOptions
    private let constraint: Constraint?
    private let lease: Lease
    private var phase = Phase.asked
    private var calls: [ToolCall] = []
    private var rounds = 0
    /// The text of the reply so far.
    private(set) var text = ""
    /// The statistics of the last reply.
    private(set) var stats: Stats?

    init(_ session: LanguageModelSession, prompt: String, options: GenerationOptions, constraint: Constraint?) {
        (self.session, self.prompt, self.options, self.constraint) = (session, prompt, options, constraint)
        lease = Lease(session)
    }

    /// The text so far, each time that there is more of it.
    func next() async throws -> String? {
        do {
            while true {
                switch phase {
                case .ended: return nil
                case .asked: try await begin()
                case .replying(let chat, var events):
                    switch try await events.next() {
                    case .text(let piece):
                        text += piece
                        return text
                    case .toolCall(let call): calls.append(call)
                    case .prompt: session.transcriptChanged() // it now has what was asked
                    case .done(let stats): try await finish(chat, stats)
                    case nil: end()
                    default: break
                    }
                }
            }
        } catch {
            end()
            throw error
        }
    }

    private func begin() async throws {
        try Task.checkCancellation()
        try lease.begin()
        let chat = try await session.conversation()
        chat.options = options.options(constraint: constraint)
        chat.thinking = options.thinking
        phase = .replying(chat, chat.send(prompt).makeAsyncIterator())
    }

    /// What follows a reply: its calls, or nothing.
    private func finish(_ chat: Chat, _ stats: Stats) async throws {
        self.stats = stats
        if stats.stop == .cancelled { throw CancellationError() }
        guard !calls.isEmpty else { return end() }
        let failure = await run(chat)
        session.transcriptChanged()
        if let failure { throw failure }
        rounds += 1
        if rounds > options.maximumToolRounds {
            throw LanguageModelSession.GenerationError.tooManyToolRounds(options.maximumToolRounds)
        }
        // A call that the app requires is required once.
        if chat.options.calls != Calls.none { chat.options.calls = .auto }
        text = ""
        phase = .replying(chat, chat.reply().makeAsyncIterator())
    }

    /// Runs the functions that the model called. Each call gets a result, even after an error: the conversation could
    /// not be continued otherwise.
    private func run(_ chat: Chat) async -> (any Error)? {
        var failure: (any Error)?
        for call in calls {
            var result = "This was not run."
            if failure == nil {
                if let tool = session.tool(named: call.name) {
                    do {
                        result = try await tool.call(json: call.arguments)
                    } catch {
                        result = "This failed."
                        failure =
                            error is CancellationError
                            ? error : LanguageModelSession.ToolCallError(tool: tool, underlyingError: error)
                    }
                } else {
                    result = "There is no such function."
                }
            }
            do {
                try await chat.append(.tool(result, for: call))
            } catch {
                failure = failure ?? error
            }
        }
        calls = []
        return failure
    }

    private func end() {
        phase = .ended
        lease.end()
    }

    /// Holds a session for one request, and lets it go at the latest when the turn is dropped.
    private final class Lease: Sendable {
        private let session: LanguageModelSession
        private let isHeld = Locked(false)

        init(_ session: LanguageModelSession) {
            self.session = session
        }

        func begin() throws {
            try session.begin()
            isHeld.withLock { $0 = true }
        }

        func end() {
            let wasHeld = isHeld.withLock { held in
                defer { held = false }
                return held
            }
            if wasHeld { session.end() }
        }

        deinit {
            end()
        }
    }
}
