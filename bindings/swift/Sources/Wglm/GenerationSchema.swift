/// Describes the values of a type, for the model's answers and for the arguments of functions.
///
/// ```swift
/// struct Weather: Generable {
///     var city: String
///     var degrees: Int
///     var isRaining: Bool?
///
///     static let generationSchema = GenerationSchema.object {
///         Property("city", .string(length: 1...40))
///         Property("degrees", .integer(in: -90...60))
///         Property("isRaining", Bool?.self)
///     }
/// }
/// ```
///
/// An answer has the properties in this order.
public struct GenerationSchema: Equatable, Sendable {
    /// The JSON schema.
    public let json: String
    /// Whether a property with this schema may be absent.
    let isOptional: Bool

    /// Uses a JSON schema as it is. docs/embedding.md of wglm lists the keywords that it supports.
    public init(json: String) {
        self.init(json: json, isOptional: false)
    }

    private init(json: String, isOptional: Bool) {
        (self.json, self.isOptional) = (json, isOptional)
    }

    private init(type: String, _ keywords: [(String, String?)] = []) {
        let all = [("type", quoted(type))] + keywords.compactMap { name, value in value.map { (name, $0) } }
        self.init(json: "{" + all.map { "\(quoted($0)):\($1)" }.joined(separator: ",") + "}")
    }

    /// The schema of a type.
    public static func of(_ type: any Generable.Type) -> GenerationSchema {
        type.generationSchema
    }

    /// Any text.
    public static let string = GenerationSchema(type: "string")

    /// A text with a number of characters, or one that matches a regular expression.
    public static func string(length: ClosedRange<Int>? = nil, pattern: String? = nil) -> GenerationSchema {
        let (least, most) = (length?.lowerBound.description, length?.upperBound.description)
        let pattern = pattern.map(quoted)
        return GenerationSchema(type: "string", [("minLength", least), ("maxLength", most), ("pattern", pattern)])
    }

    /// One of several texts.
    public static func choice(_ texts: [String]) -> GenerationSchema {
        GenerationSchema(json: #"{"enum":[\#(texts.map(quoted).joined(separator: ","))]}"#)
    }

    /// One of several texts.
    public static func choice(_ texts: String...) -> GenerationSchema {
        choice(texts)
    }

    /// A whole number.
    public static let integer = GenerationSchema(type: "integer")

    /// A whole number between bounds.
    public static func integer(in range: ClosedRange<Int>) -> GenerationSchema {
        let (least, most) = (range.lowerBound.description, range.upperBound.description)
        return GenerationSchema(type: "integer", [("minimum", least), ("maximum", most)])
    }

    /// A number.
    public static let number = GenerationSchema(type: "number")

    /// A number between bounds.
    public static func number(in range: ClosedRange<Double>) -> GenerationSchema {
        let (least, most) = (range.lowerBound.description, range.upperBound.description)
        return GenerationSchema(type: "number", [("minimum", least), ("maximum", most)])
    }

    /// True or false.
    public static let boolean = GenerationSchema(type: "boolean")

    /// A list.
    public static func array(of element: GenerationSchema, count: ClosedRange<Int>? = nil) -> GenerationSchema {
        let (least, most) = (count?.lowerBound.description, count?.upperBound.description)
        return GenerationSchema(
            type: "array", [("items", element.valueJSON), ("minItems", least), ("maxItems", most)])
    }

    /// An object with these properties and no others.
    public static func object(@Builder _ properties: () -> [Property]) -> GenerationSchema {
        let properties = properties()
        let members = properties.map { "\(quoted($0.name)):\($0.described)" }.joined(separator: ",")
        let required = properties.filter { !$0.schema.isOptional }.map { quoted($0.name) }.joined(separator: ",")
        return GenerationSchema(
            type: "object",
            [
                ("properties", "{\(members)}"), ("required", "[\(required)]"), ("additionalProperties", "false"),
            ])
    }

    /// The same values, or none: as a property it may be absent, elsewhere it may be null.
    public var optional: GenerationSchema {
        GenerationSchema(json: json, isOptional: true)
    }

    /// The schema where a value cannot be absent.
    private var valueJSON: String {
        isOptional ? #"{"anyOf":[\#(json),{"type":"null"}]}"# : json
    }

    /// A property of an object.
    public struct Property: Equatable, Sendable {
        let name: String
        let schema: GenerationSchema
        let description: String?

        /// Describes a property by a schema. `description` is for the model, if the object has a function's arguments.
        public init(_ name: String, _ schema: GenerationSchema, description: String? = nil) {
            (self.name, self.schema, self.description) = (name, schema, description)
        }

        /// Describes a property by its type. `description` is for the model, if the object has a function's arguments.
        public init(_ name: String, _ type: any Generable.Type, description: String? = nil) {
            self.init(name, type.generationSchema, description: description)
        }

        fileprivate var described: String {
            guard let description else { return schema.json }
            let rest = schema.json.dropFirst() // of the opening brace
            return "{\(quoted("description")):\(quoted(description))" + (rest == "}" ? "" : ",") + rest
        }
    }

    /// Collects the properties of an object.
    @resultBuilder
    public enum Builder {
        public static func buildBlock(_ parts: [Property]...) -> [Property] {
            parts.flatMap(\.self)
        }

        public static func buildExpression(_ property: Property) -> [Property] {
            [property]
        }

        public static func buildOptional(_ properties: [Property]?) -> [Property] {
            properties ?? []
        }

        public static func buildEither(first properties: [Property]) -> [Property] {
            properties
        }

        public static func buildEither(second properties: [Property]) -> [Property] {
            properties
        }

        public static func buildArray(_ properties: [[Property]]) -> [Property] {
            properties.flatMap(\.self)
        }
    }
}

/// A property of an object in a ``GenerationSchema``.
public typealias Property = GenerationSchema.Property

/// A type of values that a model can generate.
///
/// Write the schema next to the properties. There is no macro for that, and a value that matches the schema has to be
/// one that the type can decode.
public protocol Generable: Codable, Sendable {
    /// Describes the JSON of the type's values.
    static var generationSchema: GenerationSchema { get }
}

extension Generable where Self: CaseIterable & RawRepresentable, RawValue == String {
    /// One of the cases.
    public static var generationSchema: GenerationSchema {
        .choice(allCases.map(\.rawValue))
    }
}

extension String: Generable {
    public static let generationSchema = GenerationSchema.string
}

extension Int: Generable {
    public static let generationSchema = GenerationSchema.integer
}

extension Double: Generable {
    public static let generationSchema = GenerationSchema.number
}

extension Bool: Generable {
    public static let generationSchema = GenerationSchema.boolean
}

extension Array: Generable where Element: Generable {
    public static var generationSchema: GenerationSchema {
        .array(of: Element.generationSchema)
    }
}

extension Optional: Generable where Wrapped: Generable {
    public static var generationSchema: GenerationSchema {
        Wrapped.generationSchema.optional
    }
}

/// A text as JSON.
func quoted(_ text: String) -> String {
    var json = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"": json += "\\\""
        case "\\": json += "\\\\"
        case "\u{0}"..."\u{1F}":
            let digits = String(scalar.value, radix: 16)
            json += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        default: json.unicodeScalars.append(scalar)
        }
    }
    return json + "\""
}
