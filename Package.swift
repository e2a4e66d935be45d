// swift-tools-version: 6.0
// The Swift package of wglm: docs/swift.md is its guide. SwiftPM requires this file to be at the root of the
// repository.

import Foundation
import PackageDescription

/// The library for apps, as scripts/swift-xcframework.sh makes it. A release sets both values.
let release: (url: String, checksum: String)? = nil

/// An xcframework on this machine, which comes before the release's.
let local = Context.environment["WGLM_XCFRAMEWORK"] ?? "bindings/swift/WglmFFI.xcframework"

/// A folder with libwglm_bindings.a, for systems without xcframeworks, and for builds from source.
let folder = Context.environment["WGLM_LIBRARY_DIR"]

/// What the compiler sees of the Rust library, and where the linker finds it.
var library: Target = .systemLibrary(name: "WglmFFI", path: "bindings/swift/Sources/WglmFFI")
/// How programs are linked with it.
var linking: [LinkerSetting] = []

if let folder {
    linking += [.unsafeFlags(["-L", folder]), .linkedLibrary("wglm_bindings")]
} else {
    #if !os(Linux)
    if FileManager.default.fileExists(atPath: Context.packageDirectory + "/" + local) {
        library = .binaryTarget(name: "WglmFFI", path: local)
    } else if let release {
        library = .binaryTarget(name: "WglmFFI", url: release.url, checksum: release.checksum)
    }
    #endif
}

#if os(Linux)
// Swift 6.0's own libswiftObservation.so lacks a symbol, which is only needed to report that it fails.
if folder != nil { linking.append(.unsafeFlags(["-Xlinker", "--allow-shlib-undefined"])) }
#else
linking += ["CoreFoundation", "CoreGraphics", "Foundation", "IOSurface", "Metal", "QuartzCore", "Security"]
    .map { .linkedFramework($0) }
#endif

let package = Package(
    name: "wglm",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [.library(name: "Wglm", targets: ["Wglm"])],
    targets: [
        library,
        // What UniFFI writes, unchanged.
        .target(
            name: "WglmCore", dependencies: ["WglmFFI"], path: "bindings/swift/Sources/WglmCore",
            linkerSettings: linking),
        .target(name: "Wglm", dependencies: ["WglmCore"], path: "bindings/swift/Sources/Wglm"),
        .testTarget(name: "WglmTests", dependencies: ["Wglm"], path: "bindings/swift/Tests/WglmTests"),
    ],
    swiftLanguageModes: [.v6]
)
