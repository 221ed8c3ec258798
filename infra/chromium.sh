#!/usr/bin/env bash
# Debian's Chromium below .tools/chromium, for the tests in a real browser. Prints the path of a program that starts it.
# 130 MB are downloaded once.
. "$(dirname "$0")/debian.sh"
unpacks chromium chromium
missing=$(apt install --print-uris -y --no-install-recommends chromium fonts-dejavu-core fontconfig-config |
  sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
# shellcheck disable=SC2086  # names of packages hold no spaces
unpack chromium chromium-common fonts-dejavu-core $missing

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
