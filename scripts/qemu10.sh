#!/bin/sh
# Puts a QEMU that emulates an SR-IOV card (-device igb: QEMU 8 or newer) below build/qemu10,
# for `make test-sriov`, and prints its path. The system's QEMU stays as it is: the packages
# of Debian's backports are unpacked, not installed. A system's QEMU that has igb is taken.
set -eu
dest=${1:-build/qemu10}

has_igb() { [ -x "$1" ] && "$1" $2 -device igb,help 2>/dev/null | grep -q mac=; }

own=$(command -v qemu-system-x86_64 || true)
if [ -n "$own" ] && has_igb "$own" ""; then
	echo "$own"
	exit 0
fi
qemu=$dest/usr/bin/qemu-system-x86_64
if has_igb "$qemu" "-L $dest/usr/share/qemu"; then
	echo "$qemu"
	exit 0
fi

. /etc/os-release
if [ "$ID-${VERSION_ID:-}" != debian-12 ]; then
	echo "no QEMU with -device igb here: install QEMU 8 or newer" >&2
	exit 1
fi
mkdir -p "$dest/lists/partial" "$dest/archives/partial"
dest=$(cd "$dest" && pwd)
# The mirror that apt uses already, and backports of the same; apt's own lists are left alone.
{
	sed -n 's/^deb \(\[.*\] \)\?\(\S*\) bookworm main.*/\2/p' /etc/apt/sources.list 2>/dev/null || true
	sed -n 's/^URIs: \(\S*debian\/\?\)$/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true
} | head -1 | while read -r mirror; do
	echo "deb $mirror bookworm main"
	echo "deb $mirror bookworm-backports main"
done >"$dest/sources.list"
[ -s "$dest/sources.list" ] || {
	echo "no Debian mirror found in /etc/apt: put QEMU 8 or newer first in PATH" >&2
	exit 1
}
apt() {
	apt-get -qq -o Dir::Etc::SourceList="$dest/sources.list" -o Dir::Etc::SourceParts=- \
		-o Dir::State::Lists="$dest/lists" -o Dir::Cache="$dest" -o Dir::Cache::Archives="$dest/archives" \
		-o APT::Sandbox::User=root -o DPkg::Lock::Timeout=900 "$@" >&2
}
apt update
# The program, its firmware, and the libraries that this machine has not.
apt install --download-only -y --reinstall --no-install-recommends -t bookworm-backports \
	qemu-system-x86 qemu-system-common qemu-system-data seabios ipxe-qemu
for p in "$dest"/archives/*.deb; do
	dpkg-deb -x "$p" "$dest"
done
rm -rf "$dest/archives" "$dest/lists" "$dest"/*.bin
# Debian's firmware is partly links to absolute paths: made to stay below dest.
find "$dest/usr/share/qemu" -type l | while read -r l; do
	t=$(readlink "$l")
	case $t in /*) [ -e "$dest$t" ] && ln -sf "$dest$t" "$l" ;; esac
done
has_igb "$qemu" "-L $dest/usr/share/qemu" || {
	echo "$qemu does not run or has no igb" >&2
	exit 1
}
echo "$qemu"
