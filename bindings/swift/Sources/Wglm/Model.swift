import Foundation
import WglmCore

/// A model on the GPU, which any number of conversations share. Its memory is released with the last object that uses
/// it.
///
/// All calls that take long run on threads of their own. Cancelling the task of such a call stops it: it then throws
/// `CancellationError`, and releases what it had allocated.
public final class Model: Sendable {
    let core: WglmCore.Model

    private init(_ core: WglmCore.Model) {
        self.core = core
    }

    /// Loads a model from a GGUF file, or from the first of several.
    ///
    /// - Parameters:
    ///   - url: The file.
    ///   - options: How it is loaded.
    ///   - progress: Called on the thread that loads, at least every tenth of a second.
    /// - Throws: ``WglmError``: `notFound`, `invalidFile` or `unsupported` for the file; `outOfMemory`, `noDevice` or
    ///   `driver`.
    public static func load(
        contentsOf url: URL,
        options: LoadOptions = LoadOptions(),
        progress: (@Sendable (LoadProgress) -> Void)? = nil
    ) async throws -> Model {
        let (cancel, listener) = (WglmCore.Cancel(), Progress(load: progress))
        return try await blocking(cancel) {
            let path = url.plainPath
            return Model(try .load(path: path, options: options, listener: listener, cancel: cancel))
        }
    }

    /// Loads the demonstration model, which is part of this library: 6 MB that tell fables and add small numbers, for
    /// an app's tests and previews.
    public static func demo(
        options: LoadOptions = LoadOptions(),
        progress: (@Sendable (LoadProgress) -> Void)? = nil
    ) async throws -> Model {
        let (cancel, listener) = (WglmCore.Cancel(), Progress(load: progress))
        return try await blocking(cancel) { Model(try .demo(options: options, listener: listener, cancel: cancel)) }
    }

    /// Opens the GPU again after ``WglmError/deviceLost(reason:)``, and loads the same file on it.
    /// ``Chat/move(to:)`` continues a conversation there.
    public func reload(progress: (@Sendable (LoadProgress) -> Void)? = nil) async throws -> Model {
        let (core, cancel, listener) = (core, WglmCore.Cancel(), Progress(load: progress))
        return try await blocking(cancel) { Model(try core.reload(listener: listener, cancel: cancel)) }
    }

    /// The name that the file gives the model.
    public var name: String? {
        core.name()
    }

    /// The context of conversations in tokens.
    public var context: Int {
        Int(core.context())
    }

    /// The name of the GPU.
    public var adapter: String {
        core.adapter()
    }

    /// What the load found out about the kernels on this GPU. Save it, and pass it to later loads as one of
    /// `LoadOptions.verdicts`: they then start faster.
    public var verdict: String? {
        core.verdict()
    }

    /// Measures which settings are fastest on this GPU. This takes one to five minutes, or `limit`, and keeps the GPU
    /// busy.
    ///
    /// If the task is cancelled, this returns the choices so far.
    ///
    /// - Returns: Text for `LoadOptions.tuning` of later loads.
    public func tune(
        limit: Duration? = nil,
        progress: (@Sendable (TuneProgress) -> Void)? = nil
    ) async throws -> String {
        let (core, cancel, listener) = (core, WglmCore.Cancel(), Progress(tune: progress))
        let seconds = limit.map { Double($0.components.seconds) + Double($0.components.attoseconds) / 1e18 }
        return try await blocking(cancel) { try core.tune(seconds: seconds, listener: listener, cancel: cancel) }
    }

    /// A vector for each text: the mean of the model's hidden states. Compare two of them by the cosine of the angle
    /// between them. The model was not trained for this.
    public func embed(_ texts: [String]) async throws -> [[Float]] {
        let (core, cancel) = (core, WglmCore.Cancel())
        return try await blocking(cancel) { try core.embed(texts: texts, cancel: cancel) }
    }
}

// MARK: - Files and downloads

extension Model {
    /// Judges a file by its header: what it is, how much memory it needs, and whether it fits the GPU. Nothing is
    /// loaded. An error of the file is `Estimate.whyNot`.
    public static func estimate(
        contentsOf url: URL,
        options: LoadOptions = LoadOptions()
    ) async throws -> Estimate {
        try await blocking { try WglmCore.estimate(path: url.plainPath, options: options) }
    }

    /// The models that programs have downloaded to this machine: Hugging Face's, LM Studio, llama.cpp and Ollama.
    public static func localModels() async throws -> [LocalModel] {
        try await blocking { WglmCore.localModels() }
    }

    /// Finds a model on this machine by its name, ignoring case.
    ///
    /// - Throws: ``WglmError/notFound(reason:)`` if there is none, or it is incomplete.
    public static func localModel(named name: String) async throws -> LocalModel {
        try await blocking { try findModel(name: name) }
    }

    /// Downloads a model from Hugging Face. If the task is cancelled, the next call continues the download.
    ///
    /// - Parameters:
    ///   - name: `OWNER/REPO:QUANT`, or `OWNER/REPO` for the model of the repository that suits this machine best.
    ///   - options: How it will be loaded, which decides what fits.
    ///   - folder: Where files are stored, with the layout of Hugging Face's cache; otherwise in that cache.
    ///   - token: For private and gated repositories; otherwise the environment variable `HF_TOKEN`.
    ///   - revision: The branch, tag or commit; otherwise `main`.
    ///   - progress: Called on the thread that downloads, at least every tenth of a second.
    /// - Returns: The file for ``load(contentsOf:options:progress:)``.
    public static func pull(
        _ name: String,
        options: LoadOptions = LoadOptions(),
        to folder: URL? = nil,
        token: String? = nil,
        revision: String? = nil,
        progress: (@Sendable (PullProgress) -> Void)? = nil
    ) async throws -> URL {
        let (cancel, listener) = (WglmCore.Cancel(), Progress(pull: progress))
        let source = WglmCore.PullOptions(folder: folder?.plainPath, token: token, revision: revision)
        return try await blocking(cancel) {
            let path = try WglmCore.pull(
                name: name, options: options, source: source, listener: listener, cancel: cancel)
            return URL(filePath: path)
        }
    }

    /// The GPUs of this machine.
    public static func adapters() async throws -> [Adapter] {
        try await blocking { WglmCore.adapters() }
    }

    /// The version of wglm.
    public static var version: String {
        WglmCore.version()
    }
}
