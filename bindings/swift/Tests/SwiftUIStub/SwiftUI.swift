// Declarations of the parts of SwiftUI that Example/ChatApp.swift uses. With these, scripts/swift-test.sh checks its
// types where there is no SwiftUI. Nothing of this runs.

@_exported import Foundation
@_exported import Observation

@MainActor @preconcurrency public protocol View {
    associatedtype Body: View
    @ViewBuilder @MainActor var body: Body { get }
}

@MainActor @preconcurrency public protocol Scene {
    associatedtype Body: Scene
    @SceneBuilder @MainActor var body: Body { get }
}

@MainActor @preconcurrency public protocol App {
    associatedtype Body: Scene
    @SceneBuilder @MainActor var body: Body { get }
    @MainActor init()
}

extension App {
    @MainActor public static func main() {}
}

extension Never: View, Scene {
    public var body: Never { return fatalError() }
}

public protocol Primitive: View where Body == Never {}

extension Primitive {
    public var body: Never { return fatalError() }
}

public struct EmptyView: Primitive {
    public init() {}
}

public struct Either<First: View, Second: View>: Primitive {}

public struct Several<each Part: View>: Primitive {}

public struct Changed<Content: View>: Primitive {}

extension Optional: View, Primitive where Wrapped: View {
    public typealias Body = Never
}

@resultBuilder
@MainActor public enum ViewBuilder {
    public static func buildBlock() -> EmptyView { fatalError() }
    public static func buildBlock<Part: View>(_ part: Part) -> Part { part }
    public static func buildBlock<each Part: View>(_ parts: repeat each Part) -> Several<repeat each Part> {
        fatalError()
    }
    public static func buildExpression<Part: View>(_ part: Part) -> Part { part }
    public static func buildOptional<Part: View>(_ part: Part?) -> Part? { part }
    public static func buildEither<First: View, Second: View>(first: First) -> Either<First, Second> { fatalError() }
    public static func buildEither<First: View, Second: View>(second: Second) -> Either<First, Second> { fatalError() }
}

@resultBuilder
@MainActor public enum SceneBuilder {
    public static func buildBlock<Part: Scene>(_ part: Part) -> Part { part }
}

public struct WindowGroup<Content: View>: Scene {
    @MainActor public init(@ViewBuilder content: () -> Content) {}
    public var body: Never { return fatalError() }
}

@MainActor @preconcurrency @propertyWrapper
public struct State<Value> {
    public init(wrappedValue: Value) {}
    public var wrappedValue: Value {
        get { fatalError() }
        nonmutating set {}
    }
    public var projectedValue: Binding<Value> { fatalError() }
}

public struct Binding<Value> {}

public struct Text: Primitive {
    public init(_ text: String) {}
    public func bold() -> Text { self }
}

public struct Button: Primitive {
    public init(_ title: String, action: @escaping @MainActor () -> Void) {}
}

public struct TextField: Primitive {
    public init(_ title: String, text: Binding<String>) {}
}

public struct ProgressView: Primitive {
    public init(_ title: String, value: Double?) {}
}

public struct VStack<Content: View>: Primitive {
    public init(@ViewBuilder content: () -> Content) {}
}

public struct HStack<Content: View>: Primitive {
    public init(@ViewBuilder content: () -> Content) {}
}

public struct List<Content: View>: Primitive {
    public init(@ViewBuilder content: () -> Content) {}
}

public struct ForEach<Data: RandomAccessCollection, ID: Hashable, Content: View>: Primitive {
    public init(
        _ data: Data, id: KeyPath<Data.Element, ID>, @ViewBuilder content: @escaping (Data.Element) -> Content
    ) {}
}

public struct Color: Sendable {
    public static let red = Color()
}

extension View {
    public func padding() -> some View { Changed<Self>() }
    public func disabled(_ isDisabled: Bool) -> some View { Changed<Self>() }
    public func onSubmit(_ action: @escaping () -> Void) -> some View { Changed<Self>() }
    public func foregroundStyle(_ color: Color) -> some View { Changed<Self>() }
}

extension URL {
    public static var cachesDirectory: URL { fatalError() } // which Foundation has on Apple's systems only
}
