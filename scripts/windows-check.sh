#!/usr/bin/env bash
# Lints and type-checks everything as for Windows, on Debian; scripts/other-system.sh says how. Arguments go to
# `cargo check`.
set -euo pipefail
target=x86_64-pc-windows-msvc
source "$(dirname "${BASH_SOURCE[0]}")/other-system.sh"
check "$@"
