#!/usr/bin/env bash
# Builds the Python wheel into dist/, for the system that it runs on: the package, the library and the command. maturin
# checks which versions of Linux the command runs on; the library is built by the same compiler for the same C library.
#   WGLM_PROFILE=release scripts/release/wheel.sh   with another profile of cargo than `dist`
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

target=${CARGO_TARGET_DIR:-$root/target}
profile=${WGLM_PROFILE:-dist}
venv=$target/wheel-venv package=$root/target/wheel
if [[ ! -x $venv/bin/maturin && ! -x $venv/Scripts/maturin.exe ]]; then
    python3 -m venv "$venv"
    "$venv"/*/pip install -q --disable-pip-version-check 'maturin>=1.16,<2'
fi
[[ -x $venv/Scripts/maturin.exe ]] && maturin=$venv/Scripts/maturin.exe || maturin=$venv/bin/maturin

cargo build --locked --profile "$profile" -p wglm-bindings
library=$(bindings_library "$target/$profile")

# maturin takes what lies beside pyproject.toml, whose paths are for a folder two levels below the root.
rm -rf "$package"
mkdir -p "$package" dist
cp -R bindings/python/wglm bindings/python/pyproject.toml bindings/python/README.md LICENSE-* "$package"
case $library in
    *.so) strip --strip-unneeded -o "$package/wglm/${library##*/}" "$library" ;;
    *.dylib) strip -x -o "$package/wglm/${library##*/}" "$library" ;;
    *) cp "$library" "$package/wglm" ;;
esac
notices "$package/LICENSES-crates.txt" "$(host)" wglm wglm-bindings
(cd "$package" && "$maturin" build --locked --profile "$profile" --out "$root/dist")
