#!/bin/sh
# meson.sh [DIR [OPTION...]]: sets DIR (build/c) up for Meson, unless it is set up for this folder. One that was copied with
# its folder names the folder that it was copied from: Meson and Ninja would write there.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$top"
[ $# -gt 0 ] || set -- build/c --buildtype=release
dir=$1
shift
if [ -e "$dir/build.ninja" ]; then
	of=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["directories"]["source"])' "$dir/meson-info/meson-info.json" 2>/dev/null) ||
		of="another folder"
	[ "$of" != "$top" ] || exit 0
	echo "$dir was set up for $of: it is set up again for this folder" >&2
	rm -rf "$dir"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
meson setup "$@" "$dir" . >"$log" 2>&1 || {
	cat "$log" >&2
	rm -f "$dir/build.ninja"
	exit 1
}
