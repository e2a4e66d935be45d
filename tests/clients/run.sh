#!/usr/bin/env bash
# Has clients that others wrote talk to `wglm serve`: see README.md. Status 77: they cannot be installed here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/setup.sh

target=${CARGO_TARGET_DIR:-$root/target}
WGLM=${WGLM:-$target/debug/wglm}
[[ -x $WGLM ]] || cargo build --locked --workspace --all-features --bin wglm
export WGLM PYTHONDONTWRITEBYTECODE=1
[[ -n ${XDG_RUNTIME_DIR:-} ]] || export XDG_RUNTIME_DIR=/tmp # without it Mesa complains

missing=()
command -v curl >/dev/null || missing+=(curl)
command -v haproxy >/dev/null || [[ -x /usr/sbin/haproxy ]] || missing+=(haproxy)
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
if [[ ${#missing[@]} -gt 0 ]] && ! install_packages "${missing[@]}"; then
    echo "apt cannot install ${missing[*]}"
    exit 77
fi
PATH=$PATH:/usr/sbin

venv=$target/clients-venv
if ! "$venv/bin/python" -c 'import openai, anthropic, ollama, selenium' 2>/dev/null; then
    python3 -m venv "$venv"
    if ! "$venv/bin/pip" install -q --disable-pip-version-check openai anthropic ollama==0.6.3 selenium; then
        echo "pip cannot install openai, anthropic, ollama and selenium"
        exit 77
    fi
fi

status=0
if command -v node >/dev/null; then
    echo "--- page_files"
    node tests/clients/page_files.mjs "$@" || status=1
else
    echo "page_files needs Node, which is not installed"
fi
for client in openai_client anthropic_client strict_client ollama_client curl_client slow_client page proxy; do
    echo "--- $client"
    "$venv/bin/python" "tests/clients/$client.py" "$@" || status=1
done
exit "$status"
