#!/usr/bin/env bash
# Debian's Chromium below .tools/chromium, for the tests in a real browser: no root, nothing outside the repository is
# touched. Prints the path of a program that starts it. Needs apt-get and a Debian mirror; 130 MB are downloaded once.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/.tools/chromium
if [ -x "$home/chromium" ]; then
  echo "$home/chromium"
  exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "chromium.sh: no apt here" >&2; exit 2; }
mkdir -p .tools
exec 9>.tools/chromium.lock
flock 9  # of several at once, one fetches
[ ! -x "$home/chromium" ] || { echo "$home/chromium"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/chromium.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs" "$work/root"

apt() {  # its own lists and archives; what is installed on this machine is known and not fetched again
  apt-get -qq -o Dir::State::lists="$work/lists" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work" \
    -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$@"
}

apt update >&2
missing=$(apt install --print-uris -y --no-install-recommends chromium fonts-dejavu-core fontconfig-config |
  sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
# shellcheck disable=SC2086  # names of packages hold no spaces
(cd "$work/debs" && apt download chromium chromium-common fonts-dejavu-core $missing >&2)
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done

cat >"$work/root/fonts.conf" <<'CONF'
<?xml version="1.0"?>
<fontconfig><dir prefix="relative">usr/share/fonts</dir><dir>/usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
CONF
cat >"$work/root/chromium" <<'PROGRAM'
#!/bin/sh
home=$(dirname "$(readlink -f "$0")")  # the folder may be moved or copied
libraries=$home/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FONTCONFIG_FILE="$home/fonts.conf" XDG_CACHE_HOME="$home/cache"
exec "$home/usr/lib/chromium/chromium" "$@"
PROGRAM
chmod +x "$work/root/chromium"
chmod 755 "$work/root"
rm -rf "$home"
mv "$work/root" "$home"
echo "$home/chromium"
