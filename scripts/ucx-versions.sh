#!/bin/sh
# ucx-versions.sh [--plan|--fetch|--short] [VERSION|DIR...]: runs the tests of the UCX transport (test/ucx) on these versions of UCX:
# releases of libucx-cu12 on PyPI, which are fetched once into build/ucx (some 45 MB each), or folders with a
# libucp.so.0. Without one: a release of every minor version that the transport knows. --fetch only fetches, --plan prints what
# it would fetch. --short runs those tests that show that a version is understood, in a few seconds.
# Needs build/c (make c) and python3-venv.
#
# environment: PYTHON (python3)
set -eu

all="1.14.1.post2 1.15.0.post2 1.16.0.post2 1.17.0.post1 1.18.1 1.19.0 1.20.1 1.21.0 1.22.0"

top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
python=${PYTHON:-python3}
FETCH_PIP=
. "$top/scripts/fetch.sh"

only= short=
case ${1:-} in
--plan | --fetch)
	only=$1
	shift
	;;
--short)
	short=1
	shift
	;;
esac
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $all

# libraries VERSION: puts that release's libraries into build/ucx/VERSION.
libraries() {
	[ ! -e "$top/build/ucx/$1/libucp.so.0" ] || return 0
	mkdir -p "$top/build/ucx"
	exec 9>"$top/build/ucx/.lock"
	flock 9
	work=$(mktemp -d)
	"$python" -m venv "$work/venv"
	fetch_pip "$work/venv/bin/python" download --only-binary :all: --no-deps --dest "$work" "libucx-cu12==$1" || {
		rm -rf "$work"
		return 1
	}
	# Only what is loaded: links in a wheel are copies.
	"$python" - "$work" "$top/build/ucx/$1" <<'PYTHON'
import glob, os, re, sys, zipfile
work, to = sys.argv[1:]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        found = re.fullmatch(r"libucx/lib/((?:ucx/)?lib(?:uc[mpst]|uct_cma)\.so\.0)", name) or \
            re.fullmatch(r"libucx_cu12\.libs/(lib.*)", name)
        if found:
            path = os.path.join(to + ".new", found.group(1))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(wheel.read(name))
os.rename(to + ".new", to)
PYTHON
	rm -rf "$work"
}

status=0
for version; do
	case $version in
	*/*) dir=$(cd -- "$version" && pwd) ;;
	*)
		if [ "$only" = --plan ]; then
			[ -e "$top/build/ucx/$version/libucp.so.0" ] || echo "PyPI, 45 MB to fetch: libucx-cu12==$version"
			continue
		fi
		libraries "$version"
		dir=$top/build/ucx/$version
		;;
	esac
	[ -z "$only" ] || continue
	[ -e "$dir/libucp.so.0" ] || {
		echo "ucx-versions.sh: $dir: no libucp.so.0" >&2
		exit 1
	}
	for test in ucx_ucp ucx_uct; do
		parts=
		if [ -n "$short" ]; then
			[ $test = ucx_ucp ] || continue
			parts="messages others window atomics pieces wakeup cancels threads network itself"
		fi
		echo "== UCX of $version: $test"
		# shellcheck disable=SC2086
		LD_LIBRARY_PATH=$dir LD_PRELOAD=$top/build/c/ucx/libnearmetal-ucx.so "$top/build/c/test/ucx/$test" $parts || status=1
	done
done
[ -n "$only" ] || [ $status != 0 ] || echo "UCX: every version passed"
exit $status
