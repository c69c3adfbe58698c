#!/bin/sh
# Installs what nearmetal is built, tested and demonstrated with, on Debian 12 or 13 and
# Ubuntu 24.04. As root it runs apt-get; as anybody else it says what to ask root for.
# Run again it finds everything there and does nothing (well under a second).
set -eu
export DEBIAN_FRONTEND=noninteractive

# What runs a VM; what compiles; what MPI programs are tried with.
packages="qemu-system-x86 qemu-utils
gcc libc6-dev meson ninja-build pkg-config make git ca-certificates
openmpi-bin libopenmpi-dev mpich libmpich-dev libfabric-dev libfabric-bin
python3 python3-venv numactl hwloc-nox iproute2 procps busybox-static tmux xz-utils
ibverbs-utils ibverbs-providers perftest"

kernel=linux-image-amd64
. /etc/os-release
[ "$ID" = ubuntu ] && kernel=linux-image-virtual

need=
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || need="$need $p"
done
# Any kernel with its modules will do.
found=
for k in /boot/vmlinuz-*; do
	[ -d "/lib/modules/${k#/boot/vmlinuz-}/kernel" ] && found=$k
done
[ -n "$found" ] || need="$need $kernel"

# Go 1.22 or newer; newer toolchains come by Go itself where go.mod asks for one.
go_ok() {
	command -v go >/dev/null 2>&1 || return 1
	v=$(go env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/')
	[ "${v:-0}" -ge 22 ] 2>/dev/null
}

if [ -n "$need" ] || ! go_ok; then
	if [ "$(id -u)" != 0 ]; then
		echo "missing:$need$(go_ok || echo ' Go 1.22 or newer')" >&2
		echo "run as root: sh scripts/deps.sh" >&2
		exit 1
	fi
	apt-get update -qq
fi
if [ -n "$need" ]; then
	echo "installing:$need"
	# shellcheck disable=SC2086
	apt-get install -y -qq --no-install-recommends $need >/dev/null
fi
if ! go_ok; then
	# Debian 12 itself has 1.19; its backports have one that is new enough.
	if [ "$ID-$VERSION_ID" = debian-12 ]; then
		if ! grep -rqs bookworm-backports /etc/apt/; then
			# A machine has the one kind of list or the other.
			{
				sed -n 's/^deb \(\[.*\] \)\?\(\S*\) bookworm main.*/deb \1\2 bookworm-backports main/p' /etc/apt/sources.list 2>/dev/null || true
				sed -n 's/^URIs: \(\S*debian\/\?\)$/deb \1 bookworm-backports main/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true
			} | head -1 >/etc/apt/sources.list.d/nearmetal-backports.list
		fi
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends -t bookworm-backports golang-go >/dev/null
	else
		apt-get install -y -qq --no-install-recommends golang-go >/dev/null
	fi
	go_ok || {
		echo "no Go 1.22 or newer to be had by apt: install one by hand" >&2
		exit 1
	}
fi
