import Foundation

/// A function that a ``LanguageModelSession`` runs when the model calls it.
///
/// ```swift
/// struct WeatherTool: Tool {
///     let name = "weather"
///     let description = "The weather in a city"
///
///     struct Arguments: Generable {
///         var city: String
///         static let generationSchema = GenerationSchema.object { Property("city", String.self) }
///     }
///
///     func call(arguments: Arguments) async throws -> String {
///         "It rains in \(arguments.city)."
///     }
/// }
/// ```
public protocol Tool: Sendable {
    /// What the model passes: a type with properties.
    associatedtype Arguments: Generable
    /// What the model gets: text, or a value that it sees as JSON.
    associatedtype Output: Encodable & Sendable

    /// The name that the model uses: letters, digits and underscores.
    var name: String { get }
    /// What the function does, for the model.
    var description: String { get }

    /// Runs the function. An error ends the reply.
    func call(arguments: Arguments) async throws -> Output
}

extension Tool {
    /// The name of the type.
    public var name: String {
        String(describing: Self.self)
    }

    var function: Function {
        Function(name: name, description: description, parameters: Arguments.generationSchema)
    }

    /// Runs the function with arguments as JSON, and returns its result as text.
    func call(json: String) async throws -> String {
        let arguments: Arguments
        do {
            arguments = try JSONDecoder().decode(Arguments.self, from: Data(json.utf8))
        } catch {
            // The model can call again with other arguments.
            return "The arguments are not valid: \(error)"
        }
        let output = try await call(arguments: arguments)
        if let text = output as? String { return text }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(output), as: UTF8.self)
    }
}
