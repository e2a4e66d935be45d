#!/usr/bin/env bash
# Has coding agents from npm talk to `wglm serve`, each through a round trip with a tool: see README.md. By hand; it
# needs Node, and a build first. With an argument it runs only the agents whose names contain it. Status 77: npm cannot
# install them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
folder=$target/agents
packages=(@openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.332 opencode-ai@1.18.33 @qwen-code/qwen-code@0.24.4)
mkdir -p "$folder"
if ! npm install --prefix "$folder" --no-audit --no-fund --loglevel error "${packages[@]}"; then
    echo "npm cannot install ${packages[*]}"
    exit 77
fi
export AGENTS=$folder/node_modules/.bin WGLM=${WGLM:-$target/debug/wglm} PYTHONDONTWRITEBYTECODE=1
[[ -n ${XDG_RUNTIME_DIR:-} ]] || export XDG_RUNTIME_DIR=/tmp # without it Mesa complains
python3 tests/clients/agents.py "$@"
