#!/bin/sh
# clang-format.sh [--check] [FILE...]: formats all of C, or the files named, as .clang-format says. --check changes nothing: it names the
# files that are not formatted so, and ends with 1 if there are any. clang-format comes from PyPI at the first call (2 MB), to
# build/venv/clang-format, in the version below: others format some lines in another way.
#
# environment: PYTHON (python3)
set -eu

version=20.1.8

cd "$(dirname "$0")/.."
venv=build/venv/clang-format
FETCH_PIP=
. scripts/fetch.sh

case $("$venv/bin/clang-format" --version 2>/dev/null || true) in
"clang-format version $version "*) ;;
*)
	rm -rf "$venv"
	"${PYTHON:-python3}" -m venv "$venv"
	fetch_pip "$venv/bin/python" install --only-binary :all: "clang-format==$version"
	;;
esac

check=
if [ "${1:-}" = --check ]; then
	check=1
	shift
fi
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(git ls-files '*.c' '*.h')
if [ -z "$check" ]; then
	exec "$venv/bin/clang-format" -i --style=file "$@"
fi
status=0
for f; do
	"$venv/bin/clang-format" --dry-run --Werror --style=file "$f" 2>/dev/null || {
		echo "$f: not formatted: make format"
		status=1
	}
done
exit $status
