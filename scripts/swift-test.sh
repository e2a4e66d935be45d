#!/usr/bin/env bash
# Tests the Swift package with the demonstration model, and the library that `cargo test --workspace` has built.
# Arguments go to `swift test`: scripts/swift-test.sh --filter StoppingTests
#
# The system's Swift is used, if there is one. Otherwise, on Linux and as root, Debian's Swift is installed in a folder
# of its own, which takes some minutes the first time: $WGLM_SWIFT_ROOT, or one below the user's cache folder.
#
# With --if-installed as the first argument nothing is installed: the tests are skipped without Swift.
#
# If WGLM_LIBRARY_DIR is set, cargo is not used: that folder has libwglm_bindings.a.
#
# Exit status 77 means skipped: Swift is not available. A line says why.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

swift=$root/bindings/swift
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/wglm/swift
system=${WGLM_SWIFT_ROOT:-$cache/debian}
packages=(swiftlang ca-certificates gcc git libc6-dev libstdc++-14-dev libvulkan1 mesa-vulkan-drivers)

installs=yes
if [[ ${1:-} == --if-installed ]]; then
    installs=no
    shift
fi

skip() {
    say "SKIPPED, the Swift package was not tested: $*"
    exit 77
}

# Installs Debian with Swift in `$system`, unless it is there. It takes its place at once, or not at all.
fetch() {
    [[ -x $system/usr/libexec/swift/bin/swift ]] && return
    command -v debootstrap >/dev/null || install_packages debootstrap || skip "there is neither swift nor debootstrap"
    rm -rf "$system.new"
    mkdir -p "$system.new"
    say "installing Debian's Swift in $system"
    debootstrap --variant=minbase trixie "$system.new" http://deb.debian.org/debian >&2 ||
        skip "debootstrap cannot install Debian 13"
    chroot "$system.new" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${packages[@]}" >&2 ||
        skip "apt cannot install ${packages[*]}"
    mv -T "$system.new" "$system"
}

# Checks the types of the example and runs the tests. Arguments: the package, a folder for what is built, options.
check='
set -euo pipefail
package=$1 build=$2
shift 2
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/tmp}
cd "$package"
swift build --build-tests --scratch-path "$build"
if [[ $(uname -s) == Linux ]]; then
    modules=$(swift build --scratch-path "$build" --show-bin-path)/Modules
    stub=bindings/swift/Tests/SwiftUIStub
    common=(-swift-version 6 -warnings-as-errors -package-name wglm)
    swiftc "${common[@]}" -parse-as-library -emit-module -module-name SwiftUI -o "$build/SwiftUI.swiftmodule" \
        "$stub/SwiftUI.swift"
    swiftc "${common[@]}" -parse-as-library -typecheck -I "$build" -I "$modules" \
        -Xcc -fmodule-map-file="$package/bindings/swift/Sources/WglmFFI/module.modulemap" \
        bindings/swift/Example/ChatApp.swift
    echo "the types of ChatApp.swift are right"
fi
swift test --skip-build --scratch-path "$build" "$@"
'

# The same in Debian: with a copy of the package, in which the mounts last as long as the command.
check_in_debian() {
    local place=$system/wglm
    mkdir -p "$place/bindings/swift" "$place/docs" "$place/library"
    rm -rf "$place/bindings/swift"
    cp -a "$swift" "$place/bindings/swift" # with the times, so that only what has changed is built
    cp -a "$root/Package.swift" "$place/"
    cp -a "$root/docs/swift.md" "$place/docs/"
    cp -u --preserve=timestamps "$library" "$place/library/"
    unshare --mount --propagation private bash -c '
        set -euo pipefail
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec chroot "$1" env -u TMPDIR HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin XDG_RUNTIME_DIR=/tmp \
            WGLM_LIBRARY_DIR=/wglm/library bash -c "$2" check /wglm /wglm/.build "${@:3}"
    ' check "$system" "$check" "$@"
}

if ! command -v swift >/dev/null; then
    [[ $(uname -s) == Linux ]] || skip "there is no swift"
    [[ $UID -eq 0 ]] || skip "there is no swift, and only root can install it in a folder"
    unshare --mount true 2>/dev/null || skip "there is no swift, and nothing can be mounted here"
    [[ $installs == yes || -x $system/usr/libexec/swift/bin/swift ]] || skip "there is no swift"
    fetch
fi
library=${WGLM_LIBRARY_DIR:-${CARGO_TARGET_DIR:-$root/target}/debug/deps}/libwglm_bindings.a
[[ -f $library ]] || (cd "$root" && cargo build --locked --workspace --all-features --lib)
if command -v swift >/dev/null; then
    # The linker would prefer the shared library that is next to the static one.
    alone=$(mktemp -d)
    trap 'rm -rf "$alone"' EXIT
    cp "$library" "$alone/"
    WGLM_LIBRARY_DIR=$alone bash -c "$check" check "$root" "$cache/build" ${1+"$@"}
else
    check_in_debian ${1+"$@"}
fi
