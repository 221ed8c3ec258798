#!/bin/sh
# Run in the build stages of the Dockerfile beside it: `install.sh LOCK EXTRAS` puts the wheel with its extras into /opt/claw, in the
# versions of a lock, some of which are of one Python alone. click is left to pip: Faust asks for an older one than the lock has (CONTRIBUTING.md, "The lock").
set -eu
sed -n 's/^\([A-Za-z0-9._-]*==.*\) \\$/\1/p' "/wheels/$1.txt" | grep -v '^click==' >/tmp/versions.txt
python3 -m pip --python /opt/claw/bin/python install -q -c /tmp/versions.txt "$(ls /wheels/claw_r1-*.whl)[$2]"
