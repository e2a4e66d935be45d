#!/usr/bin/env bash
# Runs the units of llama-server against `wglm serve`: see README.md. By hand; a build first. Status 77: pip cannot
# download them. Arguments go to pytest: llama_units.sh -k tokenize
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
WGLM=$(realpath "${WGLM:-$target/debug/wglm}")
folder=$target/llama-units
package=llama_cpp_python-0.3.36
tests=$folder/$package/vendor/llama.cpp/tools/server/tests
if [[ ! -d $tests ]]; then
    mkdir -p "$folder"
    if ! python3 -m pip download -q --no-deps --no-binary llama-cpp-python --disable-pip-version-check \
        -d "$folder" llama-cpp-python==0.3.36; then
        echo "pip cannot download llama-cpp-python"
        exit 77
    fi
    tar -xzf "$folder/$package.tar.gz" -C "$folder" "$package/vendor/llama.cpp/tools/server/tests"
fi
if [[ ! -x $folder/venv/bin/pytest ]]; then
    python3 -m venv "$folder/venv"
    if ! "$folder/venv/bin/pip" install -q --disable-pip-version-check pytest-timeout -r "$tests/requirements.txt"; then
        echo "pip cannot install what the units need"
        exit 77
    fi
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$tests/." "$copy"
"$folder/venv/bin/python" tests/clients/llama_units.py --edit "$copy"
# The units start this program, which becomes `wglm serve`.
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$folder/venv/bin/python" "$PWD/tests/clients/llama_units.py" >"$copy/server"
chmod +x "$copy/server"
export WGLM LLAMA_SERVER_BIN_PATH=$copy/server PYTHONPATH=$PWD/tests/clients PYTHONDONTWRITEBYTECODE=1
export PORT=${PORT:-18180} NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
[[ -n ${XDG_RUNTIME_DIR:-} ]] || export XDG_RUNTIME_DIR=/tmp # without it Mesa complains
unset N_GPU_LAYERS DEBUG DEBUG_EXTERNAL SLOW_TESTS
cd "$copy"
"$folder/venv/bin/pytest" -p llama_units -p no:cacheprovider --timeout 300 --tb short --show-capture no -q "$@"
