#!/usr/bin/env bash
# Tests the Python package with the library that `cargo test --workspace` has built: its types by mypy, and what it does
# by pytest. Arguments go to pytest. Status 77: pip cannot install these.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

target=${CARGO_TARGET_DIR:-$root/target}
package=$target/python venv=$target/python-venv
export PYTHONDONTWRITEBYTECODE=1
[[ -n ${XDG_RUNTIME_DIR:-} ]] || export XDG_RUNTIME_DIR=/tmp # without it Mesa complains

if ! library=$(bindings_library "$target/debug/deps"); then
    cargo build --locked --workspace --all-features --lib
    library=$(bindings_library "$target/debug/deps")
fi

if ! "$venv/bin/python" -c 'import mypy, pydantic, pytest' 2>/dev/null; then
    python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3-venv || exit 77
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check mypy pydantic pytest || exit 77
fi

rm -rf "$package"
mkdir -p "$package"
cp -R bindings/python/. "$package"
mkdir -p "$package/docs"
cp docs/python.md "$package/docs"
cp bindings/swift/Sources/WglmCore/WglmCore.swift "$package/tests"
cp "$library" "$package/wglm"
cd "$package"
"$venv/bin/mypy" wglm tests
exec env PYTHONPATH="$package" "$venv/bin/pytest" -q -p no:cacheprovider "$@"
