import Foundation
import Observation
import Testing
import Wglm

private struct Sum: Generable, Equatable {
    var words: String
    var sum: Int
    var isEven: Bool?

    static let generationSchema = GenerationSchema.object {
        Property("words", .string(length: 1...20))
        Property("sum", .integer(in: 0...99))
        Property("isEven", Bool?.self)
    }
}

private enum Color: String, Generable, CaseIterable {
    case green, brown, white
}

@Suite struct SchemaTests {
    @Test func json() {
        let json = Sum.generationSchema.json
        let properties =
            #""words":{"type":"string","minLength":1,"maxLength":20},"#
            + #""sum":{"type":"integer","minimum":0,"maximum":99},"isEven":{"type":"boolean"}"#
        let rest = #""required":["words","sum"],"additionalProperties":false"#
        #expect(json == #"{"type":"object","properties":{\#(properties)},\#(rest)}"#)
        #expect(Color.generationSchema.json == #"{"enum":["green","brown","white"]}"#)
        #expect([Int?].generationSchema.json.contains(#""items":{"anyOf":[{"type":"integer"},{"type":"null"}]}"#))
        #expect(City.generationSchema.json.contains(#"{"description":"The city's name","enum":["Rome","Oslo"]}"#))
        #expect(GenerationSchema.choice("\"\\\n").json == #"{"enum":["\"\\\u000a"]}"#)
    }

    @Test func conditions() {
        let hasMore = false
        let schema = GenerationSchema.object {
            for name in ["a", "b"] { Property(name, Int.self) }
            if hasMore { Property("c", String.self) } else { Property("d", .number(in: 0.5...1)) }
        }
        #expect(schema.json.contains(#""required":["a","b","d"]"#))
    }
}

@Suite struct AskTests {
    @Test func values() async throws {
        let chat = try await newChat()
        chat.options.maxTokens = 64
        let value: Sum = try await chat.ask(sum)
        #expect((1...20).contains(value.words.count) && (0...99).contains(value.sum))
        #expect(chat.messages.count == 2)
        let color = try await chat.ask("What color is a frog?", for: Color.self)
        #expect(color == .green)
        #expect(try await (0...99).contains(chat.ask(sum, for: Int.self, schema: .integer(in: 0...99))))
        // Then the conversation goes on without a schema.
        chat.options.maxTokens = nil
        #expect(hasSum(try await chat.send(sum).collect().text))
    }

    @Test func failures() async throws {
        let chat = try await newChat()
        chat.options.maxTokens = 2
        let unfinished = await error { let _: Sum = try await chat.ask(sum) }
        guard case .unfinished(_, let text, .length) = unfinished else { Issue.record("\(unfinished as Any)"); return }
        #expect(text.hasPrefix("{"))
        let more = await error { let _: Sum = try await chat.resumeAsk() }
        guard case .unfinished(_, let longer, .length) = more else { Issue.record("\(more as Any)"); return }
        #expect(longer.hasPrefix(text) && longer.count > text.count)
        chat.options.maxTokens = 64
        let value: Sum = try await chat.resumeAsk()
        #expect((0...99).contains(value.sum) && chat.messages.count == 2)
        chat.options.maxTokens = 2
        let schema = GenerationSchema(json: #"{"type": "#)
        let invalid = await error { _ = try await chat.askJSON(sum, schema: schema) }
        guard case .invalidInput = invalid else { Issue.record("\(invalid as Any)"); return }
        chat.options.maxTokens = 64
        // A value of the schema that the type cannot decode.
        await #expect(throws: DecodingError.self) { try await chat.ask(sum, for: Int.self, schema: .boolean) }
        let task = Task { try await chat.ask(story, for: String.self) }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        _ = try await chat.ask("What color is a frog?", for: Color.self)
        #expect(chat.messages.last?.role == "assistant")
    }
}

private struct WeatherTool: Tool {
    let name = "weather"
    let description = "The weather in a city"
    let asked = Shared<[City]>([])
    var failure: WglmError?

    func call(arguments: City) async throws -> [String: Int] {
        asked.change { $0.append(arguments) }
        if let failure { throw failure }
        return ["degrees": 20]
    }
}

private struct Clock: Tool {
    let description = "The time"

    struct Arguments: Generable {
        static let generationSchema = GenerationSchema.object {}
    }

    func call(arguments: Arguments) async throws -> String {
        "noon"
    }
}

@Suite struct SessionTests {
    @Test func conversation() async throws {
        let session = LanguageModelSession(model: try await demo.value, instructions: "Be brief.")
        #expect(Array(session.transcript) == [.instructions("Be brief.")])
        let first = try await session.respond(to: sum, options: greedy)
        #expect(hasSum(first.content) && first.rawContent == first.content)
        let second = try await session.respond(to: "What color is a frog?", options: greedy)
        #expect(second.content.contains("green"))
        #expect(
            Array(session.transcript) == [
                .instructions("Be brief."), .prompt(sum), .response(first.content, thinking: nil),
                .prompt("What color is a frog?"), .response(second.content, thinking: nil),
            ])
        let data = try JSONEncoder().encode(session.transcript)
        let transcript = try JSONDecoder().decode(Transcript.self, from: data)
        let later = LanguageModelSession(model: try await demo.value, transcript: transcript)
        #expect(later.transcript == session.transcript)
        try await later.respond(to: sum, options: greedy)
        #expect(later.transcript.count == 7)
    }

