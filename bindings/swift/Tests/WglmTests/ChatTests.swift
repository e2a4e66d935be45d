import Foundation
import Testing
import Wglm

@Suite struct ChatTests {
    /// These are the answers that models/README.md lists for the command.
    @Test(arguments: [
        ("What is 9 + 4?", "9 + 4 = 13."), ("What is the opposite of loud?", "The opposite of loud is quiet."),
        ("What color is a frog?", "A frog is green."),
    ])
    func answersAsTheCommandDoes(question: String, answer: String) async throws {
        let chat = try await newChat()
        let reply = try await chat.send(question).collect()
        #expect(reply.text.trimmingCharacters(in: .whitespacesAndNewlines) == answer)
        #expect(reply.stats?.stop == .end)
    }

    @Test func sameTextHoweverItIsTaken() async throws {
        let collected = try await newChat().send(sum).collect()
        var (events, last) = ("", Event?.none)
        for try await event in try await newChat().send(sum) {
            if case .text(let piece) = event { events += piece }
            last = event
        }
        var pieces = ""
        for try await piece in try await newChat().send(sum).text { pieces += piece }
        let session = LanguageModelSession(model: try await demo.value)
        let response = try await session.respond(to: sum, options: greedy)
        #expect(hasSum(collected.text))
        #expect(events == collected.text)
        #expect(pieces == collected.text)
        #expect(response.content == collected.text)
        guard case .done(let stats) = last else { Issue.record("\(last as Any)"); return }
        #expect(stats.stop == .end)
        #expect(stats.generated == collected.stats?.generated)
    }

    @Test func messages() async throws {
        let chat = try await newChat(instructions: "Be brief.")
        #expect(chat.instructions == "Be brief.")
        let answer = try await chat.send(sum).collect()
        #expect(chat.messages.map(\.role) == ["system", "user", "assistant"])
        #expect(chat.messages[1] == .user(sum))
        #expect(chat.messages[2].content == answer.text)
        try await chat.setInstructions(nil)
        #expect(chat.messages.map(\.role) == ["user", "assistant"])
        let removed = try await chat.remove(0..<9)
        #expect(removed.count == 2 && chat.messages.isEmpty)
        try await chat.setMessages([.user("My name is Anna."), .assistant("Hello, Anna."), .user(sum)])
        #expect(try await chat.unanswered().count == 1)
        #expect(hasSum(try await chat.reply().collect().text))
        try await chat.truncate(to: 1)
        #expect(chat.messages.count == 1)
        #expect(try await chat.promptTokens() > 0)
        #expect(try await chat.context() > 0)
    }

    @Test func thinking() async throws {
        let chat = try await newChat()
        chat.thinking = true
        let answer = try await chat.send(story).collect()
        #expect(!answer.thinking.isEmpty && !answer.text.isEmpty)
        #expect(chat.messages.last?.reasoning?.isEmpty == false)
    }

    @Test func regenerate() async throws {
        let chat = try await newChat()
        #expect(await error { _ = try await chat.regenerate().collect() }?.recoverySuggestion == nil)
        let first = try await chat.send(sum).collect()
        let second = try await chat.regenerate().collect()
        #expect(second.text == first.text)
        #expect(chat.messages.map(\.role) == ["user", "assistant"])
        #expect(try #require(second.stats).cached > 0)
    }

    @Test func resume() async throws {
        let whole = try await newChat().send(story).collect()
        let chat = try await newChat()
        chat.options.maxTokens = 8
        let first = try await chat.send(story).collect()
        #expect(first.stats?.stop == .length)
        chat.options.maxTokens = nil
        let rest = try await chat.resume().collect()
        #expect(first.text + rest.text == whole.text)
        #expect(chat.messages.count == 2)
        #expect(chat.messages.last?.content == whole.text)
    }

    @Test func beginning() async throws {
        let chat = try await newChat()
        try await chat.append(.user(sum))
        let rest = try await chat.reply(startingWith: "Seven plus five").collect()
        #expect(hasSum(rest.text))
        #expect(chat.messages.last?.content.hasPrefix("Seven plus five") == true)
    }

    @Test func wrongSettingsFailTheReply() async throws {
        let chat = try await newChat()
        chat.options.constraint = .regex(expression: "(")
        let failure = await error { _ = try await chat.send(sum).collect() }
        guard case .invalidInput(let reason) = failure else { Issue.record("\(failure as Any)"); return }
        #expect(failure?.errorDescription == reason && !reason.isEmpty)
        try await chat.append(.user("What is")) // which does not depend on them
        chat.options.constraint = .regex(expression: "[0-9]{4}")
        let year = try await chat.send("When?").collect().text
        #expect(year.count == 4 && Int(year) != nil)
    }

    @Test func seedsAndLogprobs() async throws {
        let chat = try await newChat()
        chat.options = Options(maxTokens: 8, temperature: 1, seed: 7, logprobs: 2)
        var (tokens, text) = ([TokenLogprobs](), "")
        for try await event in chat.send(story) {
            switch event {
            case .token(let token): tokens.append(token)
            case .text(let piece): text += piece
            default: break
            }
        }
        #expect(tokens.count == 8 && tokens.allSatisfy { $0.top.count == 2 })
        #expect(try await chat.regenerate().collect().text == text)
    }
}

