import Foundation
import WglmCore

/// A conversation.
///
/// A conversation generates one reply at a time. Meanwhile ``messages`` can be read, and the settings can be changed,
/// which then apply to later replies. All other calls throw ``WglmError/busy(reason:)``. Conversations of the same
/// model can be used at the same time.
public final class Chat: Sendable {
    let core: WglmCore.Chat
    let lock = ChatLock()
    private let state: Locked<State>

    /// What applies to the replies of a conversation.
    struct Settings: Codable, Equatable, Sendable {
        var options = Options()
        var functions: [Function] = []
        var thinking: Bool?
        var overflow = Overflow.refuse
        var templateVariables: String?
    }

    private struct State {
        var settings = Settings()
        /// What the core has been told.
        var applied = Settings()
        weak var current: ReplyRun?
    }

    /// Creates a conversation.
    ///
    /// - Parameters:
    ///   - model: The model.
    ///   - instructions: What the model should know or do in all its replies, as a system message.
    ///   - context: The maximum length of the conversation in tokens; otherwise the model's.
    /// - Throws: ``WglmError/outOfMemory(reason:)`` if the conversation's cache does not fit.
    public init(_ model: Model, instructions: String? = nil, context: Int? = nil) async throws {
        let (model, context) = (model.core, context.map { UInt32(clamping: $0) })
        core = try await blocking { try WglmCore.Chat(model: model, context: context) }
        state = Locked(State())
        if let instructions { try await append(.system(instructions)) }
    }

    // MARK: Replies

    /// Appends a user message, and returns the reply to it.
    public func send(_ text: String) -> Reply {
        Reply(self) { $0.send(text: text) }
    }

    /// The reply to the messages as they are: after results of functions, for example.
    public func reply() -> Reply {
        Reply(self) { $0.reply() }
    }

    /// The reply to the messages as they are, with a given beginning.
    public func reply(startingWith text: String) -> Reply {
        Reply(self) { $0.prefill(text: text) }
    }

    /// The rest of a reply that was cut off. Both parts become one message.
    public func resume() -> Reply {
        Reply(self) { $0.resume() }
    }

    /// Another reply to the last user message, in place of what came after it.
    public func regenerate() -> Reply {
        Reply(self) { core in
            guard let last = core.messages().lastIndex(where: { $0.role == "user" }) else {
                throw WglmError.invalidInput(reason: "there is no user message to reply to")
            }
            try core.truncate(length: UInt32(clamping: last + 1))
            return core.reply()
        }
    }

    /// Stops the reply that is being generated, if there is one. It ends before its next token.
    public func stop() {
        state.withLock { $0.current }?.stop()
    }

    /// Whether a reply is being generated that somebody iterates over.
    public var isReplying: Bool {
        lock.hasReply
    }

    // MARK: Typed answers

    /// Appends a user message, and returns the answer as a value. No functions are called.
    ///
    /// Describe in the message what you want: the model does not see the schema. Its answer is only forced to match.
    ///
    /// - Throws: ``WglmError/unfinished(reason:text:stop:)`` if the reply ended before the value was complete;
    ///   `CancellationError` if the task was cancelled.
    public func ask<Value: Generable>(_ text: String, for type: Value.Type = Value.self) async throws -> Value {
        try await ask(text, for: type, schema: Value.generationSchema)
    }

    /// Appends a user message, and returns the answer as a value of a type that a schema describes.
    public func ask<Value: Decodable & Sendable>(
        _ text: String,
        for type: Value.Type = Value.self,
        schema: GenerationSchema
    ) async throws -> Value {
        let json = try await askJSON(text, schema: schema)
        return try JSONDecoder().decode(type, from: Data(json.utf8))
    }

    /// Appends a user message, and returns the answer as JSON that is valid against a schema.
    public func askJSON(_ text: String, schema: GenerationSchema) async throws -> String {
        try await json(of: { try $0.ask(text: text, schema: schema.json) })
    }

    /// The value of an answer that an `ask` left unfinished: the rest of it is generated. It throws what
    /// ``ask(_:for:)`` throws.
    public func resumeAsk<Value: Generable>(for type: Value.Type = Value.self) async throws -> Value {
        try await resumeAsk(for: type, schema: Value.generationSchema)
    }

    /// The value of an answer that an `ask` left unfinished, for a type that a schema describes.
    public func resumeAsk<Value: Decodable & Sendable>(
        for type: Value.Type = Value.self,
        schema: GenerationSchema
    ) async throws -> Value {
        let json = try await resumeAskJSON(schema: schema)
        return try JSONDecoder().decode(type, from: Data(json.utf8))
    }

