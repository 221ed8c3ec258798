#!/usr/bin/env bash
# Builds the images of the targets named (of each room: gateway streams rewards dashboard tools trainer rollout; kafka when it is named) as
# $CLAW_IMAGES-TARGET:$CLAW_TAG, by docker, podman or buildah. Handed on where they are set: BASE, BUILD_BASE, PIP_INDEX_URL,
# PIP_TRUSTED_HOST, LOCK (gpu: for a trainer and a worker on GPUs). $CLAW_BUILD_FLAGS are more flags of the engine.
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=${CLAW_ENGINE:-$(command -v docker || command -v podman || command -v buildah)} || { echo "build.sh: no docker, podman or buildah here" >&2; exit 2; }
[ $# -gt 0 ] || set -- gateway streams rewards dashboard tools trainer rollout
context=dist/images
rm -rf "$context"
mkdir -p "$context/jars"
python=${PYTHON:-.venv/bin/python}
"$python" -m hatchling build -t wheel -d "$context" >&2
cp infra/images/{Dockerfile,alive.py,*.sh} claw/install/locks/{cpu,gpu,jre}.txt "$context"
if [[ " $* " = *" kafka "* ]]; then
  install -m 644 "$("$python" -m claw_r1.claw.local.jars)"/*.jar "$context/jars"
  "$python" -c "from claw_r1.claw.local.kafka.config import LOG4J; print(LOG4J, end='')" >"$context/log4j2.yaml"
fi

arguments=()
for name in BASE BUILD_BASE PIP_INDEX_URL PIP_TRUSTED_HOST LOCK; do
  [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
done
formats=()
[[ $(basename "$engine") = docker* ]] || formats=(--format docker --layers)  # OCI's own format knows no health check
for target in "$@"; do
  # shellcheck disable=SC2086  # several flags
  "$engine" build ${CLAW_BUILD_FLAGS:-} "${formats[@]}" "${arguments[@]}" --target "$target" \
    -t "${CLAW_IMAGES:-claw}-$target:${CLAW_TAG:-latest}" "$context"
done
