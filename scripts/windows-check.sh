#!/usr/bin/env bash
# Lints and type-checks library, command, examples and benches as for Windows, on Debian; scripts/other-system.sh says
# how. Arguments go to `cargo check`. Tests are left out: those of signals and terminals are for Unix alone, and without
# them some imports are unused.
set -euo pipefail
target=x86_64-pc-windows-msvc
source "$(dirname "${BASH_SOURCE[0]}")/other-system.sh"
check --lib --bins --examples --benches "$@"
