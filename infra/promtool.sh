#!/usr/bin/env bash
# Debian's promtool below .tools/prometheus, for the tests of infra/alerts: no root, nothing outside the repository is
# touched. Prints its path. Needs apt-get and a Debian mirror; 20 MB are downloaded once.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/.tools/prometheus
if [ -x "$home/promtool" ]; then
  echo "$home/promtool"
  exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "promtool.sh: no apt here" >&2; exit 2; }
mkdir -p .tools
work=$(mktemp -d "${TMPDIR:-/tmp}/promtool.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs" "$work/root"

apt() {  # its own lists and archives
  apt-get -qq -o Dir::State::lists="$work/lists" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work" \
    -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$@"
}

apt update >&2
(cd "$work/debs" && apt download prometheus >&2)
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done
mkdir -p "$home"
mv "$work/root/usr/bin/promtool" "$home/promtool.new"
mv "$home/promtool.new" "$home/promtool"  # whole or not at all
echo "$home/promtool"
