import Foundation
import Observation
import Testing
import Wglm

// The code of docs/swift.md. `isTheGuides` finds each block of the guide in this file, whatever its indentation.

/// Loads a model, and shows how far it is.
private func load(_ file: URL) async throws -> Model {
    let estimate = try await Model.estimate(contentsOf: file)
    if estimate.fits == false { print(estimate.whyNot ?? "") }
    return try await Model.load(contentsOf: file, options: LoadOptions(context: 8192)) { progress in
        print(progress.stage, progress.fraction ?? 0) // on the thread that loads
    }
}

private func converse(_ model: Model) async throws {
    let chat = try await Chat(model, instructions: "Answer in one sentence.")
    for try await piece in chat.send("What is seven plus five?").text {
        print(piece, terminator: "")
    }
}

private func show(_ chat: Chat) async throws {
    for try await event in chat.send("Tell me a story about an owl.") {
        switch event {
        case .prompt(let done, let total): print("read \(done) of \(total) tokens")
        case .thinking(let piece): print("thinks: \(piece)")
        case .text(let piece): print(piece)
        case .done(let stats): print("\(stats.stop), \(stats.tokensPerSecond) tokens per second")
        default: break
        }
    }
}

private func stop(_ chat: Chat) async throws {
    let task = Task {
        let answer = try await chat.send("Tell me a story about an owl.").collect()
        print(answer.text)
    }
    task.cancel() // the reply ends, and collect() throws CancellationError
    _ = await task.result
}

@MainActor @Observable
private final class ChatModel {
    let chat: Chat
    private(set) var text = ""

    init(_ chat: Chat) {
        self.chat = chat
    }

    func send(_ message: String) async {
        do {
            for try await piece in chat.send(message).text { text += piece }
        } catch is CancellationError {
            // the view is gone
        } catch {
            text = error.localizedDescription
        }
    }

    /// What the stop button calls. The loop in `send` then ends.
    func stop() {
        chat.stop()
    }
}

private struct Weather: Generable {
    var city: String
    var degrees: Int
    var isRaining: Bool?

    static let generationSchema = GenerationSchema.object {
        Property("city", .string(length: 1...40))
        Property("degrees", .integer(in: -90...60))
        Property("isRaining", Bool?.self)
    }
}

private func weather(_ chat: Chat) async throws -> Weather {
    try await chat.ask("It is hot in Rome. City, degrees, and is it raining?")
}

private struct ForecastTool: Tool {
    let name = "forecast"
    let description = "Tomorrow's weather in a city"

    struct Arguments: Generable {
        var city: String

        static let generationSchema = GenerationSchema.object {
            Property("city", String.self, description: "The city's name")
        }
    }

    func call(arguments: Arguments) async throws -> String {
        "It will rain in \(arguments.city)."
    }
}

private func advise(_ model: Model) async throws -> String {
    let session = LanguageModelSession(
        model: model, tools: [ForecastTool()], instructions: "Answer in one sentence.")
    let response = try await session.respond(
        to: "Do I need an umbrella in Rome?", options: GenerationOptions(temperature: 0.7))
    return response.content
}

private func stream(_ session: LanguageModelSession) async throws {
    for try await snapshot in session.streamResponse(to: "Tell me a story about an owl.") {
        print(snapshot.content) // all of the text so far
    }
}

private func run(_ calls: [ToolCall], for chat: Chat) async throws -> Reply {
    for call in calls {
        try await chat.append(.tool("The result of \(call.name)(\(call.arguments))", for: call))
    }
    return chat.reply()
}

private func get(_ name: String) async throws -> URL {
    for model in try await Model.localModels() where model.whole {
        print("\(model.name) of \(model.source), \(model.bytes >> 20) MB")
    }
    return try await Model.pull(name) { progress in
        print(progress.trouble ?? "\(progress.done) of \(progress.total) bytes")
    }
}

private func keep(_ chat: Chat, in folder: URL) async throws {
    try await chat.save().write(to: folder.appending(path: "chat.json"), options: .atomic)
    try await chat.saveSnapshot(to: folder.appending(path: "cache"))
}

private func reopen(_ model: Model, from folder: URL) async throws -> Chat {
    let chat = try await Chat(model)
    try await chat.restore(from: Data(contentsOf: folder.appending(path: "chat.json")))
    // Without the cache, the next reply computes everything again.
    try? await chat.loadSnapshot(from: folder.appending(path: "cache"))
    return chat
}

private func explain(_ call: () async throws -> Void) async -> String? {
    do {
        try await call()
        return nil
    } catch is CancellationError {
        return nil // the user wanted that
    } catch WglmError.contextFull {
        return "Begin a new conversation."
    } catch let error as WglmError {
        return [error.reason, error.recoverySuggestion].compactMap(\.self).joined(separator: " ")
    } catch {
        return error.localizedDescription
    }
}

@Suite struct GuideTests {
    @Test func isTheGuides() throws {
        let file = URL(filePath: #filePath)
        var root = file
        for _ in 0..<5 { root.deleteLastPathComponent() }
        let guide = try String(contentsOf: root.appending(path: "docs/swift.md"), encoding: .utf8)
        func plain(_ text: some StringProtocol) -> String {
            text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }.joined(separator: "\n")
        }
        let code = plain(try String(contentsOf: file, encoding: .utf8)).replacing("private ", with: "")
        let blocks = guide.components(separatedBy: "```swift\n").dropFirst()
            .map { $0.components(separatedBy: "```")[0] }
        #expect(blocks.count > 8)
        for block in blocks {
            #expect(code.contains(plain(block).replacing("private ", with: "")), "not in GuideTests.swift: \(block)")
        }
    }

    @Test func runs() async throws {
        let model = try await demo.value
        await #expect(throws: WglmError.self) { try await load(URL(filePath: "/no/such/file")) }
        try await converse(model)
        let chat = try await newChat()
        try await show(chat)
        try await stop(chat)
        let view = await ChatModel(chat)
        await view.send("What is 9 + 4?")
        #expect(await view.text.contains("13"))
        await view.stop()
        chat.options.maxTokens = 200
        #expect(try await (-90...60).contains(weather(chat).degrees))
        #expect(try await !advise(model).isEmpty)
        try await stream(LanguageModelSession(model: model))
        await #expect(throws: WglmError.self) { try await get("no name") }
        try await withFile { file in
            let folder = file.deletingLastPathComponent()
            try await keep(chat, in: folder)
            let again = try await reopen(model, from: folder)
            #expect(again.messages == chat.messages)
        }
        let reason = await explain { _ = try await load(URL(filePath: "/no/such/file")) }
        #expect(reason?.contains("file") == true)
        #expect(await explain { throw CancellationError() } == nil)
    }

    @Test func functions() async throws {
        let chat = try await newChat()
        chat.functions = [Function(name: "city", description: "A city", parameters: City.generationSchema)]
        chat.options.calls = .required
        let answer = try await chat.send("Which city?").collect()
        #expect(answer.toolCalls.first?.name == "city")
        chat.options.calls = Calls.none
        #expect(try await run(answer.toolCalls, for: chat).collect().toolCalls.isEmpty)
        #expect(chat.messages.map(\.role).suffix(2) == ["tool", "assistant"])
    }
}
