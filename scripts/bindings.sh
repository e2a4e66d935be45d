#!/usr/bin/env bash
# Regenerates the generated halves of the bindings after a change in bindings/src: bindings/python/wglm/_core.py and
# bindings/swift/Sources/Wglm{Core,FFI}. With --check nothing is written, and the status is 1 if they are not current.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

target=${CARGO_TARGET_DIR:-$root/target}
python=bindings/python/wglm/_core.py swift=bindings/swift/Sources/WglmCore/WglmCore.swift
c=bindings/swift/Sources/WglmFFI

cargo build --locked --workspace --all-features --lib
cargo build --locked --manifest-path bindings/generate/Cargo.toml --target-dir "$target/bindgen"
library=$(bindings_library "$target/debug/deps")

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
generate() { "$target/bindgen/debug/uniffi-bindgen" generate --no-format --out-dir "$new" "$@" "$library"; }
mode=${1:-}
generate --language python
generate --language swift

status=0
place() {
    if [[ $mode != --check ]]; then
        mkdir -p "$(dirname "$2")" && cp "$1" "$2"
    elif ! diff -q "$1" "$2" >/dev/null; then
        echo "$2 is not current: run scripts/bindings.sh"
        status=1
    fi
}
place "$new/wglm_bindings.py" "$python"
place "$new/WglmCore.swift" "$swift"
place "$new/WglmFFI.h" "$c/WglmFFI.h"
place "$new/WglmFFI.modulemap" "$c/module.modulemap" # SwiftPM wants this name
exit "$status"
