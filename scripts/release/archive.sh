#!/usr/bin/env bash
# Builds the command for a release and packs it: scripts/release/archive.sh [TARGET]
#
#   dist/wglm-VERSION-TARGET.tar.gz          the program, its man pages, completions and licences (.zip for Windows)
#   dist/wglm-VERSION-TARGET-symbols.tar.gz  what a debugger or a backtrace needs to name lines
#
# and the SHA-256 of each beside it. The target is this system's by default. A program for another one can be packed if
# it runs here, as one for the other kind of Mac does, since the program writes its man pages itself.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=${1:-$(host)}
name=wglm-$version-$target
build wglm wglm "$target"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/$name
mkdir -p "$folder" "$work/$name-symbols" "$dist"
cp "$built" "$folder/"
split_symbols "$folder/$(basename "$built")" "$work/$name-symbols" "$target"
cp "$root"/{LICENSE-APACHE,LICENSE-MIT,README.md,CHANGELOG.md} "$root/command/LICENSE-markdown-it" "$folder/"
notices "$folder/LICENSES-crates.txt" "$target" wglm
documents "$folder/$(basename "$built")" "$folder"

# pack NAME: an archive of a folder, in the form that the target's users can open without installing anything.
pack() {
    local file=$dist/$1.tar.gz
    case $target in
        *-windows-*)
            file=$dist/$1.zip
            rm -f "$file"
            # Windows has no zip, but its images for building have 7-Zip.
            (cd "$work" && if command -v zip >/dev/null; then zip -qr "$file" "$1"; else 7z a -bso0 "$file" "$1"; fi)
            ;;
        *) tar -C "$work" -czf "$file" "$1" ;;
    esac
    checksum "$file"
    say "$file: $(($(wc -c <"$file") / 1000)) kB"
}

pack "$name"
pack "$name-symbols"
