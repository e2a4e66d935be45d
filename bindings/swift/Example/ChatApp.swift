// A chat app in one file: it loads a model with progress, shows the conversation, streams replies, and stops them.
//
// Make an app project in Xcode, add the package (docs/swift.md), and replace the project's Swift files by this one.
//
// This has not run on a Mac. On Linux, scripts/swift-test.sh checks its types against declarations of the parts of
// SwiftUI that it uses.

import SwiftUI
import Wglm

@main
struct ChatApp: App {
    @State private var loader = ModelLoader(verdicts: URL.cachesDirectory.appending(path: "wglm-verdicts.json"))

    var body: some Scene {
        WindowGroup {
            switch loader.state {
            case .idle: StartView(loader: loader)
            case .downloading(let progress): WaitView(title: "Downloading", share: progress?.fraction, loader: loader)
            case .loading(let progress): WaitView(title: "Loading", share: progress?.fraction, loader: loader)
            case .ready(let model): ChatView(conversation: Conversation(model))
            case .failed(let error):
                Text(error.localizedDescription)
                StartView(loader: loader)
            }
        }
    }
}

struct StartView: View {
    let loader: ModelLoader

    var body: some View {
        VStack {
            Button("Download GLM-4.7-Flash") { loader.download("unsloth/GLM-4.7-Flash-GGUF") }
            Button("Try the demonstration model") { loader.loadDemo() }
        }
    }
}

struct WaitView: View {
    let title: String
    let share: Double?
    let loader: ModelLoader

    var body: some View {
        VStack {
            ProgressView(title, value: share)
            Button("Cancel") { loader.cancel() }
        }
    }
}

/// The session, and the response that is being generated.
@MainActor @Observable
final class Conversation {
    let session: LanguageModelSession
    private(set) var partial = ""
    private(set) var problem: String?
    private var task: Task<Void, Never>?

    init(_ model: Model) {
        session = LanguageModelSession(model: model, overflow: .dropOldest(reserve: nil))
    }

    func send(_ text: String) {
        (partial, problem) = ("", nil)
        task = Task {
            do {
                for try await snapshot in session.streamResponse(to: text) { partial = snapshot.content }
            } catch is CancellationError {
                // The part that was generated stays in the conversation.
            } catch {
                problem = error.localizedDescription
            }
            partial = ""
        }
    }

    func stop() {
        task?.cancel()
    }
}

struct ChatView: View {
    @State var conversation: Conversation
    @State private var draft = ""

    var body: some View {
        VStack {
            List {
                ForEach(Array(conversation.session.transcript.enumerated()), id: \.offset) { _, entry in
                    EntryView(entry: entry)
                }
                if !conversation.partial.isEmpty { Text(conversation.partial) }
                if let problem = conversation.problem { Text(problem).foregroundStyle(.red) }
            }
            HStack {
                TextField("Message", text: $draft)
                    .onSubmit(send)
                if conversation.session.isResponding {
                    Button("Stop") { conversation.stop() }
                } else {
                    Button("Send", action: send).disabled(draft.isEmpty)
                }
            }
            .padding()
        }
    }

    private func send() {
        guard !draft.isEmpty, !conversation.session.isResponding else { return }
        conversation.send(draft)
        draft = ""
    }
}

struct EntryView: View {
    let entry: Transcript.Entry

    var body: some View {
        switch entry {
        case .prompt(let text): Text(text).bold()
        case .response(let text, _): Text(text)
        case .instructions, .toolCalls, .toolOutput: EmptyView()
        }
    }
}
