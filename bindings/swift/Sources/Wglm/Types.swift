import Foundation
import WglmCore

// Plain values are the core's own. The names here are those of this module, so that apps import only `Wglm`.

/// How a model is loaded.
public typealias LoadOptions = WglmCore.LoadOptions
/// The type of the values in the KV cache.
public typealias CacheType = WglmCore.CacheType
/// The progress of a load.
public typealias LoadProgress = WglmCore.LoadProgress
/// The stages of a load, in their order.
public typealias LoadStage = WglmCore.LoadStage
/// The progress of a download.
public typealias PullProgress = WglmCore.PullProgress
/// The progress of a tuning.
public typealias TuneProgress = WglmCore.TuneProgress
/// What a file is, and whether it fits the GPU.
public typealias Estimate = WglmCore.Estimate
/// A model on this machine.
public typealias LocalModel = WglmCore.LocalModel
/// A GPU, or a driver that computes on the CPU.
public typealias Adapter = WglmCore.Adapter
/// A message of a conversation.
public typealias Message = WglmCore.Message
/// A call of a function by the model.
public typealias ToolCall = WglmCore.ToolCall
/// A function that the model may call.
public typealias Function = WglmCore.Function
/// How replies are generated.
public typealias Options = WglmCore.Options
/// What an answer has to match.
public typealias Constraint = WglmCore.Constraint
/// Whether functions may or must be called.
public typealias Calls = WglmCore.Calls
/// What happens when a conversation outgrows its context.
public typealias Overflow = WglmCore.Overflow
/// A step of a reply that is being generated.
public typealias Event = WglmCore.Event
/// The statistics of a reply.
public typealias Stats = WglmCore.Stats
/// Why a reply ended.
public typealias Stop = WglmCore.Stop
/// A generated token and its most likely alternatives.
public typealias TokenLogprobs = WglmCore.TokenLogprobs
/// A token and the natural logarithm of its probability.
public typealias Logprob = WglmCore.Logprob

extension Message {
    /// Instructions for the whole conversation.
    public static func system(_ text: String) -> Message {
        Message(role: "system", content: text)
    }

    /// A message of the user.
    public static func user(_ text: String) -> Message {
        Message(role: "user", content: text)
    }

    /// An answer of the model.
    public static func assistant(_ text: String) -> Message {
        Message(role: "assistant", content: text)
    }

    /// The result of a call.
    public static func tool(_ result: String, for call: ToolCall) -> Message {
        Message(role: "tool", content: result, toolCallId: call.id, name: call.name)
    }
}

extension Function {
    /// Describes a function whose arguments have a schema.
    public init(name: String, description: String, parameters: GenerationSchema) {
        self.init(name: name, description: description, parameters: parameters.json, strict: true)
    }
}

extension LoadProgress {
    /// The part of the stage that is done, from 0 to 1; nil while it is not known.
    public var fraction: Double? {
        total == 0 ? nil : Double(done) / Double(total)
    }
}

extension PullProgress {
    /// The part of the download that is done, from 0 to 1; nil while it is not known.
    public var fraction: Double? {
        total == 0 ? nil : Double(done) / Double(total)
    }
}

extension LocalModel {
    /// The file, for ``Model/load(contentsOf:options:progress:)``.
    public var url: URL {
        URL(filePath: path)
    }
}
