#!/usr/bin/env bash
# Makes bindings/swift/WglmFFI.xcframework on a Mac, for the Swift package: the Rust library for macOS and iOS.
#   scripts/swift-xcframework.sh             makes it, its zip, the checksum and the licences of the crates in it, and
#                                            says what a release sets
#   scripts/swift-xcframework.sh --dry-run   only says which commands would run, on any system
# Needs Xcode and rustup. Nobody has run this on a Mac yet.
set -euo pipefail

unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '%s\n' "$*" >&2; }

dry=
case ${1:-} in
    --dry-run) dry=1 ;;
    '') ;;
    *) say "scripts/swift-xcframework.sh [--dry-run]"; exit 2 ;;
esac

# Runs a command, or says it.
run() {
    if [[ $dry ]]; then
        printf '%s\n' "$*"
    else
        say "+ $*"
        "$@"
    fi
}

if [[ ! $dry ]]; then
    [[ $(uname -s) == Darwin ]] || { say "this needs a Mac; --dry-run says what it would do"; exit 1; }
    for tool in cargo rustup xcodebuild lipo swift; do
        command -v "$tool" >/dev/null || { say "$tool was not found"; exit 1; }
    done
fi

# As in Package.swift.
export MACOSX_DEPLOYMENT_TARGET=14.0 IPHONEOS_DEPLOYMENT_TARGET=17.0
export CARGO_PROFILE_RELEASE_DEBUG=false # line numbers would make the files several times larger
targets=(aarch64-apple-darwin x86_64-apple-darwin aarch64-apple-ios aarch64-apple-ios-sim)
built=${CARGO_TARGET_DIR:-target}
out=$built/xcframework
framework=bindings/swift/WglmFFI.xcframework
name=libwglm_bindings.a

run rustup target add "${targets[@]}"
for target in "${targets[@]}"; do
    run cargo build --locked --release -p wglm-bindings --lib --target "$target"
done

# Headers of several xcframeworks of an app come together in one folder, so these are in one of their own.
run rm -rf "$out" "$framework"
run mkdir -p "$out/headers/WglmFFI" "$out/macos"
run cp bindings/swift/Sources/WglmFFI/WglmFFI.h bindings/swift/Sources/WglmFFI/module.modulemap "$out/headers/WglmFFI"
run lipo -create "$built/aarch64-apple-darwin/release/$name" "$built/x86_64-apple-darwin/release/$name" \
    -output "$out/macos/$name"
run xcodebuild -create-xcframework \
    -library "$out/macos/$name" -headers "$out/headers" \
    -library "$built/aarch64-apple-ios/release/$name" -headers "$out/headers" \
    -library "$built/aarch64-apple-ios-sim/release/$name" -headers "$out/headers" \
    -output "$framework"
run python3 scripts/release/notices.py "$out/LICENSES-crates.txt" aarch64-apple-darwin wglm-bindings
run ditto -c -k --keepParent "$framework" "$out/WglmFFI.xcframework.zip"

if [[ $dry ]]; then
    run swift package compute-checksum "$out/WglmFFI.xcframework.zip"
    checksum='what the last command prints'
else
    checksum=$(swift package compute-checksum "$out/WglmFFI.xcframework.zip")
fi
say "The package in this folder now uses $framework. For a release, upload $out/WglmFFI.xcframework.zip and"
say "$out/LICENSES-crates.txt, and set in Package.swift:"
say "    let release: (url: String, checksum: String)? = (\"the address of the zip\", \"$checksum\")"
