#!/bin/sh
# packages.sh [--fetch | FOLDER]: makes nearmetal's packages for Debian's and Red Hat's families in FOLDER (build/packages), and
# prints their paths. It needs what a build needs, and Slurm's headers (libslurm-dev). The same commit on the same system
# has the same packages, byte for byte.
#
# The plugin for Slurm is compiled for each release whose headers are available: those of this system, and those of the other
# Debian releases that apt's mirror has. --fetch only fetches those, and the modules of what makes packages.
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$top"
. scripts/fetch.sh
fetch=
if [ "${1:-}" = --fetch ]; then
	fetch=1
	shift
fi
dest=${1:-build/packages}
mkdir -p "$dest"
dest=$(CDPATH= cd -- "$dest" && pwd)
work=$dest/${fetch:+fetch-}work
stage=$work/stage
rm -rf "$work"
[ -n "$fetch" ] || rm -f "$dest"/*.deb "$dest"/*.rpm
mkdir -p "$work" "$work/plugins"
version=$(cat VERSION)
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)}

# headers: folders with slurm/spank.h, this system's first. The others' packages are kept.
headers() {
	[ ! -e /usr/include/slurm/spank.h ] || echo /usr/include
	[ -n "$(fetch_mirror)" ] || return 0
	for release in bookworm trixie; do
		kept=$top/build/slurm-headers/$release
		if [ ! -e "$kept/usr/include/slurm/spank.h" ]; then
			mkdir -p "$kept"
			if fetch_deb "$release" libslurm-dev "$work/headers-$release"; then
				dpkg-deb -x "$work/headers-$release"/libslurm-dev_*.deb "$kept"
			fi
		fi
		[ ! -e "$kept/usr/include/slurm/spank.h" ] || echo "$kept/usr/include"
	done
}

if [ -n "$fetch" ]; then
	headers >/dev/null
	fetch_try "go mod download of nfpm" timeout 900 go -C packaging/nfpm mod download
	rm -rf "$fetch_out" "$work"
	exit 0
fi

# The libraries and small programs, as for /usr. Programs of an MPI library are not packaged: each MPI wants its own.
meson setup --buildtype=release --prefix=/usr --libdir=lib -Dmpicc=none "$work/c" . >"$work/meson.log" || {
	cat "$work/meson.log"
	exit 1
}
# Not the tests: what is installed.
meson introspect --targets "$work/c" | python3 -c 'import json, os, sys
print("\n".join(os.path.relpath(f, sys.argv[1]) for t in json.load(sys.stdin) if t["installed"] for f in t["filename"]))' "$work/c" |
	xargs ninja --quiet -C "$work/c"
meson install -C "$work/c" --quiet --no-rebuild --destdir "$stage"
rm -rf "$stage"/usr/lib/slurm
# Where pkg-config looks in both families.
mkdir -p "$stage/usr/share/pkgconfig"
mv "$stage"/usr/lib/pkgconfig/*.pc "$stage/usr/share/pkgconfig/"
rmdir "$stage/usr/lib/pkgconfig"

for h in $(headers); do
	number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x\([0-9a-f]*\).*/\1/p' "$h/slurm/slurm_version.h")
	release=$(printf '%02d.%02d' $((0x$number >> 16)) $((0x$number >> 8 & 255)))
	[ ! -e "$work/plugins/$release" ] || continue
	meson setup --buildtype=release --prefix=/usr --libdir=lib -Dmpicc=none -Dfabric=disabled "-Dc_args=-I$h" \
		"$work/slurm-$release" . >"$work/meson.log" || {
		cat "$work/meson.log"
		exit 1
	}
	ninja --quiet -C "$work/slurm-$release" slurm/spank_nearmetal.so
	install -Dm644 "$work/slurm-$release/slurm/spank_nearmetal.so" "$work/plugins/$release/spank_nearmetal.so"
done
[ -n "$(ls "$work/plugins")" ] || {
	echo "packages.sh: there are no headers of Slurm: make slurm installs this system's" >&2
	exit 1
}

install -Dm755 build/nearmetal "$stage/usr/bin/nearmetal"
install -Dm755 build/nearmetal-task "$stage/usr/bin/nearmetal-task"
install -Dm755 build/nearmetal-vsphere "$stage/usr/bin/nearmetal-vsphere"
ln -sf nearmetal "$stage/usr/bin/nearmetal-rsh"
mkdir -p "$stage/usr/share/man/man1" "$stage/usr/share/man/man5"
build/nearmetal man --docs /usr/share/doc/nearmetal "$stage/usr/share/man/man1"
build/nearmetal man --cluster docs/reference/cluster.md --docs /usr/share/doc/nearmetal "$stage/usr/share/man/man5"
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
(cd docs && find . -name '*.md' -o -name '*.schema.json') | while read -r f; do
	install -Dm644 "docs/$f" "$stage/usr/share/doc/nearmetal/$f"
done
for shell in bash:bash-completion/completions/nearmetal zsh:zsh/site-functions/_nearmetal fish:fish/vendor_completions.d/nearmetal.fish; do
	mkdir -p "$(dirname "$stage/usr/share/${shell#*:}")"
	build/nearmetal completion "${shell%%:*}" >"$stage/usr/share/${shell#*:}"
done

pack() { go -C packaging/nfpm run . -version "$version" -time "$time" -root "$stage" -slurm "$work/plugins" "$@"; }
pack -out "$dest"
rm -rf "$dest/next"
if [ -n "${PACKAGES_NEXT:-}" ]; then # the same once more, to upgrade to
	mkdir "$dest/next"
	pack -release 2 -out "$dest/next" >/dev/null
fi
rm -rf "$work"
