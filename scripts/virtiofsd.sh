#!/bin/sh
# virtiofsd.sh [FOLDER]: puts a virtiofsd in Rust below FOLDER (build/virtiofsd), for tests of `files: virtiofs`,
# and prints the folder to put first in PATH. A virtiofsd of the system that is new enough is taken.
#
# Debian 12 has only QEMU's older one, in C, which nearmetal does not take. Debian 13's is unpacked, with the
# libraries and the loader that it needs: 4 MB. Nothing of it is installed.
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
mkdir -p "$work/lists/partial" "$work/archives/partial"
# The mirror that apt has of Debian's own, of whatever release.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' 2>/dev/null | head -1)
[ -n "$mirror" ] || {
	echo "no Debian mirror found in apt's lists: install virtiofsd, or put one in PATH" >&2
	exit 1
}
echo "deb $mirror trixie main" >"$work/sources.list"
apt() {
	fetch_apt -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- \
		-o Dir::State::Lists="$work/lists" -o Dir::State::status=/dev/null \
		-o Dir::Cache="$work" -o APT::Sandbox::User=root "$@"
}
download() { (cd "$work/archives" && apt download virtiofsd libc6 libcap-ng0 libseccomp2 libgcc-s1); }
start=$(date +%s)
fetch_try "apt-get update for Debian 13" apt update
rm -f "$fetch_out"
fetch_try "apt-get download of virtiofsd" download
rm -f "$fetch_out"
fetch_note Debian "$start" "$(cat "$work"/archives/*.deb | wc -c)" "virtiofsd of Debian 13"
for p in "$work"/archives/*.deb; do
	dpkg-deb -x "$p" "$work/root"
done
mkdir -p "$dest/lib"
for l in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libgcc_s.so.1 libcap-ng.so.0 libseccomp.so.2; do
	cp -L "$work/root/usr/lib/x86_64-linux-gnu/$l" "$dest/lib/"
done
cp "$work/root/usr/libexec/virtiofsd" "$dest/virtiofsd.real"
# Its own loader finds its own libraries. The folder can be moved.
cat >"$dest/virtiofsd" <<'END'
#!/bin/sh
d=${0%/*}
exec "$d/lib/ld-linux-x86-64.so.2" --library-path "$d/lib" "$d/virtiofsd.real" "$@"
END
chmod 755 "$dest/virtiofsd"
rust "$dest/virtiofsd" || {
	echo "$dest/virtiofsd does not run" >&2
	exit 1
}
echo "$dest"
