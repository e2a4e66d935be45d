import Foundation
import Observation
import WglmCore

/// Loads a model for views: they show its ``state``, and are updated when it changes. A view that disappears calls
/// ``cancel()`` if nobody needs the model any more.
///
/// ```swift
/// @State private var loader = ModelLoader()
///
/// switch loader.state {
/// case .idle: Button("Load") { loader.load(contentsOf: file) }
/// case .downloading(let progress): ProgressView(value: progress?.fraction)
/// case .loading(let progress): ProgressView(value: progress?.fraction)
/// case .ready(let model): ChatView(model)
/// case .failed(let error): Text(error.localizedDescription)
/// }
/// ```
@MainActor
@Observable
public final class ModelLoader {
    /// What a loader does, or has.
    public enum State: Sendable {
        /// There is no model yet, or loading was cancelled.
        case idle
        /// A model is being downloaded.
        case downloading(PullProgress?)
        /// A model is being loaded.
        case loading(LoadProgress?)
        /// There is a model.
        case ready(Model)
        /// There is none, because of an error.
        case failed(any Error)
    }

    /// What the loader does, or has.
    public private(set) var state = State.idle

    @ObservationIgnored private let verdicts: URL?
    @ObservationIgnored private var task: Task<Void, Never>?

    /// Creates a loader.
    ///
    /// - Parameter verdicts: A file in which to keep what loads find out about this GPU's kernels, so that later loads
    ///   are faster.
    public init(verdicts: URL? = nil) {
        self.verdicts = verdicts
    }

    /// The model, if it is ready.
    public var model: Model? {
        if case .ready(let model) = state { model } else { nil }
    }

    /// Whether a model is being downloaded or loaded.
    public var isBusy: Bool {
        switch state {
        case .downloading, .loading: true
        case .idle, .ready, .failed: false
        }
    }

    /// Loads a file. What the loader did before is cancelled.
    public func load(contentsOf url: URL, options: LoadOptions = LoadOptions()) {
        begin { loader in
            try await loader.load(options) { try await Model.load(contentsOf: url, options: $0, progress: $1) }
        }
    }

    /// Loads the demonstration model. What the loader did before is cancelled.
    public func loadDemo(options: LoadOptions = LoadOptions()) {
        begin { loader in
            try await loader.load(options) { try await Model.demo(options: $0, progress: $1) }
        }
    }

    /// Downloads a model, unless it is on this machine, and loads it. What the loader did before is cancelled. The
    /// arguments are those of ``Model/pull(_:options:to:token:revision:progress:)``.
    public func download(
        _ name: String,
        options: LoadOptions = LoadOptions(),
        to folder: URL? = nil,
        token: String? = nil,
        revision: String? = nil
    ) {
        begin { loader in
            loader.state = .downloading(nil)
            let file = try await Self.following { progress in
                try await Model.pull(
                    name, options: options, to: folder, token: token, revision: revision, progress: progress)
            } show: { progress in
                loader.state = .downloading(progress)
            }
            try await loader.load(options) { try await Model.load(contentsOf: file, options: $0, progress: $1) }
        }
    }

    /// Stops downloading or loading.
    public func cancel() {
        task?.cancel()
    }

    /// Waits until the loader does nothing.
    public func settle() async {
        while let task {
            await task.value
            if self.task == task { return }
        }
    }

    private typealias Load = @Sendable (LoadOptions, @escaping @Sendable (LoadProgress) -> Void) async throws -> Model

    private func begin(_ work: @escaping @MainActor @Sendable (ModelLoader) async throws -> Void) {
        let before = task
        before?.cancel()
        task = Task {
            // Two models at once would need twice the memory.
            await before?.value
            do {
                try Task.checkCancellation()
                try await work(self)
            } catch is CancellationError {
                state = .idle
            } catch {
                state = .failed(error)
            }
        }
    }

    private func load(_ options: LoadOptions, _ load: @escaping Load) async throws {
        state = .loading(nil)
        var options = options
        options.verdicts += kept()
        let model: Model
        do {
            model = try await Self.following { [options] in
                try await load(options, $0)
            } show: { progress in
                self.state = .loading(progress)
            }
        } catch WglmError.driver(let reason, let verdict?) {
            keep(verdict) // with it, the next load avoids the kernel that failed
            throw WglmError.driver(reason: reason, verdict: verdict)
        }
        if let verdict = model.verdict { keep(verdict) }
        state = .ready(model)
    }

    private func kept() -> [String] {
        guard let verdicts, let data = try? Data(contentsOf: verdicts) else { return [] }
        return (try? JSONDecoder().decode([String].self, from: data)) ?? []
    }

    private func keep(_ verdict: String) {
        guard let verdicts, let data = try? JSONEncoder().encode([verdict]) else { return }
        try? data.write(to: verdicts, options: .atomic) // without it, the next load only takes longer
    }

    /// Runs a long call, and shows its progress in order. Of several steps at once only the newest is shown.
    private static func following<Step: Sendable, Result: Sendable>(
        _ call: @escaping @Sendable (@escaping @Sendable (Step) -> Void) async throws -> Result,
        show: (Step) -> Void
    ) async throws -> Result {
        let (steps, progress) = AsyncStream.makeStream(of: Step.self, bufferingPolicy: .bufferingNewest(1))
        async let result = {
            defer { progress.finish() }
            return try await call { progress.yield($0) }
        }()
        for await step in steps {
            show(step)
        }
        return try await result
    }
}
