import WglmCore

/// What was said in a ``LanguageModelSession``.
public struct Transcript: RandomAccessCollection, Codable, Equatable, Sendable {
    /// A step of a session.
    public enum Entry: Codable, Equatable, Sendable {
        /// What the model should know or do in all its responses.
        case instructions(String)
        /// What the app or its user asked.
        case prompt(String)
        /// The calls of functions by the model.
        case toolCalls([ToolCall])
        /// The result of a call.
        case toolOutput(String, call: ToolCall)
        /// An answer of the model, and the thinking that came before it.
        case response(String, thinking: String?)
    }

    private var entries: [Entry]

    /// Creates a transcript.
    public init(entries: [Entry] = []) {
        self.entries = entries
    }

    public var startIndex: Int {
        entries.startIndex
    }

    public var endIndex: Int {
        entries.endIndex
    }

    public subscript(position: Int) -> Entry {
        entries[position]
    }

    init(_ messages: [Message]) {
        var calls: [String: ToolCall] = [:]
        entries = messages.flatMap { message -> [Entry] in
            switch message.role {
            case "system": return [.instructions(message.content)]
            case "user": return [.prompt(message.content)]
            case "tool":
                let id = message.toolCallId ?? ""
                let call = calls[id] ?? ToolCall(id: id, name: message.name ?? "", arguments: "{}")
                return [.toolOutput(message.content, call: call)]
            default:
                var entries: [Entry] = []
                if !message.content.isEmpty || message.toolCalls.isEmpty || message.reasoning != nil {
                    entries.append(.response(message.content, thinking: message.reasoning))
                }
                if !message.toolCalls.isEmpty { entries.append(.toolCalls(message.toolCalls)) }
                for call in message.toolCalls { calls[call.id] = call }
                return entries
            }
        }
    }

    var messages: [Message] {
        entries.reduce(into: []) { messages, entry in
            switch entry {
            case .instructions(let text): messages.append(.system(text))
            case .prompt(let text): messages.append(.user(text))
            case .toolOutput(let text, let call): messages.append(.tool(text, for: call))
            case .response(let text, let thinking):
                messages.append(Message(role: "assistant", content: text, reasoning: thinking))
            case .toolCalls(let calls):
                // Text and calls of one message are two entries.
                if messages.last?.role == "assistant", messages.last?.toolCalls.isEmpty == true {
                    messages[messages.count - 1].toolCalls = calls
                } else {
                    messages.append(Message(role: "assistant", content: "", toolCalls: calls))
                }
            }
        }
    }
}