@Suite struct StoppingTests {
    @Test func cancelledTask() async throws {
        let chat = try await newChat()
        let (text, last) = try await Task {
            var (text, last) = ("", Event?.none)
            for try await event in chat.send(story) {
                if case .text(let piece) = event {
                    text += piece
                    cancelThisTask()
                }
                last = event
            }
            return (text, last)
        }.value
        guard case .done(let stats) = last else { Issue.record("\(last as Any)"); return }
        #expect(stats.stop == .cancelled)
        #expect(!text.isEmpty)
        #expect(chat.messages.last?.role == "assistant")
        #expect(chat.messages.last?.content == text)
        #expect(hasSum(try await chat.send(sum).collect().text))
    }

    @Test func cancelledCollection() async throws {
        let chat = try await newChat()
        let reply = chat.send(story)
        let task = Task { try await reply.collect() }
        while chat.messages.isEmpty { await Task.yield() } // until it is being generated
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(!chat.isReplying)
        #expect(reply.stats?.stop == .cancelled)
        // Nothing happens in a task that is cancelled before.
        let count = chat.messages.count
        await #expect(throws: CancellationError.self) {
            try await Task {
                cancelThisTask()
                return try await chat.send(story).collect()
            }.value
        }
        #expect(chat.messages.count == count)
    }

    @Test func stopButton() async throws {
        let chat = try await newChat()
        var (text, stop) = ("", Stop?.none)
        for try await event in chat.send(story) {
            switch event {
            case .text(let piece):
                text += piece
                chat.stop()
            case .done(let stats): stop = stats.stop
            default: break
            }
        }
        #expect(stop == .cancelled)
        #expect(chat.messages.last?.content == text)
        // A reply that was stopped before it began.
        let reply = chat.send(sum)
        reply.stop()
        #expect(try await reply.collect().stats?.stop == .cancelled)
        #expect(try await chat.unanswered() == [.user(sum)])
    }

    @Test func leftLoop() async throws {
        let chat = try await newChat()
        for round in 1...3 {
            var first = ""
            for try await piece in chat.send(story).text {
                first = piece
                break
            }
            // Nobody has to wait for the end of the reply.
            #expect(try await chat.promptTokens() > 0)
            #expect(chat.messages.count == 2 * round)
            #expect(chat.messages.last?.content.hasPrefix(first) == true)
        }
        try await chat.truncate(to: 0)
        #expect(hasSum(try await chat.send(sum).collect().text))
    }

    @Test func secondIterator() async throws {
        let chat = try await newChat()
        let reply = chat.send(sum)
        let answer = try await reply.collect()
        #expect(try await reply.collect() == Reply.Answer()) // nothing is left
        #expect(reply.stats == answer.stats)
        #expect(chat.messages.count == 2)
    }

    @Test func oneReplyAtATime() async throws {
        let chat = try await newChat()
        var reply = chat.send(story).makeAsyncIterator()
        _ = try await reply.next()
        #expect(chat.isReplying)
        #expect(chat.messages == [.user(story)])
        let calls: [@Sendable () async throws -> Void] = [
            { _ = try await chat.send(sum).collect() },
            { try await chat.append(.user(sum)) },
            { try await chat.truncate(to: 0) },
            { _ = try await chat.save() },
            { _ = try await chat.promptTokens() },
            { let _: Int = try await chat.ask(sum) },
        ]
        for call in calls {
            let failure = await error(of: call)
            guard case .busy = failure else { Issue.record("\(failure as Any)"); continue }
            #expect(failure?.recoverySuggestion != nil)
        }
        chat.options.maxTokens = 1 // for later replies
        var text = ""
        while let event = try await reply.next() {
            if case .text(let piece) = event { text += piece }
        }
        #expect(chat.messages.last?.content.hasSuffix(text) == true)
        #expect(try await chat.send(sum).collect().stats?.generated == 1)
    }

    @Test func droppedInAnyOrder() async throws {
        let model = try await demo.value
        for order in 0..<3 {
            var chat: Chat? = try await Chat(model)
            let reply = chat?.send(story)
            var events = reply?.makeAsyncIterator()
            for _ in 0..<3 { _ = try await events?.next() }
            if order == 0 { chat = nil }
            if order == 1 { events = nil }
            if order < 2 { reply?.stop() }
            while try await events?.next() != nil {}
            (chat, events) = (nil, nil)
        }
    }

    @Test func modelDroppedFirst() async throws {
        _ = try await demo.value
        var model: Model? = try await Model.demo(options: LoadOptions(context: 256))
        var chat: Chat? = try await Chat(#require(model))
        chat?.options.temperature = 0
        chat?.thinking = false
        model = nil
        let reply = chat?.send(sum)
        chat = nil
        #expect(hasSum(try await #require(reply).collect().text))
    }

    @Test func manyTasks() async throws {
        let questions = [sum, "What is 9 + 4?", "What color is a frog?", "What is the opposite of loud?"]
        var expected: [String] = []
        for question in questions { expected.append(try await newChat().send(question).collect().text) }
        let answers = try await withThrowingTaskGroup(of: (Int, String).self) { group in
            for (index, question) in questions.enumerated() {
                for _ in 0..<2 { group.addTask { (index, try await newChat().send(question).collect().text) } }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers.count == 8)
        for (index, answer) in answers { #expect(answer == expected[index]) }
    }

    @Test func manyTasksOfOneChat() async throws {
        let chat = try await newChat()
        // Each of them gets its reply, or learns that the conversation is in use.
        let outcomes = try await withThrowingTaskGroup(of: Bool.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    do {
                        return hasSum(try await chat.send(sum).collect().text)
                    } catch WglmError.busy {
                        return false
                    }
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let answered = outcomes.filter(\.self).count
        #expect(answered > 0)
        #expect(chat.messages.count >= 2 * answered)
    }
}

@Suite struct KeepingTests {
    @Test func saved() async throws {
        let chat = try await newChat(instructions: "Be brief.")
        chat.options.logitBias = [3: -.infinity]
        chat.functions = [Function(name: "weather", description: "The weather", parameters: City.generationSchema)]
        chat.overflow = .dropOldest(reserve: 20)
        _ = try await chat.send(sum).collect()
        let data = try await chat.save()
        #expect(try JSONSerialization.jsonObject(with: data) is [String: Any])

        let other = try await newChat()
        other.options.maxTokens = 3
        try await other.restore(from: data)
        #expect(other.messages == chat.messages)
        #expect(other.options == chat.options)
        #expect(other.functions == chat.functions)
        #expect(other.overflow == chat.overflow)
        #expect(other.thinking == false)
        #expect(try await other.save() == data)
        #expect(try await other.promptTokens() == chat.promptTokens())

        let failure = await error { try await other.restore(from: Data("[1]".utf8)) }
        guard case .invalidInput = failure else { Issue.record("\(failure as Any)"); return }
        #expect(other.messages == chat.messages)
    }

    @Test func savedElsewhere() async throws {
        let chat = try await newChat()
        let json = #"{"messages": [{"role": "user", "content": "What is 9 + 4?"}], "reasoning": false}"#
        try await chat.restore(from: Data(json.utf8))
        #expect(chat.messages == [.user("What is 9 + 4?")])
        #expect(chat.options == Options())
        chat.options.temperature = 0
        #expect(try await chat.reply().collect().text.contains("13"))
    }

    @Test func snapshot() async throws {
        try await withFile { file in
            let chat = try await newChat()
            _ = try await chat.send(story).collect()
            try await chat.saveSnapshot(to: file)
            let data = try await chat.save()
            let expected = try await chat.send(sum).collect()

            let other = try await newChat()
            try await other.restore(from: data)
            try await other.loadSnapshot(from: file)
            let answer = try await other.send(sum).collect()
            #expect(answer.text == expected.text)
            #expect(try #require(answer.stats).cached > 20)

            try Data("no snapshot".utf8).write(to: file)
            let damaged = await error { try await other.loadSnapshot(from: file) }
            guard case .invalidSnapshot = damaged else { Issue.record("\(damaged as Any)"); return }
            let missing = file.deletingLastPathComponent().appending(path: "missing")
            let absent = await error { try await other.loadSnapshot(from: missing) }
            guard case .notFound = absent else { Issue.record("\(absent as Any)"); return }
            #expect(hasSum(try await other.send(sum).collect().text))
        }
    }

    @Test func overflow() async throws {
        let chat = try await newChat(context: 144)
        #expect(try await chat.context() == 144)
        chat.overflow = .dropOldest(reserve: nil)
        var dropped: [Message] = []
        for question in ["My name is Anna.", story, sum] {
            let answer = try await chat.send(question).collect()
            #expect(!answer.text.isEmpty)
            dropped += answer.dropped
        }
        #expect(!dropped.isEmpty)
        #expect(dropped.count + chat.messages.count == 6)
        try await chat.setMessages([.user(sum), .assistant("12."), .user(sum), .assistant("12."), .user(sum)])
        let tokens = try await chat.promptTokens()
        #expect(try await chat.fit(reserve: 144 - tokens + 1) == [.user(sum), .assistant("12.")])
        #expect(chat.messages.count == 3)

        let refusing = try await newChat(context: 48)
        let failure = await error {
            for _ in 0..<3 { _ = try await refusing.send(story).collect() }
        }
        guard case .contextFull = failure else { Issue.record("\(failure as Any)"); return }
        #expect(failure?.recoverySuggestion != nil)
    }
}

struct City: Generable, Equatable {
    var city: String

    static let generationSchema = GenerationSchema.object {
        Property("city", .choice("Rome", "Oslo"), description: "The city's name")
    }
}
