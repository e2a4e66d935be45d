import WglmCore

/// How a ``LanguageModelSession`` generates a response. What is nil is as the model's file recommends.
public struct GenerationOptions: Equatable, Sendable {
    /// How tokens are chosen.
    public struct SamplingMode: Equatable, Sendable {
        fileprivate enum Kind: Equatable {
            case greedy
            case top(Int, seed: UInt64?)
            case share(Double, seed: UInt64?)
        }

        fileprivate let kind: Kind

        /// Always the most likely token. The same prompt then has the same response.
        public static let greedy = SamplingMode(kind: .greedy)

        /// One of the `top` most likely tokens.
        public static func random(top: Int, seed: UInt64? = nil) -> SamplingMode {
            SamplingMode(kind: .top(top, seed: seed))
        }

        /// One of the fewest tokens whose probabilities reach a threshold together.
        public static func random(probabilityThreshold: Double, seed: UInt64? = nil) -> SamplingMode {
            SamplingMode(kind: .share(probabilityThreshold, seed: seed))
        }
    }

    /// How tokens are chosen.
    public var sampling: SamplingMode?
    /// Flattens (above 1) or sharpens (below 1) the distribution of tokens.
    public var temperature: Double?
    /// The maximum number of tokens of each reply of the model.
    public var maximumResponseTokens: Int?
    /// Whether the model thinks before it answers.
    public var thinking: Bool?
    /// Whether the first reply may or must call functions. After that, the model decides.
    public var toolCalling: Calls
    /// The maximum number of replies that call functions, before the response fails.
    public var maximumToolRounds: Int

    public init(
        sampling: SamplingMode? = nil,
        temperature: Double? = nil,
        maximumResponseTokens: Int? = nil,
        thinking: Bool? = nil,
        toolCalling: Calls = .auto,
        maximumToolRounds: Int = 8
    ) {
        self.sampling = sampling
        self.temperature = temperature
        self.maximumResponseTokens = maximumResponseTokens
        self.thinking = thinking
        self.toolCalling = toolCalling
        self.maximumToolRounds = maximumToolRounds
    }

    /// The options of the first reply.
    func options(constraint: Constraint?) -> Options {
        var options = Options(
            maxTokens: maximumResponseTokens.map { UInt32(clamping: $0) },
            temperature: temperature.map { Float($0) }, constraint: constraint, calls: toolCalling)
        switch sampling?.kind {
        case .greedy: options.temperature = 0
        case .top(let count, let seed): (options.topK, options.seed) = (UInt32(clamping: count), seed)
        case .share(let share, let seed): (options.topP, options.seed) = (Float(share), seed)
        case nil: break
        }
        return options
    }
}
