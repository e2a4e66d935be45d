# Sourced by macos-check.sh and windows-check.sh, which set `target`. On Debian, it lints and type-checks the library,
# the command and whatever else they name for another system. Nothing is linked or installed.
#
# This needs the standard library of that system. rustup has it, Debian does not; but Debian has a compiler together
# with the source of its standard library (rustc-web, made for its browsers), from which cargo builds what is missing.
# These packages and the objects go to the user's cache folder: the first run takes minutes, later ones seconds. For a
# newer compiler, delete that folder.
#
# Exit status 77 means skipped: this system does not have those packages. A line says why.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

packages=(rustc-web rust-web-src rust-web-clippy)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/wglm/other-systems
tools=$cache/tools

skip() {
    say "SKIPPED, nothing was checked for $target: $*"
    exit 77
}

# Packages and those of their dependencies that are not installed, as apt would install them: names.
with_dependencies() { apt-get install -s --no-install-recommends "$@" 2>/dev/null | awk '/^Inst/ { print $2 }'; }

# Unpacks the compiler, its libraries and the source of the standard library into a folder.
unpack() {
    local root=$1 file
    for file in "$root"/*.deb; do
        case ${file##*/} in
            rustc-web_* | rust-web-clippy_* | libstd-rust-web* | libllvm*) dpkg -x "$file" "$root" ;;
            rust-web-src_*) dpkg --fsys-tarfile "$file" | tar -x -C "$root" --wildcards './usr/src/rustc-*/library/*' './usr/lib/*' ;;
        esac
    done
    rm "$root"/*.deb
}

# Writes an executable `$tools.new/NAME` that starts a program among the unpacked with further arguments.
wrapper() {
    local name=$1 libraries=$tools/usr/lib/x86_64-linux-gnu:$tools/usr/lib
    shift
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@" %s\n' "$libraries" "$tools/usr/bin/$name" "$*" >"$tools.new/$name"
    chmod +x "$tools.new/$name"
}

# Fetches the tools, unless they are there. They take their place at once, or not at all.
fetch() {
    [[ -x $tools/rustc ]] && return
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || skip "there is no apt"
    [[ $(uname -m) == x86_64 ]] || skip "this is not an x86-64 machine"
    update_packages
    local names
    names=$(with_dependencies "${packages[@]}") || true
    [[ -n $names ]] || skip "apt has no ${packages[*]} (Debian 12 and newer do)"
    rm -rf "$tools.new"
    mkdir -p "$tools.new"
    say "fetching $(echo $names) to $tools"
    # shellcheck disable=SC2086
    (cd "$tools.new" && apt-get download -qq $names >&2) || skip "the packages could not be fetched"
    unpack "$tools.new"
    wrapper rustc
    wrapper clippy-driver -D warnings
    mv "$tools.new" "$tools"
}

# check ARGUMENTS...: what `cargo check` says for the target.
check() {
    fetch
    # The compiler is a stable one that is asked for what only unstable ones do: build the library from its source.
    export RUSTC=$tools/rustc RUSTC_WORKSPACE_WRAPPER=$tools/clippy-driver RUSTC_BOOTSTRAP=1
    export CARGO_TARGET_DIR=$cache/target CARGO_INCREMENTAL=0
    # Nothing of it is run but macros and build scripts, so nothing is worth optimising.
    local features quick=(--config profile.dev.opt-level=0 --config profile.dev.debug=0)
    quick+=(--config 'profile.dev.package."*".opt-level=0')
    cd "$root"
    # All features but one, for which the system's headers would be needed: it builds C.
    features=$(sed -n '/^\[features\]/,/^\[\[/s/^\([a-z][a-z-]*\) = \[.*/\1/p' Cargo.toml | grep -vx tls-ring | tr '\n' ,)
    say "checking for $target with $("$RUSTC" --version): $features"
    cargo check "${quick[@]}" --locked -Zbuild-std --target "$target" --features "$features" "$@"
}
