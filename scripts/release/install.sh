#!/bin/sh
# Installs wglm @VERSION@ for this user, from the archive of its release:
#
#   sh install.sh                      to ~/.local/bin
#   sh install.sh --to DIR             to another folder
#   sh install.sh --version VERSION    another version
#
# Nothing else is changed, and nothing is installed whose SHA-256 is not that of the release. WGLM_RELEASES names
# another address of releases, below which a version's files are in vVERSION/.
set -eu

releases=${WGLM_RELEASES:-@RELEASES@}
version=@VERSION@
to=${HOME:-}/.local/bin

say() { printf '%s\n' "$*" >&2; }
die() { say "install.sh: $*"; exit 1; }

# The whole script is a function, so that an interrupted download installs nothing rather than half of it.
main() {
    while [ $# -gt 0 ]; do
        case $1 in
            --to) [ $# -ge 2 ] || die "--to needs a folder"; to=$2; shift 2 ;;
            --version) [ $# -ge 2 ] || die "--version needs a version"; version=${2#v}; shift 2 ;;
            --help | -h) say "usage: install.sh [--to DIR] [--version VERSION]"; exit ;;
            *) die "unknown option \"$1\"; usage: install.sh [--to DIR] [--version VERSION]" ;;
        esac
    done
    [ "$to" != /.local/bin ] || die "HOME is not set; name a folder with --to"

    target=$(platform)
    name=wglm-$version-$target
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    say "downloading $name.tar.gz"
    download "$releases/v$version/$name.tar.gz.sha256" "$work/sum"
    download "$releases/v$version/$name.tar.gz" "$work/archive"

    wanted=$(cut -d ' ' -f 1 "$work/sum")
    found=$(sha256 "$work/archive") || die "there is no sha256sum, shasum or openssl to check the download with"
    [ "${#wanted}" -eq 64 ] || die "$name.tar.gz.sha256 does not contain a SHA-256"
    [ "$wanted" = "$found" ] || die "the download is not what was released: its SHA-256 is $found, not $wanted"

    tar -xzf "$work/archive" -C "$work" || die "the archive cannot be unpacked"
    mkdir -p "$to" || die "cannot create $to"
    # Moved into place at once: a program that is running cannot be written to, but it can be replaced.
    if ! { cp "$work/$name/wglm" "$to/.wglm.$$" && chmod 755 "$to/.wglm.$$" && mv -f "$to/.wglm.$$" "$to/wglm"; }; then
        rm -f "$to/.wglm.$$"
        die "cannot write to $to"
    fi
    "$to/wglm" --version >/dev/null || die "$to/wglm is installed, but does not start here"
    say "installed $("$to/wglm" --version) as $to/wglm"
    case :${PATH:-}: in
        *":$to:"*) ;;
        *) say "$to is not in PATH: add it, or call $to/wglm" ;;
    esac
    if [ "$(uname -s)" = Linux ] &&
        ! PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1 '; then
        say "wglm needs Vulkan; on Debian and Ubuntu: apt install libvulkan1, and mesa-vulkan-drivers or your GPU's"
    fi
}

# The archive's name for this system.
platform() {
    case $(uname -s) in
        Linux)
            # The programs are linked with glibc.
            if ldd --version 2>&1 | grep -qi musl; then die "there is no archive for musl: cargo install wglm"; fi
            case $(uname -m) in
                x86_64 | amd64) echo x86_64-unknown-linux-gnu ;;
                aarch64 | arm64) echo aarch64-unknown-linux-gnu ;;
                *) die "there is no archive for $(uname -m): cargo install wglm" ;;
            esac
            ;;
        Darwin)
            # A shell for Intel's processors on a Mac with Apple's says x86_64.
            if [ "$(uname -m)" = arm64 ] || [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" = 1 ]; then
                echo aarch64-apple-darwin
            else
                echo x86_64-apple-darwin
            fi
            ;;
        *) die "there is no archive for $(uname -s): cargo install wglm" ;;
    esac
}

# download ADDRESS FILE
download() {
    if command -v curl >/dev/null; then
        curl -fsSL --retry 2 -o "$2" "$1" || die "$1 could not be downloaded"
    elif command -v wget >/dev/null; then
        wget -q -O "$2" "$1" || die "$1 could not be downloaded"
    else
        die "there is neither curl nor wget to download with"
    fi
}

# sha256 FILE: prints the hash.
sha256() {
    if command -v sha256sum >/dev/null; then
        sha256sum <"$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null; then
        shasum -a 256 <"$1" | cut -d ' ' -f 1
    elif command -v openssl >/dev/null; then
        openssl dgst -sha256 -r <"$1" | cut -d ' ' -f 1
    else
        return 1
    fi
}

main "$@"
