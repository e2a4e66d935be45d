#!/usr/bin/env bash
# Prints what CHANGELOG.md says about a version, as the notes of its release: scripts/release/notes.sh [VERSION]
# The version is that of Cargo.toml by default; `Unreleased` prints what the next one will have.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

wanted=${1:-$version}
# Without the blank lines at both ends.
notes=$(awk -v head="## [$wanted]" '
    index($0, "## [") == 1 { on = index($0, head) == 1; next }
    on && /^\[[^]]*\]: / { next } # addresses of comparisons, at the end of the file
    on && (NF || begun) { begun = 1; print }' "$root/CHANGELOG.md")
[[ -n $notes ]] || die "CHANGELOG.md has nothing under \"## [$wanted]\""
# The links of the changelog lead to files beside it; those of a release have to be whole.
files=$(repository)/blob/v$version
sed -E "s|\]\(([^):#]+[)#])|]($files/\1|g" <<<"$notes"
