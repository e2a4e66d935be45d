#!/usr/bin/env bash
# Sends requests to `wglm serve` that PyPI's schemathesis makes from /openapi.json: see README.md. By hand; a build first.
# Arguments go to schemathesis: schemathesis.sh --max-examples 50
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/schemathesis-venv
[[ -x $venv/bin/st ]] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q schemathesis; }
folder=$(mktemp -d)
trap 'kill "$server"; rm -rf "$folder"' EXIT
# Replies are short, so that it takes minutes: what is tested is what comes before and around them.
"${WGLM:-$target/debug/wglm}" serve --port 0 -c 256 -n 4 --temp 0 >"$folder/address" 2>"$folder/log" &
server=$!
until grep -q "is ready" "$folder/log"; do kill -0 "$server"; sleep 0.2; done
address=$(sed -n 's/^listening at //p' "$folder/address")
"$venv/bin/st" run "$address/openapi.json" --max-examples 20 --request-timeout 60 --phases examples,coverage,fuzzing \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance "$@"
