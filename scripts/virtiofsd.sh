#!/bin/sh
# virtiofsd.sh [FOLDER]: puts a virtiofsd in Rust below FOLDER (build/virtiofsd), for tests of `files: virtiofs`,
# and prints the folder to put first in PATH. A virtiofsd of the system that is new enough is taken.
#
# Debian 12 has only QEMU's older one, in C, which nearmetal does not take. Debian 13's is unpacked: 2 MB. It takes the
# system's libraries, which QEMU needs as well. Nothing is installed.
set -eu
. "$(dirname "$0")/fetch.sh"
dest=${1:-build/virtiofsd}

rust() { [ -x "$1" ] && "$1" --version 2>/dev/null | grep -q '^virtiofsd 1\.'; }

for own in "$(command -v virtiofsd || true)" /usr/libexec/virtiofsd; do
	if rust "$own"; then
		dirname "$own"
		exit 0
	fi
done
if rust "$dest/virtiofsd"; then
	(cd "$dest" && pwd)
	exit 0
fi

mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch_deb trixie virtiofsd "$work" || {
	echo "install virtiofsd, or put one in PATH" >&2
	exit 1
}
dpkg-deb -x "$work"/virtiofsd_*.deb "$work/root"
# Of glibc 2.39 it has weak symbols only, which it can do without. So that an older glibc starts it, that version's
# entry in .gnu.version_r gets the name (at 8) and its hash (at 0) of the entry before.
python3 - "$work/root/usr/libexec/virtiofsd" "$dest/virtiofsd" <<'END'
import struct, sys

elf = bytearray(open(sys.argv[1], "rb").read())
shoff, = struct.unpack_from("<Q", elf, 0x28)
shentsize, shnum = struct.unpack_from("<HH", elf, 0x3A)
sections = [struct.unpack_from("<IIQQQQIIQQ", elf, shoff + i * shentsize) for i in range(shnum)]
for _, kind, _, _, offset, _, link, _, _, _ in sections:
    if kind != 0x6FFFFFFE:  # SHT_GNU_verneed
        continue
    strings, need = sections[link][4], offset
    while True:
        _, count, _, aux, following = struct.unpack_from("<HHIII", elf, need)
        at = need + aux
        for _ in range(count):
            hashed, _, _, name, step = struct.unpack_from("<IHHII", elf, at)
            if elf[strings + name:].startswith(b"GLIBC_2.39\0"):
                struct.pack_into("<I", elf, at, before[0])
                struct.pack_into("<I", elf, at + 8, before[1])
            before = hashed, name
            at += step
        if not following:
            break
        need += following
open(sys.argv[2], "wb").write(elf)
END
chmod 755 "$dest/virtiofsd"
rust "$dest/virtiofsd" || {
	echo "$dest/virtiofsd does not run" >&2
	exit 1
}
echo "$dest"
