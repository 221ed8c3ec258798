#!/usr/bin/env bash
# Debian's promtool below .tools/prometheus, for the tests of infra/alerts. Prints its path. 20 MB are downloaded once.
. "$(dirname "$0")/debian.sh"
unpacks prometheus promtool
unpack prometheus
mkdir -p "$home"
mv "$work/root/usr/bin/promtool" "$home/promtool.new"
mv "$home/promtool.new" "$home/promtool"  # whole or not at all
echo "$home/promtool"
