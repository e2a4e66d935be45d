#!/usr/bin/env bash
# Writes dist/install.sh and dist/install.ps1, which know the address of the releases and this version.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

releases=$(repository)/releases/download
mkdir -p "$dist"
for name in install.sh install.ps1; do
    sed -e "s|@RELEASES@|$releases|g" -e "s|@VERSION@|$version|g" "$root/scripts/release/$name" >"$dist/$name"
done
chmod +x "$dist/install.sh"
