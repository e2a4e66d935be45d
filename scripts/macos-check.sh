#!/usr/bin/env bash
# Lints and type-checks everything as for a Mac, on Debian; scripts/other-system.sh says how. Arguments go to
# `cargo check`.
set -euo pipefail
target=aarch64-apple-darwin
source "$(dirname "${BASH_SOURCE[0]}")/other-system.sh"
check --all-targets "$@"
