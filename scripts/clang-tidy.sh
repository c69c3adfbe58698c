#!/bin/sh
# clang-tidy.sh [FILE...]: clang-tidy with .clang-tidy's checks over what build/c compiles, or over
# the files named. Ends with 1 if it has anything to say.
set -u
cd "$(dirname "$0")/.." || exit 1
command -v clang-tidy >/dev/null || {
	echo "clang-tidy.sh: there is no clang-tidy here: sh scripts/install.sh clang" >&2
	exit 2
}
[ $# -gt 0 ] || set -- $(git ls-files 'guest/*.c' 'fabric/*.c' 'slurm/*.c' 'kernels/*.c' | grep -v /fuzz/)
bad=0
omp=no
! echo '#include <omp.h>' | clang -x c -fsyntax-only - 2>/dev/null || omp=yes
for f; do
	# A file that nothing compiles here (no MPI, no Slurm) has no line in the list.
	grep -q "$f\"" build/c/compile_commands.json || continue
	if [ $omp = no ] && grep -q '<omp.h>' "$f"; then
		echo "clang-tidy.sh: left out: $f: clang has no omp.h here" >&2
		continue
	fi
	out=$(clang-tidy --quiet -p build/c "$f" 2>/dev/null)
	[ -z "$out" ] || { printf '%s\n' "$out"; bad=1; }
done
exit $bad
