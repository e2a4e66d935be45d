#!/usr/bin/env bash
# Writes the address of the repository where a release needs it: scripts/release/repository.sh OWNER/NAME
#
# That is one line for all crates in Cargo.toml, which crates.io shows, and which `cargo binstall` and the scripts of
# this folder read.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ ${1:-} =~ ^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$ ]] || die "usage: scripts/release/repository.sh OWNER/NAME"
address=https://github.com/$1

# edit FILE SCRIPT...: sed in place, which GNU's and macOS's spell differently.
edit() {
    local file=$root/$1 changed
    shift
    changed=$(sed "$@" "$file")
    printf '%s\n' "$changed" >"$file"
}

edit Cargo.toml -e '/^repository/d' -e '/^\[workspace\.package\]/a\
repository = "'"$address"'"' -e '/^documentation = /i\
repository.workspace = true'
for crate in command engine; do
    edit "$crate/Cargo.toml" -e '/^repository/d' -e '/^documentation = /i\
repository.workspace = true'
done
say "the repository is $address"