    /// The JSON of an answer that ``askJSON(_:schema:)`` left unfinished: the rest of it is generated.
    public func resumeAskJSON(schema: GenerationSchema) async throws -> String {
        try await json(of: { try $0.resumeAsk(schema: schema.json) })
    }

    private func json(of begin: @escaping @Sendable (WglmCore.Chat) throws -> WglmCore.Asking) async throws -> String {
        try Task.checkCancellation()
        let (core, settings) = (core, settings)
        try await lock.acquire(for: .reply)
        defer { lock.release() }
        let asking = try await blocking {
            try self.apply(settings)
            return try begin(core)
        }
        do {
            return try await withTaskCancellationHandler {
                try await asking.value()
            } onCancel: {
                asking.stop()
            }
        } catch WglmCore.WglmError.Unfinished(_, _, .cancelled) where Task.isCancelled {
            throw CancellationError()
        } catch {
            throw WglmError.native(error)
        }
    }

    // MARK: Settings

    /// How replies are generated. What is nil is as the model's file recommends.
    public var options: Options {
        get { state.withLock { $0.settings.options } }
        set { state.withLock { $0.settings.options = newValue } }
    }

    /// The functions that the model may call.
    public var functions: [Function] {
        get { state.withLock { $0.settings.functions } }
        set { state.withLock { $0.settings.functions = newValue } }
    }

    /// Whether the model thinks before it answers; nil leaves this to the model's template.
    public var thinking: Bool? {
        get { state.withLock { $0.settings.thinking } }
        set { state.withLock { $0.settings.thinking = newValue } }
    }

    /// What happens when the conversation outgrows its context.
    public var overflow: Overflow {
        get { state.withLock { $0.settings.overflow } }
        set { state.withLock { $0.settings.overflow = newValue } }
    }

    /// Further variables for the model's chat template, such as `clear_thinking`: a JSON object.
    public var templateVariables: String? {
        get { state.withLock { $0.settings.templateVariables } }
        set { state.withLock { $0.settings.templateVariables = newValue } }
    }

    var settings: Settings {
        state.withLock { $0.settings }
    }

    // MARK: Messages

    /// The messages so far. While a reply is being generated, they do not contain it.
    public var messages: [Message] {
        core.messages()
    }

    /// The system message, if the conversation begins with one.
    public var instructions: String? {
        messages.first.flatMap { $0.role == "system" ? $0.content : nil }
    }

    /// Changes the system message, or removes it. The whole conversation is then computed again.
    public func setInstructions(_ text: String?) async throws {
        try await briefly { core in
            var messages = core.messages()
            if messages.first?.role == "system" { messages.removeFirst() }
            if let text { messages.insert(.system(text), at: 0) }
            try core.setMessages(messages: messages)
        }
    }

    /// Appends a message without asking for a reply: the result of a function, for example.
    public func append(_ message: Message) async throws {
        try await briefly { try $0.push(message: message) }
    }

    /// Replaces all messages. What the new conversation has in common with the old one is not computed again.
    public func setMessages(_ messages: [Message]) async throws {
        try await briefly { try $0.setMessages(messages: messages) }
    }

    /// Removes all messages after the first `count`.
    public func truncate(to count: Int) async throws {
        try await briefly { try $0.truncate(length: UInt32(clamping: count)) }
    }

    /// Removes messages, and returns them. What is beyond the last message is ignored.
    @discardableResult
    public func remove(_ range: Range<Int>) async throws -> [Message] {
        try await briefly {
            try $0.remove(start: UInt32(clamping: range.lowerBound), length: UInt32(clamping: range.count))
        }
    }

    /// The messages at the end that have no answer, because a reply ended before its first token.
    public func unanswered() async throws -> [Message] {
        try await briefly { try $0.unanswered() }
    }

    // MARK: The context

    /// Drops the oldest turns until `reserve` tokens of the context are free, and returns the dropped messages.
    ///
    /// - Throws: ``WglmError/contextFull(reason:)`` if the newest turn alone is too long.
    @discardableResult
    public func fit(reserve: Int) async throws -> [Message] {
        try await briefly(applying: true) { try $0.fit(reserve: UInt32(clamping: reserve)) }
    }

    /// The tokens of the context that the next prompt would take.
    public func promptTokens() async throws -> Int {
        Int(try await briefly(applying: true) { try $0.promptTokens() })
    }

