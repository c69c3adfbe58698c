#!/bin/sh
# ucx-abi.sh DIR...: compares what ucx/abi/abi.h says of UCX with the sources of UCX unpacked in each DIR: a release,
# or what `apt-get source ucx` unpacks. Needs a C compiler only; UCX is not built. Ends with 1 if anything differs.
set -eu
[ $# -gt 0 ] || {
	echo "usage: ucx-abi.sh DIR...: sources of UCX" >&2
	exit 2
}
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
for dir; do
	[ -e "$dir/src/uct/base/uct_iface.h" ] || {
		echo "ucx-abi.sh: $dir: no source of UCX" >&2
		exit 2
	}
	minor=$(sed -n 's/^define(\[ucx_ver_minor\], *\([0-9]*\)).*/\1/p' "$dir/configure.ac")
	[ -n "$minor" ] || {
		echo "ucx-abi.sh: $dir: its configure.ac names no minor version" >&2
		exit 2
	}
	# What configure would have found out, for a build without statistics.
	: >"$work/config.h"
	${CC:-cc} -std=gnu11 -w -O1 -ffunction-sections -Wl,--gc-sections -Wl,--unresolved-symbols=ignore-all -DCHECK_MINOR="$minor" -DHAVE_CONFIG_H -DENABLE_PARAMS_CHECK=0 -DENABLE_DEBUG_DATA=0 \
		-Ducs_offsetof=offsetof -I"$work" -I"$dir/src" -I"$top/ucx/abi" \
		-o "$work/check" "$top/ucx/abi/abi_check.c" "$top/ucx/abi/abi.c" || exit 1
	"$work/check" || status=1
done
exit $status
