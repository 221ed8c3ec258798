#!/usr/bin/env bash
# The two bases of the images from Debian's packages alone, for who has no registry (and for `make images-test`): $BASE, which rooms run
# on, and $BUILD_BASE, which has pip. Root of mmdebstrap -> FROM scratch. Needs mmdebstrap and the engine that build.sh uses.
set -euo pipefail
engine=${CLAW_ENGINE:?the path of docker, podman or buildah}
work=$(mktemp -d "${TMPDIR:-/tmp}/claw-base.XXXXXX")
trap 'rm -rf "$work"' EXIT
printf 'FROM scratch\nADD root.tar /\n' >"$work/Dockerfile"
base() {
  # usrmerge installs all of Perl, and nothing of ours needs it
  mmdebstrap --quiet --variant="$2" --include="$3" --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --customize-hook='rm -rf "$1"/usr/share/perl "$1"/usr/lib/*-linux-gnu/perl' \
    "${DEBIAN_SUITE:-bookworm}" "$work/root.tar"
  "$engine" build -t "$1" "$work"
}
# libstdc++6: numpy links it
base "${BASE:-claw-base}" essential python3,ca-certificates,libstdc++6
base "${BUILD_BASE:-claw-build-base}" minbase python3,python3-venv,python3-pip,ca-certificates
