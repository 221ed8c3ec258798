# Sourced by programs that unpack Debian's packages below .tools: no root, nothing outside the repository is touched. Needs
# apt-get and a Debian mirror. After `unpacks NAME PROGRAM`, which ends the script where that is there already, `$home` is
# the folder to fill, `$work` one that goes with the script, and `apt` asks with lists and archives of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

unpacks() {
  home=$PWD/.tools/$1
  is_there "$2"
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "$(basename "$0"): no apt here" >&2; exit 2; }
  mkdir -p .tools
  exec 9>".tools/$1.lock"
  flock 9  # of several at once, one fetches
  is_there "$2"
  work=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs" "$work/root"
  apt update >&2
}

is_there() {
  [ ! -x "$home/$1" ] || { echo "$home/$1"; exit 0; }
}

apt() {  # what is installed on this machine is known
  apt-get -qq -o Dir::State::lists="$work/lists" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work" \
    -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$@"
}

unpack() {  # the packages of these names
  (cd "$work/debs" && apt download "$@" >&2)
  for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done
}
