#!/usr/bin/env bash
# Has the parser of replies read the fixtures of PyPI's canitoolcall: see README.md. Status 77: pip cannot download them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$target/canitoolcall
if [[ ! -d $folder/canitoolcall ]]; then
    mkdir -p "$folder"
    if ! python3 -m pip download -q --no-deps --disable-pip-version-check -d "$folder" canitoolcall==0.1.1; then
        echo "pip cannot download canitoolcall"
        exit 77
    fi
    python3 -m zipfile -e "$folder"/canitoolcall-*.whl "$folder"
fi
CANITOOLCALL=$folder/canitoolcall/_data/fixtures cargo test --locked --workspace --all-features --test it -- \
    --ignored --nocapture text::makers
