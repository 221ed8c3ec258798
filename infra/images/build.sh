#!/usr/bin/env bash
# Builds the images of the targets named (of all: gateway streams rewards dashboard tools trainer rollout-cpu rollout-gpu) as
# $CLAW_IMAGES-TARGET:$CLAW_TAG, by docker, podman or buildah. Handed on where they are set: BASE, BUILD_BASE, PIP_INDEX_URL,
# PIP_TRUSTED_HOST, TRAINER_LOCK (gpu: for a trainer on GPUs). $CLAW_BUILD_FLAGS are more flags of the engine.
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=${CLAW_ENGINE:-$(command -v docker || command -v podman || command -v buildah)} || { echo "build.sh: no docker, podman or buildah here" >&2; exit 2; }
[ $# -gt 0 ] || set -- gateway streams rewards dashboard tools trainer rollout-cpu rollout-gpu
context=dist/images
rm -rf "$context"
mkdir -p "$context"
"${PYTHON:-.venv/bin/python}" -m hatchling build -t wheel -d "$context" >&2
cp infra/images/{Dockerfile,install.sh,alive.py} claw/install/locks/{cpu,gpu}.txt "$context"

arguments=()
for name in BASE BUILD_BASE PIP_INDEX_URL PIP_TRUSTED_HOST TRAINER_LOCK; do
  [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
done
formats=()
[[ $(basename "$engine") = docker* ]] || formats=(--format docker --layers)  # OCI's own format knows no health check
for target in "$@"; do
  # shellcheck disable=SC2086  # several flags
  "$engine" build ${CLAW_BUILD_FLAGS:-} "${formats[@]}" "${arguments[@]}" --target "$target" \
    -t "${CLAW_IMAGES:-claw}-$target:${CLAW_TAG:-latest}" "$context"
done
