#!/usr/bin/env bash
# Makes what users of a system install with its own means, in dist/: scripts/release/package.sh [TARGET]
#
#   on Debian and Ubuntu   wglm_VERSION_ARCH.deb, the command, and wglm-chat_VERSION_ARCH.deb, the window
#   on a Mac               the window as an app in a disk image, "wglm chat_VERSION_ARCH.dmg"
#
# Needs cargo-deb (cargo install --locked cargo-deb) or cargo-packager (cargo install --locked cargo-packager). On a Mac,
# docs/releasing.md lists the variables with which cargo-packager signs and notarises. Without them the app is signed for
# no one, and others can open it only after they have allowed it in the system's settings.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=${1:-$(host)}
work=$dist/work # where the lists of files in both Cargo.toml look for what is written here
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/wglm" "$work/chat-gui"
notices chat-gui "$target" "$work/chat-gui/LICENSES-crates.txt"
cross=()
[[ $target == $(host) ]] || cross=(--target "$target")

# deb PACKAGE: packs what has been built. cargo-deb strips the copy in the package.
deb() {
    cargo deb --manifest-path "$root/Cargo.toml" -p "$1" --profile dist --no-build --locked ${cross[@]+"${cross[@]}"} \
        --deb-revision "" --output "$dist"
}

case $target in
    *-linux-*)
        command -v cargo-deb >/dev/null || die "cargo-deb is missing: cargo install --locked cargo-deb"
        build wglm wglm "$target"
        notices wglm "$target" "$work/wglm/LICENSES-crates.txt"
        documents "$built" "$work/wglm"
        build chat-gui chat-gui "$target"
        for package in wglm chat-gui; do checksum "$(deb "$package")"; done
        ;;
    *-apple-*)
        command -v cargo-packager >/dev/null || die "cargo-packager is missing: cargo install --locked cargo-packager"
        build chat-gui chat-gui "$target"
        cargo packager --manifest-path "$root/Cargo.toml" -p chat-gui --profile dist ${cross[@]+"${cross[@]}"} \
            --formats app,dmg --out-dir "$dist"
        for file in "$dist"/*.dmg; do checksum "$file"; done
        ;;
    *) die "there is no package for $target" ;;
esac