    /// The maximum length of the conversation in tokens.
    public func context() async throws -> Int {
        Int(try await briefly { try $0.context() })
    }

    // MARK: Keeping a conversation

    /// The conversation as JSON: messages, functions and settings. wglm for other languages can read it, too.
    public func save() async throws -> Data {
        let settings = settings
        let json = try await briefly(applying: true) { try $0.save() }
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        encoder.nonConformingFloatEncodingStrategy = Kept.numbers.encoding
        let own = try encoder.encode(Kept(settings: settings)).dropFirst()
        // The core reads its own fields of the object, and this layer reads the one that it adds.
        return Data(json.utf8).dropLast() + Data(",".utf8) + own
    }

    /// Replaces the conversation by one that ``save()`` returned.
    ///
    /// - Throws: ``WglmError/invalidInput(reason:)`` for anything else.
    public func restore(from data: Data) async throws {
        let decoder = JSONDecoder()
        decoder.nonConformingFloatDecodingStrategy = Kept.numbers.decoding
        guard let json = String(data: data, encoding: .utf8), let kept = try? decoder.decode(Kept.self, from: data)
        else { throw WglmError.invalidInput(reason: "this is not a saved conversation") }
        try await briefly { try $0.restore(json: json) }
        // Without settings it is from another language. Then the core's apply until the app changes something.
        let settings = kept.settings ?? Settings()
        state.withLock { ($0.settings, $0.applied) = (settings, settings) }
    }

    /// Writes the cache to a file, so that the conversation need not be computed again when it is continued later. The
    /// file is as large as the cache, and valid for the same model.
    public func saveSnapshot(to url: URL) async throws {
        let cancel = WglmCore.Cancel()
        try await briefly(cancel) { try $0.saveSnapshot(path: url.plainPath, cancel: cancel) }
    }

    /// Reads the cache from a file that ``saveSnapshot(to:)`` wrote. After an error the conversation continues without
    /// it.
    public func loadSnapshot(from url: URL) async throws {
        let cancel = WglmCore.Cancel()
        try await briefly(cancel) { try $0.loadSnapshot(path: url.plainPath, cancel: cancel) }
    }

    /// Moves the conversation to the same model on another device, after ``WglmError/deviceLost(reason:)``. Its tokens
    /// are computed again with the next reply.
    public func move(to model: Model) async throws {
        let model = model.core
        try await briefly { try $0.moveTo(model: model) }
    }
}

/// The field that this layer adds to a saved conversation.
private struct Kept: Codable {
    static let numbers = (
        encoding: JSONEncoder.NonConformingFloatEncodingStrategy.convertToString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan"),
        decoding: JSONDecoder.NonConformingFloatDecodingStrategy.convertFromString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
    )

    var settings: Chat.Settings?
}

extension Chat {
    /// Uses the core's conversation for a moment, on a thread where this may block.
    ///
    /// - Parameters:
    ///   - cancel: What stops the call.
    ///   - isApplying: Whether the call depends on the settings.
    private func briefly<Result: Sendable>(
        _ cancel: WglmCore.Cancel? = nil,
        applying isApplying: Bool = false,
        _ call: @escaping @Sendable (WglmCore.Chat) throws -> Result
    ) async throws -> Result {
        try await lock.acquire(for: .brief)
        defer { lock.release() }
        let (core, settings) = (core, settings)
        return try await blocking(cancel) {
            if isApplying { try self.apply(settings) }
            return try call(core)
        }
    }

    /// Tells the core what has changed. Only the holder of the lock calls this.
    func apply(_ settings: Settings) throws {
        var applied = state.withLock { $0.applied }
        if settings == applied { return }
        defer { state.withLock { [applied] in $0.applied = applied } }
        if settings.options != applied.options {
            try core.setOptions(options: settings.options)
            applied.options = settings.options
        }
        if settings.functions != applied.functions {
            try core.setFunctions(functions: settings.functions)
            applied.functions = settings.functions
        }
        if settings.thinking != applied.thinking {
            try core.setThinking(thinking: settings.thinking)
            applied.thinking = settings.thinking
        }
        if settings.overflow != applied.overflow {
            try core.setOverflow(overflow: settings.overflow)
            applied.overflow = settings.overflow
        }
        if settings.templateVariables != applied.templateVariables {
            try core.setTemplateVariables(json: settings.templateVariables ?? "{}")
            applied.templateVariables = settings.templateVariables
        }
    }

    /// Makes a reply the one that ``stop()`` stops.
    func begin(_ run: ReplyRun) {
        state.withLock { $0.current = run }
    }
}
