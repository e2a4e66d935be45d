#!/usr/bin/env bash
# Tests the archive for this system in dist/: scripts/release/check.sh
#
# It is unpacked in a clean folder, with an empty home folder and environment, and has to answer. Needs a Vulkan driver on
# Linux; Mesa's software driver is enough.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name=wglm-$version-${1:-$(host)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/home" "$work/runtime"

# fails COMMAND...: stops with a message, unless a command succeeds.
must() { "$@" || die "failed: $*"; }

cd "$dist"
tool=(sha256sum)
command -v sha256sum >/dev/null || tool=(shasum -a 256)
must "${tool[@]}" --check "$name.tar.gz.sha256"
tar -xzf "$name.tar.gz" -C "$work"
cd "$work/$name"
for file in LICENSE-APACHE LICENSE-MIT LICENSE-markdown-it LICENSES-crates.txt README.md CHANGELOG.md \
    man/wglm.1 man/wglm-run.1 completions/wglm.bash completions/_wglm completions/wglm.fish; do
    must test -s "$file"
done
must bash -n completions/wglm.bash

wglm() {
    env -i HOME="$work/home" PATH=/usr/bin:/bin XDG_RUNTIME_DIR="$work/runtime" ${VK_DRIVER_FILES:+VK_DRIVER_FILES="$VK_DRIVER_FILES"} \
        ./wglm "$@"
}
[[ $(wglm --version) == "wglm $version"* ]] || die "the program says it is $(wglm --version)"
answer=$(wglm run --temp 0 "What is seven plus five?") || die "there was no answer"
say "$answer"
must grep -Eiq '\b(twelve|12)\b' <<<"$answer"
say "$name answers"