    @Test func stream() async throws {
        let session = LanguageModelSession(model: try await demo.value)
        var snapshots: [String] = []
        let changed = Shared(0)
        withObservationTracking {
            _ = (session.isResponding, session.transcript)
        } onChange: {
            changed.value += 1
        }
        for try await snapshot in session.streamResponse(to: sum, options: greedy) {
            if let last = snapshots.last { #expect(snapshot.content.hasPrefix(last)) }
            snapshots.append(snapshot.content)
            #expect(session.isResponding)
            #expect(session.transcript.last == .prompt(sum))
        }
        #expect(changed.value == 1) // observation reports the first change
        #expect(!session.isResponding)
        let last = try #require(snapshots.last)
        #expect(session.transcript.last == .response(last, thinking: nil))
        // A loop that is left ends the response.
        for try await _ in session.streamResponse(to: story, options: greedy) { break }
        #expect(hasSum(try await session.respond(to: sum, options: greedy).content))
        #expect(session.transcript.count == 6)
    }

    @Test func values() async throws {
        let session = LanguageModelSession(model: try await demo.value)
        let value = try await session.respond(to: sum, generating: Sum.self, options: greedy)
        #expect((0...99).contains(value.content.sum) && value.rawContent.hasPrefix("{"))
        let color: LanguageModelSession.Response<Color> =
            try await session.respond(to: "What color is a frog?", options: greedy)
        #expect(color.content == .green)
        var options = greedy
        options.maximumResponseTokens = 2
        let failure = await error {
            try await session.respond(to: sum, generating: Sum.self, options: options)
        }
        guard case .unfinished = failure else { Issue.record("\(failure as Any)"); return }
    }

    @Test func oneRequestAtATime() async throws {
        let session = LanguageModelSession(model: try await demo.value)
        var first = session.streamResponse(to: story, options: greedy).makeAsyncIterator()
        _ = try await first.next()
        await #expect(throws: LanguageModelSession.GenerationError.concurrentRequests) {
            try await session.respond(to: sum)
        }
        while try await first.next() != nil {}
        #expect(hasSum(try await session.respond(to: sum, options: greedy).content))
        // A response that is cancelled.
        let task = Task { try await session.respond(to: story, options: greedy) }
        while session.transcript.last != .prompt(story) { await Task.yield() }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(!session.isResponding)
        #expect(hasSum(try await session.respond(to: sum, options: greedy).content))
    }

    @Test func tools() async throws {
        let weather = WeatherTool()
        let session = LanguageModelSession(model: try await demo.value, tools: [weather, Clock()])
        var options = greedy
        // The demonstration model was not trained to call functions.
        options.toolCalling = .function(name: "weather")
        let response = try await session.respond(to: "How warm is it in Rome?", options: options)
        #expect(!response.content.isEmpty)
        #expect(weather.asked.value.count == 1)
        let entries = Array(session.transcript)
        #expect(entries.first == .prompt("How warm is it in Rome?"))
        guard let index = entries.firstIndex(where: { if case .toolCalls = $0 { true } else { false } }),
            case .toolCalls(let calls) = entries[index]
        else { Issue.record("\(entries)"); return }
        #expect(calls.map(\.name) == ["weather"])
        #expect(entries[index + 1] == .toolOutput(#"{"degrees":20}"#, call: calls[0]))
        #expect(entries.last == .response(response.content, thinking: nil))
        options.toolCalling = .function(name: "Clock")
        try await session.respond(to: "What time is it?", options: options)
        #expect(session.transcript.contains { if case .toolOutput("noon", _) = $0 { true } else { false } })
        // A later session can continue from there.
        let later = LanguageModelSession(model: try await demo.value, transcript: session.transcript)
        try await later.respond(to: sum, options: greedy)
        #expect(later.transcript.count == session.transcript.count + 2)
    }

    @Test func failingTool() async throws {
        var weather = WeatherTool()
        weather.failure = .network(reason: "no network")
        let session = LanguageModelSession(model: try await demo.value, tools: [weather])
        var options = greedy
        options.toolCalling = .required
        do {
            try await session.respond(to: "How warm is it in Rome?", options: options)
            Issue.record("the tool's error is lost")
        } catch let error as LanguageModelSession.ToolCallError {
            #expect(error.tool.name == "weather")
            #expect(error.underlyingError as? WglmError == weather.failure)
            #expect(error.localizedDescription == "weather failed: no network")
        }
        // Every call has a result, so the session can go on.
        #expect(session.transcript.last.map { if case .toolOutput = $0 { true } else { false } } == true)
        #expect(!session.isResponding)
        try await session.respond(to: sum, options: greedy)
    }

    @Test func endlessCalls() async throws {
        let session = LanguageModelSession(model: try await demo.value, tools: [WeatherTool()])
        var options = greedy
        options.toolCalling = .function(name: "weather")
        options.maximumToolRounds = 0
        await #expect(throws: LanguageModelSession.GenerationError.tooManyToolRounds(0)) {
            try await session.respond(to: "How warm is it in Rome?", options: options)
        }
        #expect(!session.isResponding)
    }
}
