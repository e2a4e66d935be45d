#!/usr/bin/env bash
# Builds the native packages of a system in dist/: scripts/release/package.sh [TARGET]
#
#   on Debian and Ubuntu   wglm_VERSION_ARCH.deb, the command, and wglm-chat_VERSION_ARCH.deb, the window
#   on a Mac               wglm-chat-VERSION-TARGET.dmg, a disk image with the window as an app
#
# Debian's need cargo-deb: cargo install --locked cargo-deb. The app is signed with the identity APPLE_SIGNING_IDENTITY
# and notarised with APPLE_ID, APPLE_TEAM_ID and APPLE_PASSWORD, as docs/releasing.md explains. Without them it
# gets an ad-hoc signature, and others can open it only after they have allowed it in the system's settings.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=${1:-$(host)}
work=$dist/work # where the lists of files in both Cargo.toml look for what is written here
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/wglm" "$work/chat-gui"
notices "$work/chat-gui/LICENSES-crates.txt" "$target" chat-gui
cross=()
[[ $target == $(host) ]] || cross=(--target "$target")

# deb PACKAGE: packs what has been built. cargo-deb strips the copy in the package.
deb() {
    cargo deb --manifest-path "$root/Cargo.toml" -p "$1" --profile dist --no-build --locked ${cross[@]+"${cross[@]}"} \
        --deb-revision "" --output "$dist"
}

# What is built on a new system does not start on an old one, whatever the package says that it depends on.
check_glibc() {
    local needed
    needed=$(objdump -T "$built" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    [[ $needed == "$(printf '%s\n' "$needed" 2.28 | sort -V | head -n 1)" ]] ||
        say "only for this machine and newer systems: the programs need glibc $needed, and the packages promise 2.28"
}

# app FOLDER: lays the window out as an app.
app() {
    local contents="$1/wglm chat.app/Contents" package=$root/examples/chat-gui/package
    mkdir -p "$contents/MacOS" "$contents/Resources"
    sed -e "s|@VERSION@|$version|g" -e "s|@IDENTIFIER@|$(identifier)|g" "$package/Info.plist" >"$contents/Info.plist"
    cp "$built" "$contents/MacOS/wglm-chat"
    cp "$package/icon.icns" "$root"/LICENSE-* "$work/chat-gui/LICENSES-crates.txt" "$contents/Resources/"
}

# The name by which a Mac knows the app has to be its owner's: it follows from the address of the repository.
identifier() {
    local path
    path=$(repository)
    path=${path#https://github.com/}
    printf 'io.github.%s.wglm-chat\n' "$(tr '[:upper:]' '[:lower:]' <<<"${path%%/*}")"
}

# image: signs the app and packs it together with a link to where it belongs.
image() {
    local stage=$work/image file=$dist/wglm-chat-$version-$target.dmg identity=${APPLE_SIGNING_IDENTITY:--} options=()
    # An ad-hoc signature has neither the hardened runtime nor a timestamp.
    [[ $identity == - ]] || options=(--options runtime --timestamp)
    app "$stage"
    strip -x "$stage/wglm chat.app/Contents/MacOS/wglm-chat"
    codesign --force ${options[@]+"${options[@]}"} --sign "$identity" \
        --entitlements "$root/examples/chat-gui/package/entitlements.plist" "$stage/wglm chat.app"
    ln -s /Applications "$stage/Applications"
    hdiutil create -volname "wglm chat" -srcfolder "$stage" -fs HFS+ -format UDZO -ov "$file"
    if [[ $identity != - ]]; then
        codesign --timestamp --sign "$identity" "$file"
        xcrun notarytool submit "$file" --wait \
            --apple-id "$APPLE_ID" --team-id "$APPLE_TEAM_ID" --password "$APPLE_PASSWORD"
        xcrun stapler staple "$file"
    fi
    checksum "$file"
}

case $target in
    *-linux-*)
        command -v cargo-deb >/dev/null || die "cargo-deb is missing: cargo install --locked cargo-deb"
        build wglm wglm "$target"
        notices "$work/wglm/LICENSES-crates.txt" "$target" wglm
        documents "$built" "$work/wglm"
        build chat-gui chat-gui "$target"
        check_glibc
        for package in wglm chat-gui; do checksum "$(deb "$package")"; done
        ;;
    *-apple-*)
        build chat-gui chat-gui "$target"
        image
        ;;
    *) die "there is no package for $target" ;;
esac
