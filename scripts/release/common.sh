# Sourced by the scripts of this folder: where things are, and what several of them need. bash 3.2 of macOS suffices.
# Everything that a release consists of is put into dist/.
# shellcheck shell=bash disable=SC2034

unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dist=$root/dist

say() { printf '%s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# workspace_field NAME: a field of [workspace.package].
workspace_field() { sed -n '/^\[workspace\.package\]/,/^\[/s/^'"$1"' = "\(.*\)"/\1/p' "$root/Cargo.toml"; }

version=$(workspace_field version)
[[ -n $version ]] || die "Cargo.toml has no version"

# The address of the repository. It has one place, Cargo.toml, where scripts/release/repository.sh writes it.
repository() {
    local address
    address=${WGLM_REPOSITORY:-$(workspace_field repository)}
    [[ -n $address ]] || die "Cargo.toml has no repository yet: scripts/release/repository.sh OWNER/NAME sets it"
    printf '%s\n' "$address"
}

host() { rustc -vV | sed -n 's/^host: //p'; }

# build PACKAGE PROGRAM TARGET: builds a program for release, and sets `built` to its file.
build() {
    local package=$1 program=$2 target=$3 folder
    local options=(--locked --manifest-path "$root/Cargo.toml" --profile dist -p "$package" --bin "$program")
    folder=${CARGO_TARGET_DIR:-$root/target}
    # With --target everything would be built a second time, so it is left out for this system.
    if [[ $target != $(host) ]]; then
        options+=(--target "$target")
        folder=$folder/$target
    fi
    # A Mac keeps the line tables in the object files, unless they are collected.
    case $target in *-apple-*) export CARGO_PROFILE_DIST_SPLIT_DEBUGINFO=packed ;; esac
    cargo build "${options[@]}"
    built=$folder/dist/$program
    case $target in *-windows-*) built=$built.exe ;; esac
}

# split_symbols FILE FOLDER TARGET: moves what only debuggers and backtraces read from a copied program to a folder.
# Beside the program, the file is found by the program itself when it prints a backtrace.
split_symbols() {
    local file=$1 folder=$2 target=$3 name
    name=$(basename "$built")
    case $target in
        *-linux-*)
            objcopy --only-keep-debug --compress-debug-sections "$file" "$folder/$name.debug"
            objcopy --strip-all --add-gnu-debuglink="$folder/$name.debug" "$file"
            ;;
        *-apple-*)
            cp -RL "$built.dSYM" "$folder/" # a link, where cargo has put it
            strip -x "$file"
            codesign --force --sign - "$file" # the signature, without which nothing runs, was of the longer file
            ;;
        *-windows-*) cp "${built%.exe}.pdb" "$folder/" ;;
    esac
}

# commands PROGRAM [NAME]: the commands of a program, or of one of its commands.
commands() {
    "$1" help "${@:2}" |
        awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ && $1 != "help" { print $1 }'
}

# documents PROGRAM FOLDER: writes the man pages and the completions that the command prints about itself.
documents() {
    local program=$1 folder=$2 name part
    mkdir -p "$folder/man" "$folder/completions"
    "$program" man >"$folder/man/wglm.1"
    for name in $(commands "$program"); do
        "$program" man "$name" >"$folder/man/wglm-$name.1"
        for part in $(commands "$program" "$name"); do
            "$program" man "$name" "$part" >"$folder/man/wglm-$name-$part.1"
        done
    done
    "$program" completions bash >"$folder/completions/wglm.bash"
    "$program" completions elvish >"$folder/completions/wglm.elv"
    "$program" completions fish >"$folder/completions/wglm.fish"
    "$program" completions powershell >"$folder/completions/_wglm.ps1"
    "$program" completions zsh >"$folder/completions/_wglm"
}

# notices FILE TARGET PACKAGE...: writes the licences of all crates that are built into these packages.
notices() {
    local python=python3
    command -v python3 >/dev/null || python=python # on Windows
    "$python" "$root/scripts/release/notices.py" "$@"
}

# checksum FILE: writes FILE.sha256, in the form that `sha256sum --check` reads.
checksum() {
    local tool=(sha256sum)
    command -v sha256sum >/dev/null || tool=(shasum -a 256)
    (cd "$(dirname "$1")" && "${tool[@]}" "$(basename "$1")" >"$(basename "$1").sha256")
}
