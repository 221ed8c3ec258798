#!/usr/bin/env bash
# Debian's buildah, podman and runc below .tools/containers, for `make images-test` where no engine is installed. Prints the folder of two
# programs, `buildah` and `podman`, which keep images and containers there, and of `mmdebstrap`. 31 MB are downloaded once. Needs root.
. "$(dirname "$0")/debian.sh"
unpacks containers bin/podman
[ "$(id -u)" = 0 ] || { echo "engine.sh: these engines run here as root only" >&2; exit 2; }
unpack buildah podman runc conmon mmdebstrap libgpgme11 libassuan0 libsubid4 libdevmapper1.02.1 libseccomp2 libyajl2 libostree-1-1 libip4tc2 \
  netavark aardvark-dns catatonit patchelf
for program in buildah podman; do  # they call themselves without our variables
  "$work/root/usr/bin/patchelf" --set-rpath "$home/usr/lib/x86_64-linux-gnu" "$work/root/usr/bin/$program"
done
for library in "$work"/root/usr/lib/x86_64-linux-gnu/lib{gpgme,subid}*.so.*; do
  [ -L "$library" ] || "$work/root/usr/bin/patchelf" --set-rpath "$home/usr/lib/x86_64-linux-gnu" "$library"
done

mkdir -p "$work/root/bin" "$work/root/home/.config/containers"
cat >"$work/root/home/.config/containers/policy.json" <<'CONF'
{"default": [{"type": "insecureAcceptAnything"}]}
CONF
wrapper() {  # the folder may not be moved: storage knows its paths
  cat >"$work/root/bin/$1" <<PROGRAM
#!/bin/sh
export PATH="$home/usr/bin:$home/usr/sbin:\$PATH" LD_LIBRARY_PATH="$home/usr/lib/x86_64-linux-gnu" PERL5LIB="$home/usr/share/perl5"
export CONTAINERS_STORAGE_CONF="$home/storage.conf" CONTAINERS_CONF="$home/containers.conf" HOME="$home/home"
$2
PROGRAM
  chmod +x "$work/root/bin/$1"
}
# overlay copies nothing, and is not to be had on every file system, nor in every container
driver=vfs
layers=$(mktemp -d .tools/layers.XXXXXX)
mkdir "$layers"/{lower,upper,inner,merged}
if mount -t overlay -o "lowerdir=$layers/lower,upperdir=$layers/upper,workdir=$layers/inner" overlay "$layers/merged" 2>/dev/null; then
  umount "$layers/merged"
  driver=overlay
fi
rm -rf "$layers"
cat >"$work/root/storage.conf" <<CONF
[storage]
driver = "$driver"
graphroot = "$home/storage"
runroot = "$home/run"
CONF
# No limits above our own, which we may not have the right to raise. compat: the socket takes our images by their short names.
cat >"$work/root/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
[engine]
compat_api_enforce_docker_hub = false
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
conmon_path = ["$home/usr/bin/conmon"]
helper_binaries_dir = ["$home/usr/lib/podman"]
[engine.runtimes]
runc = ["$home/usr/sbin/runc", "$home/usr/bin/runc"]
CONF
wrapper buildah 'verb=$1; shift
case $verb in build) set -- build --isolation chroot "$@";; *) set -- "$verb" "$@";; esac
exec buildah "$@"'
wrapper podman 'exec podman "$@"'
wrapper mmdebstrap 'exec mmdebstrap "$@"'
chmod 755 "$work/root"
rm -rf "$home"
mv "$work/root" "$home"
echo "$home/bin/podman"
