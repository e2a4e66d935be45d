#!/usr/bin/env bash
# Tests what is in dist/ for this system: scripts/release/check.sh
#
# The archive is unpacked in a clean folder, with an empty home folder and environment, and has to answer. On Linux that
# takes a Vulkan driver; Mesa's software driver is enough. Then dist/install.sh, if it is there, installs the archive
# from a server on this machine, and has to refuse one that is damaged or missing. That takes python3.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name=wglm-$version-${1:-$(host)}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir -m 700 "$work/home" "$work/runtime"

# must COMMAND...: stops with a message, unless a command succeeds.
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
    env -i HOME="$work/home" PATH=/usr/bin:/bin XDG_RUNTIME_DIR="$work/runtime" ./wglm "$@"
}
[[ $(wglm --version) == "wglm $version"* ]] || die "the program says it is $(wglm --version)"
answer=$(wglm run --temp 0 "What is seven plus five?") || die "there was no answer"
say "$answer"
must grep -Eiq '\b(twelve|12)\b' <<<"$answer"
say "$name answers"

[[ -f $dist/install.sh ]] || { say "dist/install.sh is not there, and not tested"; exit 0; }
served=$work/served/v$version
mkdir -p "$served"
cp "$dist/$name.tar.gz" "$dist/$name.tar.gz.sha256" "$served/"
python3 -u -m http.server --bind 127.0.0.1 --directory "$work/served" 0 >"$work/address" 2>/dev/null &
server=$!
until grep -q 'port [0-9]' "$work/address"; do sleep 0.1; done
address=http://127.0.0.1:$(sed -n 's/.*port \([0-9]*\).*/\1/p' "$work/address")

# The installer, for a user whose folders are empty.
install() { env -i HOME="$work/home" PATH=/usr/bin:/bin WGLM_RELEASES="$address" sh "$dist/install.sh" "$@"; }

# refuses WORDS [ARGUMENT...]: the installer fails with these words, and leaves what was installed as it was.
refuses() {
    local words=$1 before after said
    shift
    before=$(cksum "$work/home/.local/bin/wglm")
    if said=$(install "$@" 2>&1); then die "the installer should have failed: $said"; fi
    must grep -q "$words" <<<"$said"
    after=$(cd "$work/home/.local/bin" && ls -A && cksum "$PWD/wglm")
    [[ $after == "wglm"$'\n'"$before" ]] || die "the installer failed and left this: $after"
    say "refused, as it should be: ${said##*$'\n'}"
}

must install
must test -x "$work/home/.local/bin/wglm"
must install --to "$work/home/a folder"
must test -x "$work/home/a folder/wglm"
refuses "could not be downloaded" --version 999.0.0
refuses "unknown option" --unknown
refuses "needs a folder" --to
printf 'x' >>"$served/$name.tar.gz"
refuses "not what was released"
: >"$served/$name.tar.gz.sha256"
refuses "does not contain a SHA-256"
rm "$served/$name.tar.gz.sha256"
refuses "could not be downloaded"
kill "$server"
refuses "could not be downloaded"
say "the installer installs, and refuses what it should"
